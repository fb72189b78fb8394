"""Pictures as small pieces of HTML and inline SVG: heat maps, bars, lines, scatter.

Colours are names (`--c0`, `h0` ...) that the page's style sheet defines for light and dark. A colour never says
anything alone: heat-map cells hold their number, bars their value, lines differ by dash and marker.
Every text is escaped here, so callers pass names as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from tss.report.axes import HEIGHT, WIDTH, frame_of, tick
from tss.report.measures import Score
from tss.report.summary import signed

SHADES = 10
COLOURS = 8
_DASHES = ("", "7 4", "2 3", "9 3 2 3")


@dataclass(frozen=True)
class Series:
    """A line or a point of a chart. `style` numbers the method, so that it looks the same in all pictures."""

    label: str
    style: int
    points: Sequence[tuple[float, float]]


# --- tables with colour ---------------------------------------------------------------------------------------


def heat_map(
    caption: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[Score]],
    low: float,
    high: float,
    decimals: int = 1,
    mark_drops: bool = False,
) -> str:
    """A table of numbers coloured from `low` to `high`; columns are headed by their number, rows also by name.

    values: [rows][columns]; `None` is drawn as an empty cell.
    mark_drops: put a ▾ at cells more than half a point below the diagonal cell of their column.
    """
    head = "".join(f'<th scope="col" title="{escape(name)}">{i}</th>' for i, name in enumerate(columns, 1))
    body = []
    for k, (name, row) in enumerate(zip(rows, values, strict=False), 1):
        cells = []
        for i, value in enumerate(row):
            learnt = values[i][i] if mark_drops and i < len(values) else None
            dropped = value is not None and learnt is not None and value < learnt - 0.5
            cells.append(_heat_cell(value, low, high, decimals, dropped))
        body.append(f'<tr><th scope="row"><b>{k}</b> {escape(name)}</th>{"".join(cells)}</tr>')
    return (
        f'<div class="scroll"><table class="heat"><caption>{escape(caption)}</caption>'
        f"<thead><tr><td></td>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _heat_cell(value: Score, low: float, high: float, decimals: int, dropped: bool) -> str:
    if value is None:
        return "<td></td>"
    share = (value - low) / (high - low) if high > low else 1.0
    shade = min(max(int(share * SHADES), 0), SHADES - 1)
    return f'<td class="h{shade}">{value:.{decimals}f}{"▾" if dropped else ""}</td>'


def heat_scale(low: str, high: str) -> str:
    """The strip that says what the colours of a heat map mean."""
    steps = "".join(f'<i class="h{i}"></i>' for i in range(SHADES))
    return (
        f'<p class="scale" role="img" aria-label="colour scale from {escape(low)} to {escape(high)}">'
        f"<span>{escape(low)}</span>{steps}<span>{escape(high)}</span></p>"
    )


def bars(caption: str, rows: Sequence[tuple[str, str, Sequence[Score]]], labels: Sequence[tuple[str, int]]) -> str:
    """Grouped bars to both sides of zero, one table row per task, one bar per method.

    rows: (section, task, value per method); labels: (method, style).
    """
    values = [abs(value) for _, _, of_row in rows for value in of_row if value is not None]
    span = max([*values, 1.0])
    body, section = [], None
    for of, name, of_row in rows:
        if of != section and of:
            body.append(f'<tr class="section"><th colspan="2" scope="colgroup">{escape(of)}</th></tr>')
        section = of
        drawn = "".join(_bar(value, span, label, style) for value, (label, style) in zip(of_row, labels, strict=True))
        body.append(f'<tr><th scope="row">{escape(name)}</th><td>{drawn}</td></tr>')
    return f'<table class="bars"><caption>{escape(caption)}</caption><tbody>{"".join(body)}</tbody></table>'


def _bar(value: Score, span: float, label: str, style: int) -> str:
    title = escape(label)
    if value is None:
        return f'<div class="bar" title="{title}: not run"><em style="left:50%">–</em></div>'
    # 33 % of the width each side; the rest is room for the number beyond the end of the bar.
    width = 33 * abs(value) / span
    side = f"left:50%;width:{width:.1f}%" if value >= 0 else f"right:50%;width:{width:.1f}%"
    number = f"left:{50 + width:.1f}%" if value >= 0 else f"right:{50 + width:.1f}%"
    return (
        f'<div class="bar" title="{title}"><i style="{side};background:var(--c{style % COLOURS})"></i>'
        f'<em style="{number}">{signed(value)}</em></div>'
    )


# --- charts -----------------------------------------------------------------------------------------------------


def legend(labels: Sequence[tuple[str, int]]) -> str:
    """Line, marker and name of each method; labels: (method, style)."""
    keys = "".join(
        f'<li><svg viewBox="0 0 34 14" aria-hidden="true"><path d="M1 7H33" {_stroke(style)}/>'
        f"{_marker(17, 7, style)}</svg>{escape(label)}</li>"
        for label, style in labels
    )
    return f'<ul class="legend">{keys}</ul>'


def line_chart(
    title: str, series: Sequence[Series], x_label: str, y_label: str, y_from: float | None = None, percent: bool = False
) -> str:
    """Lines with a marker at each point and a tooltip on it. `y_from` pins the lower end of the y axis."""
    drawn = [line for line in series if line.points]
    if not drawn:
        return ""
    frame = frame_of([point for line in drawn for point in line.points], y_from)
    shapes = []
    for line in drawn:
        spots = [(frame.x(x), frame.y(y)) for x, y in line.points]
        shapes.append(f'<path d="{_path(spots)}" {_stroke(line.style)}/>')
        for (x, y), (cx, cy) in zip(line.points, spots, strict=True):
            tip = f"{line.label}, {x_label} {x:g}: {tick(y, percent)}"
            shapes.append(f"<g>{_marker(cx, cy, line.style)}<title>{escape(tip)}</title></g>")
    return _chart(title, frame.axes(x_label, y_label, percent) + "".join(shapes))


def scatter(title: str, series: Sequence[Series], x_label: str, y_label: str) -> str:
    """One labelled point per method; x grows logarithmically when it spans more than a factor of 20."""
    drawn = [line for line in series if line.points]
    if not drawn:
        return ""
    xs = [x for line in drawn for x, _ in line.points]
    logarithmic = min(xs) > 0 and max(xs) > 20 * min(xs)
    frame = frame_of([point for line in drawn for point in line.points], None, margin=0.15, logarithmic=logarithmic)
    shapes: list[str] = []
    taken: list[float] = []
    for line in sorted(drawn, key=lambda line: line.points[0][1]):
        x, y = frame.x(line.points[0][0]), frame.y(line.points[0][1])
        text_y = y + 4
        while any(abs(text_y - other) < 14 for other in taken):
            text_y -= 2
        taken.append(text_y)
        left = x > WIDTH / 2
        place = f'x="{x - 11:.0f}" text-anchor="end"' if left else f'x="{x + 11:.0f}"'
        shapes.append(
            f'{_marker(x, y, line.style, 6)}<text class="name" {place} y="{text_y:.0f}">{escape(line.label)}</text>'
        )
    suffix = " (logarithmic)" if logarithmic else ""
    return _chart(title, frame.axes(x_label + suffix, y_label, False) + "".join(shapes))


def small_lines(title: str, series: Sequence[Series]) -> str:
    """A small chart of many: lines only, lowest and highest value at the side, the last step below."""
    drawn = [line for line in series if line.points]
    if not drawn:
        return ""
    xs = [x for line in drawn for x, _ in line.points]
    ys = [y for line in drawn for _, y in line.points]
    left, right, low, high = min(xs), max(xs), min(ys), max(ys)

    def place(x: float, y: float) -> tuple[float, float]:
        return 34 + 160 * (x - left) / ((right - left) or 1), 92 - 84 * (y - low) / ((high - low) or 1)

    lines = "".join(
        f'<path d="{_path([place(*point) for point in line.points])}" {_stroke(line.style)}/>'
        + (_marker(*place(*line.points[0]), line.style) if len(line.points) == 1 else "")
        for line in drawn
    )
    axes = (
        f'<path class="axis" d="M34 8V92H194"/><text x="29" y="13" text-anchor="end">{high:.3g}</text>'
        f'<text x="29" y="93" text-anchor="end">{low:.3g}</text>'
        f'<text x="34" y="107">{left:g}</text><text x="194" y="107" text-anchor="end">{right:g}</text>'
    )
    name = escape(title)
    return (
        f'<figure class="small"><figcaption>{name}</figcaption><svg viewBox="0 0 200 112" role="img" '
        f'aria-label="{name}"><title>{name}</title>{axes}{lines}</svg></figure>'
    )


def _chart(title: str, inside: str) -> str:
    name = escape(title)
    return (
        f'<figure><figcaption>{name}</figcaption><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{name}"><title>{name}</title>{inside}</svg></figure>'
    )


def _path(spots: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in spots)


def _stroke(style: int) -> str:
    dash = _DASHES[style % len(_DASHES)]
    return f'class="line" style="stroke:var(--c{style % COLOURS})"' + (f' stroke-dasharray="{dash}"' if dash else "")


def _marker(x: float, y: float, style: int, r: float = 3.5) -> str:
    """A circle, square, triangle or diamond, by style."""
    paint = f'class="dot" style="fill:var(--c{style % COLOURS})"'
    shape = style % 4
    if shape == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}" {paint}/>'
    outlines = {
        1: ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
        2: ((0, -1.2), (1.15, 0.8), (-1.15, 0.8)),
        3: ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
    }
    return f'<path d="{_path([(x + r * dx, y + r * dy) for dx, dy in outlines[shape]])}z" {paint}/>'
