"""Scales of a chart: round numbers, linear or logarithmic, drawn as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

WIDTH, HEIGHT = 480, 290
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 16, 16, 48


@dataclass(frozen=True)
class Frame:
    """Where values lie in the drawing area, and the marks on its two axes."""

    x_ends: tuple[float, float]
    y_ends: tuple[float, float]
    x_ticks: tuple[float, ...]
    y_ticks: tuple[float, ...]
    logarithmic: bool

    def x(self, value: float) -> float:
        value, (low, high) = self._scaled(value), self.x_ends
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * (value - low) / ((high - low) or 1)

    def y(self, value: float) -> float:
        low, high = self.y_ends
        return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * (value - low) / ((high - low) or 1)

    def _scaled(self, value: float) -> float:
        return log10(value) if self.logarithmic else value

    def axes(self, x_label: str, y_label: str, percent: bool) -> str:
        bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
        lines = "".join(f'<path class="grid" d="M{_LEFT} {self.y(t):.1f}H{right}"/>' for t in self.y_ticks)
        texts = "".join(
            f'<text x="{_LEFT - 8}" y="{self.y(t) + 4:.0f}" text-anchor="end">{tick(t, percent)}</text>'
            for t in self.y_ticks
        )
        texts += "".join(
            f'<text x="{self.x(t):.0f}" y="{bottom + 18}" text-anchor="middle">{tick(t, False)}</text>'
            for t in self.x_ticks
        )
        names = (
            f'<text x="{(_LEFT + right) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_label)}</text>'
            f'<text transform="translate(14 {(_TOP + bottom) / 2:.0f}) rotate(-90)" text-anchor="middle">'
            f"{escape(y_label)}</text>"
        )
        return f'{lines}<path class="axis" d="M{_LEFT} {bottom}H{right}"/>{texts}{names}'


def frame_of(
    points: Sequence[tuple[float, float]], y_from: float | None, margin: float = 0.0, logarithmic: bool = False
) -> Frame:
    """A frame that holds the points, with `margin` of their extent around them; `y_from` pins its lower end."""
    xs = [log10(x) if logarithmic else x for x, _ in points]
    ys = [y for _, y in points]
    x_room = margin * (max(xs) - min(xs) or abs(xs[0]) or 1)
    low, high = min(xs) - x_room, max(xs) + x_room
    y_room = margin * (max(ys) - min(ys) or 1)
    y_ticks = nice(min(ys) - y_room if y_from is None else y_from, max(ys) + y_room)
    if logarithmic:
        powers = [m * 10.0**p for p in range(floor(low), ceil(high) + 1) for m in (1, 3)]
        x_ticks = tuple(t for t in powers if low <= log10(t) <= high)
    elif high - low <= 14 and all(x == int(x) for x in xs):
        x_ticks = tuple(sorted(set(xs)))
    else:
        x_ticks = tuple(t for t in nice(low, high) if low <= t <= high)
    return Frame((low, high), (min(y_ticks), max(y_ticks)), x_ticks, y_ticks, logarithmic)


def nice(low: float, high: float) -> tuple[float, ...]:
    """About five round numbers that enclose low..high."""
    span = (high - low) or abs(high) or 1.0
    rough = span / 4
    power = 10.0 ** floor(log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    return tuple(round(i * step, 10) for i in range(first, max(last, first + 1) + 1))


def tick(value: float, percent: bool = False) -> str:
    """A number short enough for an axis: `25 %`, `300k`, `8.5`."""
    if percent:
        return f"{100 * value:.3g} %"
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            scale = 1e3 if unit == "k" else limit
            return f"{value / scale:.3g}{unit}"
    return f"{value:.4g}"
