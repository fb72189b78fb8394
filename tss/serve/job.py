"""One input between its acceptance and its answer."""

from __future__ import annotations

import time
from collections.abc import Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from tss.learning.answering import Question
from tss.serve.asked import Asked
from tss.store import TaskEntry


@dataclass
class Job:
    """One input on its way. `kind`: of its task; `encoding`: seconds that its encoding took; `key`: its bucket, guessed
    until it is encoded."""

    asked: Asked
    where: str
    kind: str
    accepted: float = field(default_factory=time.monotonic)
    answer: Future = field(default_factory=Future)
    question: Question | None = None
    entry: TaskEntry | None = None
    encoding: float = 0.0
    key: Hashable = None

    @property
    def signs(self) -> tuple[Hashable, Hashable]:
        """What its bucket is guessed by: the task or else its kind, and the length to a power of two."""
        length = max(self.asked.size, 32).bit_length()
        return (self.kind, self.asked.task, length), (self.kind, length)

    @property
    def bucket(self) -> Any:
        """Jobs of equal buckets share a batch: same form, lengths up to the same power of two."""
        assert self.question is not None
        return self.question.form, max(len(self.question.row.ids) - 1, 15).bit_length()
