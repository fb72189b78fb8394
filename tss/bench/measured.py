"""Numbers of a grid by setting, method and family, over orders and seeds; every table reads them from here.

A number is None where a task it needs was not run: means are never taken over fewer tasks than were asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tss.bench.collect import Result, Runs, Scores, results
from tss.bench.examples import Columns, paired_interval
from tss.bench.published import FAMILIES, MAIN_METRIC
from tss.report.measures import Interval, Score, deviation, difference, forgetting_rate_per_family, mean, mean_per

# a number of one family in one result; family "" stands for all tasks
Measure = Callable[[Result, str], Score]
Run = tuple[int, int]  # order and seed


@dataclass(frozen=True)
class Over:
    """One number over orders (and seeds)."""

    values: tuple[float, ...]
    any_order: bool = False  # the method does not depend on the order

    @property
    def mean(self) -> Score:
        return mean(self.values)

    @property
    def deviation(self) -> Score:
        return deviation(self.values)


class Measured:
    """All results of a grid. `setting`: heterogeneous, homogeneous, or a sequence of one's own."""

    def __init__(self, runs: Runs):
        self.runs = runs
        self.results = results(runs)
        self.cut = bool(runs.grid["settings"]["first"])
        self._alone: dict[tuple[str, int, str], float] = {}
        for one in self.results:
            for task, scores in zip(one.tasks, one.diagonal, strict=True):
                if one.shared and scores:
                    self._alone[one.method, one.seed, task] = main(scores)

    def methods(self) -> dict[str, str]:
        """Methods of which there is a result: name -> label."""
        return {one.method: one.label for one in self.results}

    def of(self, setting: str, method: str, family: str | None = None) -> list[Result]:
        """The results of a method that count for a setting (and, in the homogeneous one, a family)."""
        own = [one for one in self.results if one.method == method]
        if setting == "homogeneous":
            return [one for one in own if one.sequence in FAMILIES and family in (None, one.sequence)]
        return [one for one in own if one.sequence == setting]

    def per_run(self, setting: str, method: str, family: str, measure: Measure) -> dict[Run, float]:
        found = {(one.order, one.seed): measure(one, family) for one in self.of(setting, method, family)}
        return {run: value for run, value in found.items() if value is not None}

    def family(self, setting: str, method: str, family: str, measure: Measure) -> Over:
        return self._over(setting, method, list(self.per_run(setting, method, family, measure).values()))

    def average(self, setting: str, method: str, measure: Measure, families: Sequence[str] = FAMILIES) -> Over:
        """Plain mean of the families in each order; orders that lack a family are left out."""
        each = [self.per_run(setting, method, family, measure) for family in families]
        whole = [run for run in each[0] if all(run in one for one in each)]
        return self._over(setting, method, [sum(one[run] for one in each) / len(each) for run in sorted(whole)])

    def _over(self, setting: str, method: str, values: list[float]) -> Over:
        shared = any(one.shared for one in self.of(setting, method)) and not self.cut
        return Over(tuple(values), shared)

    def alone(self, reference: str, at_the_end: bool = False) -> Measure:
        """A task's score when it was learnt (or at the end), minus that of `reference`, which learns it alone."""

        def gained(one: Result, family: str) -> Score:
            values = [
                None if scores is None or alone is None else main(scores) - alone
                for task, scores, group in zip(
                    one.tasks, one.final if at_the_end else one.diagonal, one.families, strict=True
                )
                for alone in [self._alone.get((reference, one.seed, task))]
                if group == family
            ]
            return _whole_mean(values)

        return gained

    def interval(self, setting: str, family: str, ours: str, theirs: str) -> Interval | None:
        """Paired bootstrap over test examples of ours minus theirs; orders are averaged. None: not all was run."""
        left, right = (self._tested(setting, family, method) for method in (ours, theirs))
        if not left or set(left) != set(right):
            return None
        return paired_interval([left[task] for task in left], [right[task] for task in left])

    def _tested(self, setting: str, family: str, method: str) -> dict[str, list[Columns]]:
        """Columns of every finished order by task of the family; of a method that is the same in all, of one."""
        out: dict[str, list[Columns]] = {}
        seen = set()
        for one in self.of(setting, method, family):
            if _final_main(one, family) is None or (one.shared and not self.cut and one.seed in seen):
                continue
            seen.add(one.seed)
            for task, columns, group in zip(one.tasks, one.examples, one.families, strict=True):
                if group == family and columns:
                    out.setdefault(task, []).append(columns)
        return out


def main(scores: Scores) -> float:
    return next(iter(scores.values()))


def _groups(one: Result, family: str) -> list[str]:
    return one.families if family else [""] * len(one.tasks)


def _whole_mean(values: Sequence[Score]) -> Score:
    return None if None in values else mean(values)


def final(metric: str | None = None) -> Measure:
    """Mean over the family's tasks after the last task; by default of the main metric."""

    def measure(one: Result, family: str) -> Score:
        wanted = metric or MAIN_METRIC.get(family)
        chosen = [scores for scores, group in zip(one.final, _groups(one, family), strict=True) if group == family]
        return _whole_mean([scores.get(wanted or next(iter(scores))) if scores else None for scores in chosen])

    return measure


_final_main = final()


def forgetting(one: Result, family: str) -> Score:
    """FR of the family's tasks, without the task that is last in the whole sequence."""
    if not one.matrix:
        return None
    diagonal, last = ([main(scores) if scores else None for scores in side] for side in (one.diagonal, one.final))
    return forgetting_rate_per_family(diagonal, last, _groups(one, family)).get(family)


def forgetting_since_best(one: Result, family: str) -> Score:
    """F' of the family's tasks; None unless the whole triangle was run."""
    if not one.matrix or any(cell is None for row in one.matrix for cell in row):
        return None
    count = len(one.matrix)
    best: list[Score] = [
        max(cell for row in one.matrix[i : count - 1] if (cell := row[i]) is not None) for i in range(count - 1)
    ]
    lost = difference(best, one.matrix[-1][: count - 1])
    return mean_per([*lost, None], _groups(one, family)).get(family)
