"""The benchmark's record as one picture: each system's mean over the five families, mixed and with families apart.

`record.py` writes it beside the tables, from the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from math import ceil, floor

from tss.bench.measured import Measured, Over, final, forgetting
from tss.bench.published import SETTINGS, SYSTEMS

WIDTH, LEFT, RIGHT, ROW, TOP, BOTTOM = 760, 150, 110, 24, 64, 46
OURS = ("tss", "tss+")
STYLE = (
    "text{font:13px sans-serif;fill:#1f2328}.own{font-weight:bold}.faint{fill:#59636e}.grid{stroke:#d1d9e0}"
    ".mixed{stroke:#0969da;fill:#0969da}.apart{stroke:#bc4c00;fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.faint{fill:#9198a1}.grid{stroke:#3d444d}"
    ".mixed{stroke:#4493f8;fill:#4493f8}.apart{stroke:#f0883e;fill:#0d1117}}"
)


@dataclass(frozen=True)
class System:
    """Means over the families, by order; forgot: the mean FR of the mixed sequence."""

    name: str
    own: bool
    mixed: Over
    apart: Over
    forgot: float | None

    @property
    def height(self) -> float:
        return max(one.mean for one in (self.mixed, self.apart) if one.mean is not None)


def systems(measured: Measured) -> list[System]:
    """Those that have all five families in a setting, best first."""
    found = []
    for method in dict.fromkeys([*SYSTEMS, *measured.methods()]):
        mixed, apart = (measured.average(setting, method, final()) for setting in SETTINGS)
        forgot = measured.average(SETTINGS[0], method, forgetting).mean
        name = SYSTEMS.get(method) or measured.methods().get(method, method)
        if mixed.values or apart.values:
            found.append(System(name, method in OURS, mixed, apart, forgot))
    return sorted(found, key=lambda one: -one.height)


def picture(measured: Measured) -> str:
    """An SVG document; empty if there is nothing to show."""
    rows = systems(measured)
    if not rows:
        return ""
    every = [value for row in rows for one in (row.mixed, row.apart) for value in one.values]
    low, high = floor(min(every) / 5) * 5, ceil(max(every) / 5) * 5
    height = TOP + ROW * len(rows) + BOTTOM

    def x(value: float) -> float:
        return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    parts = [_axis(x, low, high, height)]
    for i, row in enumerate(rows):
        y = TOP + ROW * i + ROW / 2
        own = ' class="own"' if row.own else ""
        forgot = "–" if row.forgot is None else f"{round(row.forgot, 1) + 0.0:.1f}"  # never -0.0
        parts.append(f'<text x="{LEFT - 14}" y="{y + 4:.0f}" text-anchor="end"{own}>{escape(row.name)}</text>')
        parts.append(f'<text x="{WIDTH - 40}" y="{y + 4:.0f}" text-anchor="end"{own}>{forgot}</text>')
        parts += [_mark(x, y, one, kind) for one, kind in ((row.apart, "apart"), (row.mixed, "mixed"))]
    title = "Mean of the five families by system, and how much each forgets"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title}">'
        f"<title>{title}</title><style>{STYLE}</style>{''.join(parts)}</svg>\n"
    )


def _axis(x, low: int, high: int, height: int) -> str:
    lines = "".join(
        f'<path class="grid" d="M{x(v):.1f} {TOP}V{height - BOTTOM}"/>'
        f'<text class="faint" x="{x(v):.1f}" y="{height - BOTTOM + 18}" text-anchor="middle">{v}</text>'
        for v in range(low, high + 1, 5)
    )
    middle = (LEFT + WIDTH - RIGHT) / 2
    return (
        f'<circle class="mixed" cx="{LEFT + 6}" cy="20" r="5"/><text x="{LEFT + 18}" y="24">40 tasks mixed</text>'
        f'<circle class="apart" cx="{LEFT + 146}" cy="20" r="5" stroke-width="2"/>'
        f'<text x="{LEFT + 158}" y="24">families apart</text>'
        f'<text class="faint" x="{LEFT + 262}" y="24">line: lowest to highest order</text>'
        f'<text class="faint" x="{WIDTH - 10}" y="{TOP - 22}" text-anchor="end">forgets,</text>'
        f'<text class="faint" x="{WIDTH - 10}" y="{TOP - 6}" text-anchor="end">mixed (FR)</text>{lines}'
        f'<text class="faint" x="{middle:.0f}" y="{height - 8}" text-anchor="middle">mean of the five families\' '
        "main metrics after the last task, points</text>"
    )


def _mark(x, y: float, one: Over, kind: str) -> str:
    if one.mean is None:
        return ""
    spread = f'<path class="{kind}" stroke-width="2" d="M{x(min(one.values)):.1f} {y:.1f}H{x(max(one.values)):.1f}"/>'
    return f'{spread}<circle class="{kind}" stroke-width="2" cx="{x(one.mean):.1f}" cy="{y:.1f}" r="5"/>'
