"""From run documents to rows of text: what every table of the report shows, however it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tss.report import document as reading
from tss.report.document import Document, Documents
from tss.report.measures import (
    Score,
    deviation,
    forgetting_rate,
    forgetting_rate_max,
    forgetting_rate_per_family,
    forward_transfer,
    mean,
    mean_per,
)

MISSING = "–"


@dataclass(frozen=True)
class Row:
    """A line of a table: a label, one text per method, and which of them are best (none if all are equal).

    `part` says that it is a share of the line above.
    """

    label: str
    cells: tuple[str, ...]
    best: frozenset[int] = frozenset()
    section: str = ""
    note: str = ""
    part: bool = False


@dataclass(frozen=True)
class Summary:
    """Everything the tables say. `scores` has a row per task, ordered by group; `note` is the task's metric."""

    title: str
    methods: tuple[str, ...]
    runs: int
    scores: tuple[Row, ...]
    measures: tuple[Row, ...]
    families: tuple[Row, ...]
    proof: tuple[Proof, ...]


@dataclass(frozen=True)
class Proof:
    """What a method's comparison of old outputs with new ones came to."""

    line: str
    unchanged: bool


def summarise(documents: Documents) -> Summary:
    """Rows over all documents: one run as it is, several as mean and population deviation.

    Raises TssError for documents that cannot be read or that are about different tasks.
    """
    runs = reading.as_list(documents)
    labels = method_labels(runs)
    return Summary(
        title=str(runs[0].get("title") or "Run"),
        methods=tuple(labels.values()),
        runs=len(runs),
        scores=tuple(_score_rows(runs, list(labels))),
        measures=tuple(_rows(runs, list(labels), _measures)),
        families=tuple(_rows(runs, list(labels), _family_measures)),
        proof=tuple(proofs(runs)),
    )


def method_labels(runs: list[Document]) -> dict[str, str]:
    """Label of each method that any run has, in the order of first appearance."""
    labels: dict[str, str] = {}
    for run in runs:
        for key, method in run["methods"].items():
            labels.setdefault(key, str(method.get("label") or key))
    return labels


def groups_of(document: Document, key: str = "group") -> list[str]:
    """Each task's group (or family), in the order learnt; empty texts where the tasks have none."""
    return [str(task.get(key) or "") for task in document["tasks"]]


def proofs(documents: Documents) -> list[Proof]:
    """One proof per method that compared old outputs with new ones, its line for example
    `TSS: 66 comparisons of 12 tasks, 5,280 outputs, 0 bytes changed`; summed over several runs.
    """
    runs = reading.as_list(documents)
    found = []
    for key, label in method_labels(runs).items():
        counts = [count for run in runs if (count := (run.get("proof") or {}).get(key))]
        if counts:
            total = {name: sum(int(c[name]) for c in counts) for name in ("comparisons", "outputs", "changed_bytes")}
            tasks = plural(len(runs[0]["tasks"]), "task") + (f" in {len(counts)} runs" if len(counts) > 1 else "")
            line = (
                f"{label}: {plural(total['comparisons'], 'comparison')} of {tasks}, "
                f"{plural(total['outputs'], 'output')}, {plural(total['changed_bytes'], 'byte')} changed"
            )
            found.append(Proof(line, total["changed_bytes"] == 0))
    return found


# --- rows ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Measure:
    """One number of one method in one run. `better`: +1 more, -1 less, 0 for a part of the line above."""

    label: str
    value: Score
    show: Callable[[float], str]
    better: int
    section: str = ""


def _score_rows(runs: list[Document], methods: list[str]) -> Iterator[Row]:
    scores = {
        method: [reading.by_name(run, reading.at_the_end(_cells(run, method))) for run in runs] for method in methods
    }
    first = runs[0]
    groups = groups_of(first)
    for group in dict.fromkeys(groups):
        for task in (task for task, its in zip(first["tasks"], groups, strict=True) if its == group):
            name = task["name"]
            columns = [[run.get(name) for run in scores[method]] for method in methods]
            note = " · ".join(filter(None, (task.get("kind"), task.get("metric"))))
            yield _row(name, columns, points, +1, group, note)


def _rows(runs: list[Document], methods: list[str], measure: Callable[[Document, str], list[_Measure]]) -> list[Row]:
    """One row per measure that any method has. `measure` gives the same labels for every method of a run."""
    found = {method: [measure(run, method) for run in runs if method in run["methods"]] for method in methods}
    every = [m for of_method in found.values() for measures in of_method for m in measures]
    rows = []
    for kind in {m.label: m for m in reversed(every)}.values():
        columns = [[m.value for ms in found[method] for m in ms if m.label == kind.label] for method in methods]
        if any(value is not None for column in columns for value in column):
            rows.append(_row(kind.label, columns, kind.show, kind.better, kind.section))
    return rows[::-1]


def _row(
    label: str, columns: list[list[Score]], show: Callable[[float], str], better: int, section: str, note: str = ""
) -> Row:
    centres = [mean(column) for column in columns]
    shown = [MISSING if centre is None else show(centre) for centre in centres]
    best: frozenset[int] = frozenset()
    run = [better * centre for centre in centres if centre is not None]
    if better and len(set(shown) - {MISSING}) > 1:
        # Values that print alike are equally good: a reader must not see 81.4 beaten by 81.4.
        top = show(better * max(run))
        best = frozenset(i for i, text in enumerate(shown) if text == top)
    several = [show is not size and sum(value is not None for value in column) > 1 for column in columns]
    spread = [deviation(column) if many else None for column, many in zip(columns, several, strict=True)]
    cells = [text if d is None else f"{text} ±{show(d).lstrip('+')}" for text, d in zip(shown, spread, strict=True)]
    return Row(label, tuple(cells), best, section, note, part=not better)


def _cells(run: Document, method: str) -> reading.Matrix:
    return reading.matrix(run["methods"].get(method, {}), len(run["tasks"]))


def transfer(run: Document, method: str) -> list[Score]:
    """Forward transfer of each task learnt, against the run's reference; empty without one, or for itself."""
    reference = run.get("reference")
    if reference is None or method == reference:
        return []
    learnt = reading.when_learnt(_cells(run, method))
    alone = reading.when_learnt(_cells(run, reference))
    shared = min(len(learnt), len(alone))
    return forward_transfer(learnt[:shared], alone[:shared])


def _measures(run: Document, method: str) -> list[_Measure]:
    cells, groups, entry = _cells(run, method), groups_of(run), run["methods"][method]
    final, gained = reading.at_the_end(cells), transfer(run, method)
    rows = [_Measure("Average score", mean(final), points, +1)]
    rows += [_Measure(f"Average, {group}", value, points, +1) for group, value in _per_group(final, groups)]
    rows.append(_Measure("Forgetting rate", forgetting_rate(reading.when_learnt(cells), final), hundredths, -1))
    rows.append(_Measure("Forward transfer", mean(gained), signed, +1))
    rows += [_Measure(f"Transfer, {group}", value, signed, +1) for group, value in _per_group(gained, groups)]
    sizes = (("Bytes per task", "bytes", -1), ("of which gates", "gate_bytes", 0), ("of which head", "head_bytes", 0))
    rows += [_Measure(label, _mean_of(entry, key, run), size, better) for label, key, better in sizes]
    rows.append(_Measure("Seconds per task", _mean_of(entry, "seconds", run), points, -1))
    return rows


def _family_measures(run: Document, method: str) -> list[_Measure]:
    cells, families = _cells(run, method), groups_of(run, "family")
    if len(set(families)) < 2:
        return []
    diagonal, final, gained = reading.when_learnt(cells), reading.at_the_end(cells), transfer(run, method)
    learnt = families[: len(cells)]
    parts: list[tuple[str, dict[Any, Score], Callable[[float], str], int]] = [
        ("Score", mean_per(final, learnt), points, +1),
        ("Forgetting rate", forgetting_rate_per_family(diagonal, final, learnt), hundredths, -1),
        ("Forward transfer", mean_per(gained, learnt[: len(gained)]), signed, +1),
    ]
    rows = []
    for section, values, show, better in parts:
        named = {family: values.get(family) for family in dict.fromkeys(families)}
        named["mean of the families"] = mean(list(named.values()))
        # The label carries the section too, so that one family's three measures stay three rows.
        rows += [_Measure(f"{section}, {name or 'other'}", v, show, better, section) for name, v in named.items()]
    from_best = forgetting_rate_max(cells) if reading.is_complete(cells) and len(cells) > 1 else None
    return [*rows, _Measure("F′, from the best moment", from_best, hundredths, -1, "Forgetting rate")]


def _per_group(values: list[Score], groups: list[str]) -> list[tuple[str, Score]]:
    """The mean of each group's values, also of groups that have none yet; empty if there is one group only."""
    if len(set(groups)) < 2:
        return []
    means = mean_per(values, groups[: len(values)])
    return [(group or "other", means.get(group)) for group in dict.fromkeys(groups)]


def _mean_of(entry: Any, key: str, run: Document) -> Score:
    return mean(reading.numbers(entry, key, len(run["tasks"])))


# --- how numbers are written ----------------------------------------------------------------------------------


def points(value: float) -> str:
    """A score with one decimal; never `-0.0`."""
    return f"{round(value, 1) + 0.0:.1f}"


def hundredths(value: float) -> str:
    """A forgetting rate: two decimals, because 0.04 is not 0."""
    return f"{round(value, 2) + 0.0:.2f}"


def signed(value: float) -> str:
    """A difference in points, with its sign."""
    rounded = round(value, 1) + 0.0
    return f"{rounded:+.1f}" if rounded else "0.0"


def size(value: float) -> str:
    """Bytes in decimal units: `980 B`, `49.3 kB`, `4.20 MB`."""
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(value) >= limit:
            scaled = value / limit
            return f"{scaled:.{2 if scaled < 10 else 1 if scaled < 100 else 0}f} {unit}"
    return f"{value:.0f} B"


def plural(count: int, noun: str) -> str:
    """`1 task`, `5,280 outputs`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
