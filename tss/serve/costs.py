"""How long batches take, learnt from those that ran: the queue's means to know what it may promise."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

KEPT = 0.95  # of the weight of a batch when the next one comes
ASKED = 512  # inputs whose lone time decides the target
LEAST = 0.02  # seconds; below this, connections and threads decide, not the model


@dataclass
class _Line:
    """Least squares of seconds over rows, the past fading: seconds = start + row x rows, neither below 0."""

    weight: float = 0.0
    rows: float = 0.0
    seconds: float = 0.0
    squares: float = 0.0
    products: float = 0.0

    def add(self, rows: int, seconds: float) -> None:
        self.weight = KEPT * self.weight + 1
        self.rows = KEPT * self.rows + rows
        self.seconds = KEPT * self.seconds + seconds
        self.squares = KEPT * self.squares + rows * rows
        self.products = KEPT * self.products + rows * seconds

    def fit(self) -> tuple[float, float]:
        """Start and row. Batches of one size say nothing of it: then each row counts whole."""
        rows, seconds = self.rows / self.weight, self.seconds / self.weight
        spread = self.squares / self.weight - rows * rows
        whole = seconds / rows
        row = whole if spread < 0.05 else (self.products / self.weight - rows * seconds) / spread
        row = min(max(row, 0.0), whole)
        return seconds - row * rows, row


class Costs:
    """Keys: what batches are alike in. The queue's lock guards it."""

    def __init__(self, batch: int):
        self._batch = batch
        self._lines: dict[Hashable, _Line] = {}
        self._fits: dict[Hashable, tuple[float, float]] = {}
        self._asked: deque[Hashable] = deque(maxlen=ASKED)
        self._target = math.inf

    def learn(self, key: Hashable, rows: int, seconds: float) -> None:
        line = self._lines.setdefault(key, _Line())
        line.add(rows, seconds)
        self._fits[key] = line.fit()
        lone = sorted(sum(self._fits[one]) for one in self._asked if one in self._fits)
        self._target = max(LEAST, 2 * lone[int(0.99 * (len(lone) - 1))]) if lone else math.inf

    def work(self, held: Mapping[Hashable, int]) -> float:
        """Seconds for so many inputs of each key; keys never seen are free until they are."""
        total = 0.0
        for key, rows in held.items():
            start, row = self._fits.get(key, (0.0, 0.0))
            total += math.ceil(rows / self._batch) * start + row * rows
        return total

    def asked(self, key: Hashable) -> None:
        """Somebody wants an answer of this key, whether or not it is given."""
        self._asked.append(key)

    def target(self) -> float:
        """Twice what the slowest of lately asked inputs takes alone, one in a hundred aside."""
        return self._target
