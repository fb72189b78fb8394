"""The pictures of a run: which numbers go into which plot, and what a reader sees in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tss.report import document as reading
from tss.report import plots
from tss.report.document import Document
from tss.report.measures import mean
from tss.report.plots import Series
from tss.report.summary import groups_of, method_labels, transfer

CURVE_POINTS = 6000  # all learning curves together, so that long runs of many methods stay a small page
MAPS_IN_VIEW = 4


@dataclass(frozen=True)
class Section:
    """A part of the page: heading, what it shows in plain words, and the HTML."""

    anchor: str
    heading: str
    words: str
    body: str


def pictures(run: Document) -> list[Section]:
    """Every picture that the run has the numbers for."""
    styles = {key: (label, style) for style, (key, label) in enumerate(method_labels([run]).items())}
    made = [draw(run, styles) for draw in (_matrices, _transfer, _sequence, _overlaps, _cost, _curves)]
    return [section for section in made if section.body]


Styles = Mapping[str, tuple[str, int]]


def _names(run: Document) -> list[str]:
    return [task["name"] for task in run["tasks"]]


def _matrices(run: Document, styles: Styles) -> Section:
    names = _names(run)
    cells = {key: reading.matrix(run["methods"][key], len(names)) for key in styles}
    scores = [value for of in cells.values() for row in of for value in row if value is not None]
    low, high = (min(scores), max(scores)) if scores else (0.0, 0.0)
    decimals = 1 if len(names) <= 20 else 0
    maps = [
        plots.heat_map(
            f"{label}: scores after each task", names, names, cells[key], low, high, decimals, mark_drops=True
        )
        for key, (label, _) in styles.items()
    ]
    body = plots.heat_scale(f"{low:.0f} points", f"{high:.0f} points") + _some_in_view(maps, "task matrices")
    words = (
        "Read a column from top to bottom: it is one task, scored again each time another task has been learnt. "
        "A column that never changes is a task that is never forgotten; ▾ marks a score more than half a point below "
        "what it was when the task was learnt. Columns carry the numbers of the tasks in the rows."
    )
    return Section("matrix", "Nothing lost along the way?", words, body if scores else "")


def _some_in_view(maps: Sequence[str], noun: str) -> str:
    shown, folded = maps[:MAPS_IN_VIEW], maps[MAPS_IN_VIEW:]
    more = f"<details><summary>{len(folded)} more {noun}</summary>{''.join(folded)}</details>" if folded else ""
    return f'<div class="maps">{"".join(shown)}</div>{more}'


def _transfer(run: Document, styles: Styles) -> Section:
    names, groups = _names(run), groups_of(run)
    gained = {key: values for key in styles if (values := transfer(run, key))}
    labels = [styles[key] for key in gained]
    order = sorted(range(len(names)), key=lambda i: list(dict.fromkeys(groups)).index(groups[i]))
    columns = [values + [None] * (len(names) - len(values)) for values in gained.values()]
    rows = [(groups[i], names[i], [column[i] for column in columns]) for i in order]
    reference = styles[run["reference"]][0] if gained else ""
    caption = (
        f"Points above (right) or below (left) {reference}, which learns every task alone; bars in the order above"
    )
    words = (
        "Does knowing earlier tasks help with a new one? A bar to the right says that the task, when it was just "
        "learnt, scored higher than a model that learnt it alone; a bar to the left says lower. Similar tasks can "
        "gain; for dissimilar ones, about zero is all that is hoped for. On a small test set a few points are noise."
    )
    body = plots.legend(labels) + plots.bars(caption, rows, labels) if gained else ""
    return Section("transfer", "What earlier tasks give to later ones", words, body)


def _sequence(run: Document, styles: Styles) -> Section:
    def chart(key: str, title: str, y_label: str) -> str:
        lines = []
        for method, (label, style) in styles.items():
            values = reading.numbers(run["methods"][method], key, len(run["tasks"]))
            points = [(float(i), value) for i, value in enumerate(values, 1) if value is not None]
            lines.append(Series(label, style, points))
            used.update({method: (label, style)} if points else {})
        return plots.line_chart(title, lines, "task", y_label, y_from=0.0, percent=True)

    used: dict[str, tuple[str, int]] = {}
    charts = chart("importance", "Importance gathered so far", "mean importance")
    charts += chart("flips", "Gates that a task changed", "share of gates")
    charts += chart("open_gates", "Gates open in each task", "share of gates")
    words = (
        "Importance says how strongly the scores are already spoken for: near 100 % there is little room left for new "
        "tasks to move them. Flips are gates that learning a task turned over. "
        "Open gates are the weights that belong to a task's sub-network."
    )
    body = f'{plots.legend(list(used.values()))}<div class="pictures">{charts}</div>' if charts else ""
    return Section("sequence", "Along the sequence", words, body)


def _overlaps(run: Document, styles: Styles) -> Section:
    names = _names(run)
    shares = {key: share for key in styles if (share := run["methods"][key].get("overlap"))}
    lower = {key: _lower_triangle(share, len(names)) for key, share in shares.items()}
    values = [value for of in lower.values() for row in of for value in row if value is not None]
    low = min(values, default=0.0)
    maps = [
        plots.heat_map(f"{styles[key][0]}: gates in common, %", names, names, of, low, 100.0, 0)
        for key, of in lower.items()
    ]
    words = (
        "For two tasks, the share of gates that are equal, open in both or closed in both. Two unrelated sub-networks "
        "with half of their gates open agree on about 50 %; more means that one was built on the other."
    )
    body = plots.heat_scale(f"{low:.0f} %", "100 %") + _some_in_view(maps, "overlaps") if maps else ""
    return Section("overlap", "How much sub-networks share", words, body)


def _lower_triangle(shares: Sequence[Sequence[Any]], count: int) -> reading.Matrix:
    """Percent below and on the diagonal; the rest says the same again and stays empty."""
    cells: reading.Matrix = [[None] * count for _ in shares[:count]]
    for i, row in enumerate(shares[:count]):
        for j, share in enumerate(row[: i + 1]):
            value = reading.finite(share)
            cells[i][j] = None if value is None else 100 * value
    return cells


def _cost(run: Document, styles: Styles) -> Section:
    count = len(run["tasks"])

    def chart(key: str, title: str, x_label: str) -> str:
        points = []
        for method, (label, style) in styles.items():
            cost = mean(reading.numbers(run["methods"][method], key, count))
            score = mean(reading.at_the_end(reading.matrix(run["methods"][method], count)))
            points.append(Series(label, style, [(cost, score)] if cost is not None and score is not None else []))
        return plots.scatter(title, points, x_label, "average score")

    charts = chart("bytes", "Storage against score", "bytes per task") + chart(
        "seconds", "Time against score", "seconds per task"
    )
    words = "Each mark is a method: further up is better, further left is cheaper."
    return Section("cost", "Cost against score", words, f'<div class="pictures">{charts}</div>' if charts else "")


def _curves(run: Document, styles: Styles) -> Section:
    total = sum(len(curve) for key in styles for curve in run["methods"][key].get("curves") or [])
    stride = max(1, -(-total // CURVE_POINTS))

    def panels(column: int) -> str:
        made = []
        for i, name in enumerate(_names(run)):
            lines = [
                Series(label, style, _thinned(run["methods"][key].get("curves") or [], i, column, stride))
                for key, (label, style) in styles.items()
            ]
            made.append(plots.small_lines(f"{i + 1} {name}", lines))
        return f'<div class="panels">{"".join(made)}</div>' if any(made) else ""

    scores, losses = panels(2), panels(1)
    if losses:
        losses = f"<details{'' if scores else ' open'}><summary>Training loss, task by task</summary>{losses}</details>"
    words = (
        "One small picture per task: the score on held-out examples while it was learnt, by step. "
        "Each has its own scale, with its lowest and highest value at the side."
    )
    body = plots.legend(list(styles.values())) + scores + losses if scores or losses else ""
    return Section("curves", "Learning curves", words, body)


def _thinned(
    curves: Sequence[Sequence[Sequence[Any]]], task: int, column: int, stride: int
) -> list[tuple[float, float]]:
    """(step, value) where there is a value; every stride-th of them, and the last."""
    if task >= len(curves):
        return []
    finite = [
        (float(row[0]), value)
        for row in curves[task]
        if len(row) > column and (value := reading.finite(row[column])) is not None
    ]
    return [point for i, point in enumerate(finite) if i % stride == 0 or i == len(finite) - 1]
