"""How long batches take, learnt from those that ran: the queue's means to know what it may promise."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

KEPT = 0.95  # of the weight of a batch when the next one comes
ASKED = 512  # inputs whose lone time decides the target
TIMES = 1.75  # what an input takes alone, within which it should be answered
KNOWN = 4096  # keys and signs remembered
LEAST = 0.02  # seconds; below this, connections and threads decide, not the model


@dataclass
class _Line:
    """Least squares of seconds over rows, the past fading: seconds = start + row x rows, neither below 0.

    missed: squares of how far the guesses were off.
    """

    weight: float = 0.0
    rows: float = 0.0
    seconds: float = 0.0
    squares: float = 0.0
    products: float = 0.0
    missed: float = 0.0

    def add(self, rows: int, seconds: float) -> None:
        if self.weight:
            start, row = self.fit()
            self.missed = KEPT * self.missed + (seconds - start - row * rows) ** 2
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
    """Keys: what batches are alike in. Signs: what tells the key of an input before it is encoded, the surest first.

    The queue's lock guards it.
    """

    def __init__(self, batch: int):
        self._batch = batch
        self._lines: dict[Hashable, _Line] = {}
        self._fits: dict[Hashable, tuple[float, float]] = {}
        self._signs: dict[Hashable, Hashable] = {}
        self._asked: deque[Hashable] = deque(maxlen=ASKED)
        self._target = math.inf

    def seen(self, signs: Sequence[Hashable], key: Hashable) -> None:
        """An input with these signs turned out to be of this key."""
        for sign in signs:
            _keep(self._signs, sign, key)

    def guess(self, signs: Sequence[Hashable]) -> Hashable:
        """The key of the last input with the same first sign, else with the next; the last sign if all are new."""
        return next((self._signs[sign] for sign in signs if sign in self._signs), signs[-1])

    def learn(self, key: Hashable, rows: int, seconds: float) -> None:
        line = self._lines.get(key) or _Line()
        line.add(rows, seconds)
        _keep(self._lines, key, line)
        _keep(self._fits, key, line.fit())
        lone = sorted(sum(self._fits[one]) for one in self._asked if one in self._fits)
        self._target = max(LEAST, TIMES * lone[int(0.99 * (len(lone) - 1))]) if lone else math.inf

    def work(self, key: Hashable, rows: int) -> float:
        """Seconds for so many inputs of a key; keys never seen are free until they are."""
        start, row = self._fits.get(key, (0.0, 0.0))
        return math.ceil(rows / self._batch) * start + row * rows

    def doubt(self, key: Hashable) -> float:
        """Mean square of the seconds by which guesses for batches of a key were off."""
        line = self._lines.get(key)
        return line.missed / line.weight if line else 0.0

    def asked(self, key: Hashable) -> None:
        """Somebody wants an answer of this key, whether or not it is given."""
        self._asked.append(key)

    def target(self) -> float:
        """`TIMES` what the slowest of lately asked inputs takes alone, one in a hundred aside."""
        return self._target


def _keep(known: dict, key: Hashable, value: object) -> None:
    """Remember the newest `KNOWN`: tasks come and go, a server stays."""
    known.pop(key, None)
    known[key] = value
    if len(known) > KNOWN:
        del known[next(iter(known))]
