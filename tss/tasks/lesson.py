"""A task made ready for one backbone: its rows encoded, its head made, its batches at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tss.tasks.batches import Batch, Row, Table, collate, plan
from tss.tasks.kind import Answer, Kind, ReadingConfig, kind_of
from tss.tasks.task import Example, Task

AT_ONCE = 64  # rows answered together
GPU_TOKENS = 1 << 16  # tokens answered together on a GPU
# forward(lesson, number of the batch, batch) -> logits, loss of the batch
Forward = Callable[["Lesson", int, Batch], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Split:
    """Encoded rows with what they should become. beside: another form of each, for a method that learns from both."""

    rows: list[Row]
    gold: list[Any]
    beside: Sequence[Row] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def lengths(self) -> list[int]:
        return [len(row.ids) for row in self.rows]

    def first(self, count: int) -> Split:
        return self if count >= len(self) else Split(self.rows[:count], self.gold[:count], self.beside[:count])

    def spread(self, count: int) -> Split:
        """At most so many, from all over the split: rows may be sorted by label."""
        step = -(-len(self) // count)
        return self if step < 2 else Split(self.rows[::step], self.gold[::step], self.beside[::step])


@dataclass(frozen=True)
class Member:
    """The sub-network and head of another task, asked beside a task's own. columns: the task's labels among its."""

    head: nn.Module
    added: Callable[[], Any]
    columns: list[int]

    @classmethod
    def of(cls, labels: Sequence[str], head: nn.Module, added: Callable[[], Any], known: Sequence[str]) -> Member:
        """labels: those of the task; known: those of the head. Raises ValueError if it lacks one."""
        return cls(head, added, [tuple(known).index(label) for label in labels])


def in_company(each: Sequence[Tensor]) -> Tensor:
    """Logits of several as those of one: half the chances of the first, half the mean of the others', as logarithms."""
    own, *others = (logits.float().softmax(dim=-1) for logits in each)
    chances = (own + torch.stack(others).mean(dim=0)) / 2 if others else own
    return chances.clamp(min=1e-12).log()


class Lesson:
    """What the loop and a method see of a task. `seed_key` decides the head's first numbers and the batch order."""

    def __init__(self, backbone, kind: Kind, name: str, seed_key: str):
        self.backbone, self.kind, self.name, self.seed_key = backbone, kind, name, seed_key
        self.head = kind.head(backbone.width, seed_key).to(backbone.device)
        self.train, self.valid, self.test = Split([], []), Split([], []), Split([], [])
        self.pair = False  # whether an input is two texts
        self.company: tuple[Member, ...] = ()  # who answers beside it once it is learnt
        self.lift: Tensor | None = None  # added to the logits of a loss, [labels]

    @classmethod
    def of(
        cls,
        task: Task,
        backbone,
        reading: ReadingConfig,
        seed: int,
        kinds: Mapping[str, type[Kind]] | None = None,
    ) -> Lesson:
        """Encode a task. The seed key holds the task's name, not its position, so order changes nothing.

        kinds: how a method wants kinds of task encoded and answered, where not as usual.
        """
        kind = (kinds[task.kind] if kinds else kind_of(task.kind))(task.labels, task.lengths, task.metric, reading)
        lesson = cls(backbone, kind, task.name, f"{seed}/{task.name}")
        lesson.pair = bool(task.pair)
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

    def table(self, split: Split) -> Table:
        """A split on the backbone's device, for batches made again and again."""
        return Table(split.rows, self.backbone.text.pad, self.kind.single, self.backbone.device, split.beside)

    def batches(self, rows: Sequence[Row], size: int) -> Iterator[Batch]:
        """All rows once, in a fixed order, like lengths together."""
        for numbers in plan([len(row.ids) for row in rows], size, None):
            yield self.batch(rows, numbers)

    def logits(self, batch: Batch, added) -> Tensor:
        own = self.kind.logits(self.backbone, self.head, batch, added)
        return in_company([own, *(self.asked(member, batch) for member in self.company)]) if self.company else own

    def asked(self, member: Member, batch: Batch) -> Tensor:
        """A member's logits of this task's labels."""
        return self.kind.logits(self.backbone, member.head, batch, member.added())[..., member.columns]

    def answer(self, batch: Batch, rows: Sequence[Row], added) -> list[Answer]:
        """Answers to the rows of a batch."""
        if self.company:
            return self.kind.read(self.logits(batch, added), rows)
        return self.kind.answers(self.backbone, self.head, batch, rows, added)

    def balance(self, strength: float) -> None:
        """From now on losses are of logits + strength * log(share of the label among the training rows).

        To be right there a rare label needs larger logits; answers are read from the logits alone, so they name it more
        often (logit adjustment, Menon et al. 2021, arXiv 2007.07314). For kinds that choose one label a row.
        """
        shares = self.kind.shares(self.train.rows) if strength else None
        self.lift = None if shares is None else (strength * shares.log()).to(self.backbone.device)

    def loss(self, batch: Batch, added) -> Tensor:
        return self.kind.loss(self._lifted(batch, added), batch)

    def row_losses(self, batch: Batch, added) -> Tensor:
        return self.kind.row_losses(self._lifted(batch, added), batch)

    def _lifted(self, batch: Batch, added) -> Tensor:
        logits = self.logits(batch, added)
        return logits if self.lift is None else logits.float() + self.lift

    @torch.no_grad()
    def answers(self, rows: Sequence[Row], added, size: int = 0) -> list[Answer]:
        """Answers in the order of the rows, `size` at a time (0: as many as suit the device)."""
        size = size or self._at_once(rows)
        out: list[Answer | None] = [None] * len(rows)
        for batch in self.batches(rows, size):
            chosen = [rows[i] for i in batch.numbers]
            found = self.answer(batch, chosen, added)
            for number, answer in zip(batch.numbers, found, strict=True):
                out[number] = answer
        return [answer for answer in out if answer is not None]

    def _at_once(self, rows: Sequence[Row]) -> int:
        """On a GPU about as many tokens at once whatever the length: beam search then takes few, full steps."""
        if self.backbone.device.type != "cuda" or not rows:
            return AT_ONCE
        return max(8, GPU_TOKENS // max(len(row.ids) for row in rows))

    def evaluate(self, split: Split, added, size: int = 0) -> tuple[dict[str, float], list[Answer]]:
        """Metrics in points and the answers behind them."""
        answers = self.answers(split.rows, added, size)
        return self.kind.score([answer.value for answer in answers], split.gold), answers

    @torch.no_grad()
    def develop(self, split: Split, batches: Sequence[Batch], forward: Forward) -> tuple[float | None, float]:
        """Dev score (None where the loss decides) and dev loss, from one pass over the rows.

        batches: all rows of the split. forward(lesson, number, batch): logits and loss of one of them.
        """
        losses, shares = [], []
        out: list[Answer | None] = [None] * len(split)
        for i, batch in enumerate(batches):
            logits, loss = forward(self, i, batch)
            losses.append(loss.clone())  # a recorded pass gives its next result in the same place
            shares.append(self.kind.weight(batch))
            if not self.kind.by_loss:
                found = self.kind.read(logits, [split.rows[i] for i in batch.numbers])
                for number, answer in zip(batch.numbers, found, strict=True):
                    out[number] = answer
        values = torch.stack(losses).tolist() if losses else []
        loss = sum(v * share for v, share in zip(values, shares, strict=True)) / max(sum(shares), 1.0)
        if self.kind.by_loss:
            return None, loss
        answers = [answer.value for answer in out if answer is not None]
        return next(iter(self.kind.score(answers, split.gold).values())), loss
