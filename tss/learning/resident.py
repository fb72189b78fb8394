"""Stored tasks made ready to answer, as many as fit a budget.

A task that is ready holds its gates as bits and its head; its sub-network in full numbers is made when it answers
alone, and kept for the tasks used last. A batch of many tasks makes its own (`answering`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tss.backbones.adapters import Adapters
from tss.backbones.backbone import Backbone, Pass
from tss.errors import DamagedError, TaskError
from tss.gates.packed import pack, unpack_rows
from tss.learning import probes
from tss.methods.method import Kept, Method
from tss.tasks.example import check_labels_known
from tss.tasks.kind import ReadingConfig
from tss.tasks.lesson import Lesson, Member
from tss.tasks.task import Example, Lengths

READY_BYTES = 1 << 30  # bits, heads and whatever else a method keeps of its tasks
FULL_BYTES = {"cpu": 1 << 30, "cuda": 8 << 20}  # sub-networks in full numbers; a GPU makes one in some microseconds


@contextmanager
def sound(name: str) -> Iterator[None]:
    """Turn whatever a record of the wrong content provokes into a DamagedError that names the task."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, AssertionError) as error:
        what = f"{type(error).__name__}: {str(error)[:200]}"
        message = f"task {name!r} cannot answer with what is kept of it ({what}); learn it again"
        raise DamagedError(message, (name,)) from error


@dataclass(frozen=True, eq=False)
class Ready:
    """A stored task with its head loaded and its gates at hand.

    packed: gates as bits on the device, uint8 [count / 8], or None. tensors: what else the method keeps of the task.
    record: what the store says of it, without gates and head. others: whose sub-networks answer beside its own, in the
    order of `lesson.company`.
    """

    lesson: Lesson
    record: Any
    packed: Tensor | None
    count: int
    tensors: dict[str, Tensor]
    method: Method = field(repr=False)
    full: Full | None = field(default=None, repr=False)
    others: tuple[Ready, ...] = ()

    @classmethod
    def of(
        cls, record: Any, backbone: Backbone, method: Method, full: Full | None = None, company: Sequence[Ready] = ()
    ) -> Ready:
        """company: who answers beside it. Raises DamagedError where a record holds something no such task can."""
        with sound(record.name):
            made = cls._of(record, backbone, method, full)
            made.lesson.company = tuple(one.beside(made.lesson.kind.labels) for one in company)
            return replace(made, others=tuple(company))

    def beside(self, labels: Sequence[str]) -> Member:
        """What it is asked through by a task with these labels. Raises ValueError if it lacks one."""
        return Member.of(labels, self.lesson.head, partial(getattr, self, "added"), self.lesson.kind.labels)

    @classmethod
    def _of(cls, record: Any, backbone: Backbone, method: Method, full: Full | None) -> Ready:
        meta = record.meta
        if "pair" not in meta or (record.gates is not None and record.gates.numel() != method.bank.size):
            raise ValueError("it lacks a field or has gates of another number than the adapters")
        kind = method.kinds[meta["kind"]](
            meta["labels"], Lengths(**meta["lengths"]), meta["metric"], ReadingConfig(**meta["reading"])
        )
        lesson = Lesson(backbone, kind, record.name, "")
        parts = {name: tensor for name, tensor in record.tensors.items()}
        lesson.head.load_state_dict({k.removeprefix("head."): v for k, v in parts.items() if k.startswith("head.")})
        lesson.head.eval()
        kept = {k.removeprefix("method."): v for k, v in parts.items() if k.startswith("method.")}
        packed = None if record.gates is None else pack(record.gates).to(backbone.device)
        count = 0 if record.gates is None else record.gates.numel()
        return cls(lesson, replace(record, gates=None, tensors={}), packed, count, kept, method, full)

    @property
    def bytes(self) -> int:
        """Memory it takes while it waits."""
        held = [*self.tensors.values(), *self.lesson.head.parameters(), *self.record.probes.values()]
        return sum(t.nbytes for t in held) + (0 if self.packed is None else self.packed.nbytes)

    @property
    def added(self) -> Pass:
        """Its forward pass, in full numbers."""
        return self.recalled() if self.full is None else self.full.of(self)

    def recalled(self) -> Pass:
        gates = None if self.packed is None else unpack_rows(self.packed[None], self.count)[0]
        with sound(self.record.name):
            return self.method.recall(Kept(gates, self.tensors))

    def evaluate(self, examples: Sequence[Example]) -> dict[str, float]:
        from tss.learning.answering import as_given

        kind, backbone = self.lesson.kind, self.lesson.backbone
        known = dict.fromkeys(kind.labels)
        if not examples:
            raise TaskError(f"task {self.record.name!r}: there are no examples to evaluate on")
        for number, example in enumerate(examples):
            as_given(self, example, f"example {number + 1}")
            try:
                check_labels_known(kind.name, example, known)
            except TaskError as problem:
                raise TaskError(f"task {self.record.name!r}, example {number + 1}: {problem}") from None
        backbone.model.eval()
        rows = [kind.input_row(backbone, example.input) for example in examples]
        answers = self.lesson.answers(rows, self.added)
        return kind.score([answer.value for answer in answers], [example.target for example in examples])

    def compare(self) -> probes.Comparison:
        """Answer the probes again. Raises DamagedError where they are no probes."""
        with sound(self.record.name):
            return probes.compare(self.lesson, self.record.probes, self.added, self.record.meta["environment"])


class Full:
    """Sub-networks in full numbers, of the tasks that answered last."""

    def __init__(self) -> None:
        self._passes: OrderedDict[Ready, tuple[Pass, int]] = OrderedDict()
        self._bytes = 0

    def of(self, ready: Ready) -> Pass:
        if ready not in self._passes:
            made = ready.recalled()
            self._passes[ready] = made, _bytes(made)
            self._bytes += self._passes[ready][1]
            most = FULL_BYTES.get(ready.lesson.backbone.device.type, 0)
            while self._bytes > most and len(self._passes) > 1:
                self._bytes -= self._passes.popitem(last=False)[1][1]
        self._passes.move_to_end(ready)
        return self._passes[ready][0]

    def forget(self, ready: Ready) -> None:
        self._bytes -= self._passes.pop(ready, (None, 0))[1]

    def clear(self) -> None:
        self._passes.clear()
        self._bytes = 0


def _bytes(added: Pass) -> int:
    if isinstance(added.adapters, Adapters):
        return added.adapters.weights.nbytes
    return sum(tensor.nbytes for tensor in (added.parameters or {}).values())


class Resident:
    """The tasks used last. Switching among them costs a look-up, whatever their number."""

    def __init__(self, most_bytes: int = READY_BYTES) -> None:
        self._most = most_bytes
        self._ready: OrderedDict[str, Ready] = OrderedDict()
        self._bytes = 0
        self._full = Full()

    def __len__(self) -> int:
        return len(self._ready)

    def get(
        self,
        file: str,
        read: Callable[[], Any],
        backbone: Backbone,
        method: Method,
        company: Callable[[], Sequence[Ready]] = tuple,
    ) -> Ready:
        if file not in self._ready:
            record = replace(read(), probes={})  # only a proof needs them, and it reads from disk
            ready = Ready.of(record, backbone, method, self._full, company())
            self._ready[file] = ready
            self._bytes += ready.bytes
            while self._bytes > self._most and len(self._ready) > 1:
                self.forget(next(iter(self._ready)))
        self._ready.move_to_end(file)
        return self._ready[file]

    def forget(self, file: str) -> None:
        ready = self._ready.pop(file, None)
        if ready is not None:
            self._bytes -= ready.bytes
            self._full.forget(ready)

    def clear(self) -> None:
        self._ready.clear()
        self._full.clear()
        self._bytes = 0
