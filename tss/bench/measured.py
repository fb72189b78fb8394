"""Numbers of a grid by setting, method and family, over orders and seeds; every table reads them from here.

A number is None where a task it needs was not run: means are never taken over fewer tasks than were asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tss.bench.collect import Result, Runs, Scores, results
from tss.bench.examples import Columns, interval, resampled
from tss.bench.published import FAMILIES, MAIN_METRIC
from tss.errors import TssError
from tss.report.measures import Interval, Score, deviation, difference, forgetting_rate_per_family, mean, mean_per

# a number of one family in one result; family "" stands for all tasks
Measure = Callable[[Result, str], Score]
Run = tuple[int, int]  # order and seed
Side = tuple[str, str]  # setting and method


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

    def __init__(self, runs: Runs, like: Measured | None = None):
        """like: one of the same grid, with other orders; what it drew for its intervals is used again."""
        self.runs = runs
        self.results = results(runs)
        self.cut = bool(runs.grid["settings"]["first"])
        self._draws: dict[tuple, np.ndarray] = like._draws if like else {}
        self._counts: dict[str, int] = {}
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
        return Over(tuple(values), self.any_order((setting, method)))

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

    def interval(self, left: Side, right: Side, families: Sequence[str]) -> Interval | None:
        """Paired bootstrap over test examples: mean of the families, left minus right. None: not all was run.

        Orders are averaged, where both sides depend on them (in one setting) those that both have. Raises TssError if
        the sides were tested on different examples.
        """
        total = np.zeros(())
        for family in families:
            one, other = (self._tested(side, family) for side in (left, right))
            if left[0] == right[0] and not (self.any_order(left) or self.any_order(right)):
                one, other = ({key: side[key] for key in side if key in one and key in other} for side in (one, other))
            if {task for _, task in one} != {task for _, task in other} or not one:
                return None
            total = total + (self._resampled(left, family, one) - self._resampled(right, family, other)) / len(families)
        return interval(total)

    def any_order(self, side: Side) -> bool:
        """Whether the method is the same in every order."""
        return any(one.shared for one in self.of(*side)) and not self.cut

    def _tested(self, side: Side, family: str) -> dict[tuple[Run, str], Columns]:
        """Columns by run and task of every finished order; of a method that is the same in all, of one."""
        out: dict[tuple[Run, str], Columns] = {}
        seen = set()
        for one in self.of(*side, family):
            if _final_main(one, family) is None or (one.shared and not self.cut and one.seed in seen):
                continue
            seen.add(one.seed)
            for task, columns, group in zip(one.tasks, one.examples, one.families, strict=True):
                if group == family and columns:
                    out[(one.order, one.seed), task] = columns
        return out

    def _resampled(self, side: Side, family: str, found: dict[tuple[Run, str], Columns]) -> np.ndarray:
        """Mean over runs, then over the family's tasks: [1 + ROUNDS]."""
        by_task: dict[str, list[np.ndarray]] = {}
        for (run, task), columns in found.items():
            key = (*side, family, run, task)
            if key not in self._draws:
                self._draws[key] = resampled(task, columns)
            by_task.setdefault(task, []).append(self._draws[key])
            self._counts.setdefault(task, len(next(reversed(columns.values()))))
            if self._counts[task] != len(next(reversed(columns.values()))):
                raise TssError(f"{task} was tested on different examples; a paired interval needs the same ones")
        return np.mean([np.mean(draws, axis=0) for draws in by_task.values()], axis=0)


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


def together(few: int) -> Measure:
    """Share of right answers after the last task, all test sets of the family with fewer than `few` examples as one.

    Where test sets are tiny, a mean of their macro-F1 hangs on the one or two examples of the rarer label.
    """

    def measure(one: Result, family: str) -> Score:
        groups = zip(one.examples, one.tests, one.families, strict=True)
        mine = [(found, count) for found, count, group in groups if group == family]
        small = [found for found, count in mine if count and count < few]
        part = any(count is None for _, count in mine)  # not all of its tasks were run
        if part or not small or any(not found or "gold" not in found for found in small):
            return None
        right = [a == b for found in small for a, b in zip(found["predicted"], found["gold"], strict=True)]  # type: ignore[index]
        return 100 * sum(right) / len(right)

    return measure
