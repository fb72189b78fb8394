"""A task made ready for one backbone: its rows encoded, its head made, its batches at hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tss.tasks.batches import Batch, Row, collate, plan
from tss.tasks.kind import Answer, Kind, ReadingConfig, kind_of
from tss.tasks.task import Example, Task


@dataclass(frozen=True)
class Split:
    """Encoded rows with what they should become."""

    rows: list[Row]
    gold: list[Any]

    def __len__(self) -> int:
        return len(self.rows)

    def lengths(self) -> list[int]:
        return [len(row.ids) for row in self.rows]

    def first(self, count: int) -> Split:
        return self if count >= len(self) else Split(self.rows[:count], self.gold[:count])


class Lesson:
    """What the loop and a method see of a task. `seed_key` decides the head's first numbers and the batch order."""

    def __init__(self, backbone, kind: Kind, name: str, seed_key: str):
        self.backbone, self.kind, self.name, self.seed_key = backbone, kind, name, seed_key
        self.head = kind.head(backbone.width, seed_key).to(backbone.device)
        self.train, self.valid, self.test = Split([], []), Split([], []), Split([], [])

    @classmethod
    def of(cls, task: Task, backbone, reading: ReadingConfig, seed: int) -> Lesson:
        """Encode a task. The seed key holds the task's name, not its position, so order changes nothing."""
        kind = kind_of(task.kind)(task.labels, task.lengths, task.metric, reading)
        lesson = cls(backbone, kind, task.name, f"{seed}/{task.name}")
        splits = (task.train, task.valid or task.train, task.test)  # a task made by hand may lack validation examples
        lesson.train, lesson.valid, lesson.test = (lesson.encode(split) for split in splits)
        return lesson

    def encode(self, examples: Sequence[Example]) -> Split:
        rows = [self.kind.row(self.backbone, example.input, example.target) for example in examples]
        return Split(rows, [example.target for example in examples])

    def batch(self, rows: Sequence[Row], numbers: Sequence[int] = (), length: int = 0) -> Batch:
        """Padded, on the backbone's device."""
        chosen = numbers or range(len(rows))
        batch = collate([rows[i] for i in chosen], list(chosen), self.backbone.text.pad, self.kind.single, length)
        return batch.to(self.backbone.device)

    def batches(self, rows: Sequence[Row], size: int) -> Iterator[Batch]:
        """All rows once, in a fixed order, like lengths together."""
        for numbers in plan([len(row.ids) for row in rows], size, None):
            yield self.batch(rows, numbers)

    def logits(self, batch: Batch, added) -> Tensor:
        return self.kind.logits(self.backbone, self.head, batch, added)

    def loss(self, batch: Batch, added) -> Tensor:
        return self.kind.loss(self.logits(batch, added), batch)

    def row_losses(self, batch: Batch, added) -> Tensor:
        return self.kind.row_losses(self.logits(batch, added), batch)

    @torch.no_grad()
    def answers(self, rows: Sequence[Row], added, size: int = 64) -> list[Answer]:
        """Answers in the order of the rows."""
        out: list[Answer | None] = [None] * len(rows)
        for batch in self.batches(rows, size):
            chosen = [rows[i] for i in batch.numbers]
            found = self.kind.answers(self.backbone, self.head, batch, chosen, added)
            for number, answer in zip(batch.numbers, found, strict=True):
                out[number] = answer
        return [answer for answer in out if answer is not None]

    def evaluate(self, split: Split, added, size: int = 64) -> tuple[dict[str, float], list[Answer]]:
        """Metrics in points and the answers behind them."""
        answers = self.answers(split.rows, added, size)
        return self.kind.score([answer.value for answer in answers], split.gold), answers

    @torch.no_grad()
    def develop(self, split: Split, added, size: int = 64) -> tuple[float | None, float]:
        """Dev score (None where the loss decides) and dev loss, from one pass over the rows."""
        total, weight = 0.0, 0.0
        out: list[Answer | None] = [None] * len(split)
        for batch in self.batches(split.rows, size):
            logits = self.logits(batch, added)
            share = self.kind.weight(batch)
            total += float(self.kind.loss(logits, batch)) * share
            weight += share
            if not self.kind.by_loss:
                found = self.kind.read(logits, [split.rows[i] for i in batch.numbers])
                for number, answer in zip(batch.numbers, found, strict=True):
                    out[number] = answer
        loss = total / max(weight, 1.0)
        if self.kind.by_loss:
            return None, loss
        values = [answer.value for answer in out if answer is not None]
        return next(iter(self.kind.score(values, split.gold).values())), loss
