"""Numbers of continual learning: forgetting, transfer, averages, and what is noise.

Scores are in points. `None` stands for a score that was not run; it is left out of every average, and a measure
of which nothing was run is `None`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Score = float | None


def mean(values: Sequence[Score]) -> Score:
    """Plain mean of what was run."""
    run = [value for value in values if value is not None]
    return sum(run) / len(run) if run else None


def deviation(values: Sequence[Score]) -> Score:
    """Population standard deviation (divided by n) of what was run; 0.0 for a single value."""
    centre = mean(values)
    if centre is None:
        return None
    run = [value for value in values if value is not None]
    return sqrt(sum((value - centre) ** 2 for value in run) / len(run))


def mean_per(values: Sequence[Score], keys: Sequence[Hashable]) -> dict[Any, Score]:
    """Mean of the values under each key (family or group), in the order in which the keys first appear."""
    _same_length(values, keys)
    return {key: mean([v for v, k in zip(values, keys, strict=True) if k == key]) for key in dict.fromkeys(keys)}


def difference(left: Sequence[Score], right: Sequence[Score]) -> list[Score]:
    """left - right, entry by entry; `None` where either was not run."""
    _same_length(left, right)
    return [None if a is None or b is None else a - b for a, b in zip(left, right, strict=True)]


def forgetting_rate(diagonal: Sequence[Score], final: Sequence[Score]) -> Score:
    """FR = 1/(T-1) sum over i<T of (A[i,i] - A[T,i]); negative means that later tasks helped earlier ones.

    diagonal: A[i,i], each task when it was just learnt, in the order learnt.
    final: A[T,i], the same tasks after the last one. A single task gives 0.0.
    """
    lost = difference(diagonal, final)
    return mean(lost[:-1]) if len(lost) > 1 else 0.0


def forgetting_rate_max(matrix: Sequence[Sequence[Score]]) -> Score:
    """F' = 1/(T-1) sum over i<T of max over k=i..T-1 of (A[k,i] - A[T,i]): the loss from the best moment.

    matrix: A[k][i]; only the lower triangle is read. Where FR can be computed, F' >= FR.
    """
    last = len(matrix) - 1
    if last < 1:
        return 0.0
    lost: list[Score] = []
    for task in range(last):
        before = [score for k in range(task, last) if (score := matrix[k][task]) is not None]
        final = matrix[last][task]
        lost.append(max(before) - final if before and final is not None else None)
    return mean(lost)


def forgetting_rate_per_family(
    diagonal: Sequence[Score], final: Sequence[Score], families: Sequence[Hashable]
) -> dict[Any, Score]:
    """The differences of FR averaged within each family, without the task that is last in the whole sequence.

    A family whose only task is that last one has nothing to forget yet: `None`.
    """
    lost = difference(diagonal, final)
    return mean_per([*lost[:-1], None] if lost else [], families)


def forward_transfer(diagonal: Sequence[Score], alone: Sequence[Score]) -> list[Score]:
    """FWT_i = A[i,i] - ONE_i: what the tasks before it gave task i, against learning it alone."""
    return difference(diagonal, alone)


@dataclass(frozen=True)
class Interval:
    """A difference of two scores, and the interval in which it lies over resampled test sets."""

    difference: float
    low: float
    high: float

    @property
    def is_noise(self) -> bool:
        """Whether the interval holds 0, so that the difference may be an accident of the test examples."""
        return self.low <= 0.0 <= self.high


def paired_bootstrap(
    ours: ArrayLike,
    theirs: ArrayLike,
    score: Callable[[Any], float] | None = None,
    rounds: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Interval of score(ours) - score(theirs) when the test examples are drawn anew, the same ones for both.

    ours, theirs: [examples] or [examples, fields], per-example values of two systems in the same example order;
    fields may be counts (tp, fp, fn) or (gold, predicted), with `score` making points of such an array.
    score: by default the mean of the values.

    Raises ValueError if the two have different or no examples.
    """
    import numpy as np

    left, right = np.asarray(ours), np.asarray(theirs)
    if len(left) != len(right) or not len(left):
        raise ValueError(f"a paired interval needs the same examples twice, got {len(left)} and {len(right)}")
    measure = score or (lambda values: float(values.mean()))
    random = np.random.default_rng(seed)
    drawn = np.empty(rounds)
    for i in range(rounds):
        rows = random.integers(0, len(left), len(left))
        drawn[i] = measure(left[rows]) - measure(right[rows])
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(measure(left) - measure(right)), float(low), float(high))


def _same_length(left: Sequence[Any], right: Sequence[Any]) -> None:
    if len(left) != len(right):
        raise ValueError(f"one entry per task is needed on both sides, got {len(left)} and {len(right)}")
