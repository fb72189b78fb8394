"""The picture of a pretraining run: its losses over the tokens it has seen, as an SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tss.backbones.runlog import whole_curve

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 640, 300, 48, 36, 14


def loss_curve(lines: Sequence[Mapping], title: str) -> str:
    """An SVG of the training loss and the losses on unseen text, over tokens seen."""
    curve = whole_curve(lines)
    series = {
        "training": ("#9aa5b1", [(x["tokens"], x["loss"]) for x in curve if x["event"] == "step"]),
        "unseen, all tokens": ("#1f6feb", [(x["tokens"], x["all"]) for x in curve if x["event"] == "held-out"]),
        "unseen, hidden tokens": ("#d1495b", [(x["tokens"], x["masked"]) for x in curve if x["event"] == "held-out"]),
    }
    most = max(x for _, points in series.values() for x, _ in points)
    highest = 6.0  # above it lies only the blind start, where the loss says little
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"',
        'font-family="sans-serif" font-size="11">',
        f"<title>{title}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
    ]
    parts += [_grid(value, highest) for value in range(int(highest) + 1)]
    for row, (name, (colour, points)) in enumerate(series.items()):
        kept = [_place(x / most, min(y, highest) / highest) for x, y in points]
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{" ".join(kept)}"/>')
        parts.append(f'<text x="{_WIDTH - 170}" y="{_TOP + 18 + 15 * row}" fill="{colour}">{name}</text>')
    middle, foot = (_LEFT + _WIDTH) // 2, _HEIGHT - 8
    parts.append(
        f'<text x="{middle}" y="{foot}" text-anchor="middle">tokens seen, 0 to {most / 1e6:.0f} million</text>'
    )
    parts.append(f'<text x="{_LEFT}" y="{_TOP - 2}">loss in nats a token</text></svg>')
    return "\n".join(parts) + "\n"


def _place(across: float, up: float) -> str:
    x = _LEFT + across * (_WIDTH - _LEFT - 10)
    y = _HEIGHT - _BOTTOM - up * (_HEIGHT - _BOTTOM - _TOP)
    return f"{x:.1f},{y:.1f}"


def _grid(value: int, highest: float) -> str:
    y = _place(0, value / highest).split(",")[1]
    return (
        f'<path d="M{_LEFT} {y}H{_WIDTH - 10}" stroke="#e5e8eb"/>'
        f'<text x="{_LEFT - 6}" y="{float(y) + 4:.1f}" text-anchor="end">{value}</text>'
    )
