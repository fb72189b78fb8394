"""Stored tasks made ready to answer, a bounded number of them at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tss.backbones.backbone import Backbone, Pass
from tss.errors import TaskError
from tss.learning import probes
from tss.methods.method import Kept, Method
from tss.tasks.example import check_labels_known
from tss.tasks.kind import ReadingConfig, kind_of
from tss.tasks.lesson import Lesson
from tss.tasks.task import Example, Lengths, as_input


@dataclass(frozen=True)
class Ready:
    """A stored task with its head loaded and its sub-network at hand. `record`: what the store keeps of it."""

    lesson: Lesson
    added: Pass
    record: Any

    @classmethod
    def of(cls, record: Any, backbone: Backbone, method: Method) -> Ready:
        meta = record.meta
        kind = kind_of(meta["kind"])(
            meta["labels"], Lengths(**meta["lengths"]), meta["metric"], ReadingConfig(**meta["reading"])
        )
        lesson = Lesson(backbone, kind, record.name, "")
        parts = {name: tensor for name, tensor in record.tensors.items()}
        lesson.head.load_state_dict({k.removeprefix("head."): v for k, v in parts.items() if k.startswith("head.")})
        lesson.head.eval()
        kept = {k.removeprefix("method."): v for k, v in parts.items() if k.startswith("method.")}
        return cls(lesson, method.recall(Kept(record.gates, kept)), record)

    def answers(self, values: Sequence[Any], numbers: Sequence[int]) -> list[dict[str, Any]]:
        """One dict an input. `numbers`: where each stands in the caller's list, for messages."""
        given = []
        for value, number in zip(values, numbers, strict=True):
            try:
                given.append(as_input(self.record.meta["kind"], value, self.record.meta["pair"]))
            except TaskError as problem:
                raise TaskError(f"task {self.record.name!r}, input {number + 1}: {problem}") from None
        kind, backbone = self.lesson.kind, self.lesson.backbone
        backbone.model.eval()
        rows = [kind.input_row(backbone, one) for one in given]
        found = self.lesson.answers(rows, self.added)
        return [kind.told(answer, one) for answer, one in zip(found, given, strict=True)]

    def evaluate(self, examples: Sequence[Example]) -> dict[str, float]:
        kind, backbone = self.lesson.kind, self.lesson.backbone
        known = dict.fromkeys(kind.labels)
        if not examples:
            raise TaskError(f"task {self.record.name!r}: there are no examples to evaluate on")
        for number, example in enumerate(examples):
            try:
                as_input(kind.name, example, self.record.meta["pair"])
                check_labels_known(kind.name, example, known)
            except TaskError as problem:
                raise TaskError(f"task {self.record.name!r}, example {number + 1}: {problem}") from None
        backbone.model.eval()
        rows = [kind.input_row(backbone, example.input) for example in examples]
        answers = self.lesson.answers(rows, self.added)
        return kind.score([answer.value for answer in answers], [example.target for example in examples])

    def compare(self) -> probes.Comparison:
        return probes.compare(self.lesson, self.record.probes, self.added, self.record.meta["environment"])


class Resident:
    """The tasks used last. Switching among them costs a look-up, whatever their number."""

    def __init__(self, most: int):
        self._most = most
        self._ready: OrderedDict[str, Ready] = OrderedDict()

    def get(self, file: str, read: Callable[[], Any], backbone: Backbone, method: Method) -> Ready:
        if file not in self._ready:
            self._ready[file] = Ready.of(read(), backbone, method)
            while len(self._ready) > self._most:
                self._ready.popitem(last=False)
        self._ready.move_to_end(file)
        return self._ready[file]

    def forget(self, file: str) -> None:
        self._ready.pop(file, None)

    def clear(self) -> None:
        self._ready.clear()
