"""What a learnt task leaves in the store, and what is told of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch import Tensor

from tss.learning import probes
from tss.learning.about import ROWS, about
from tss.learning.resident import Ready
from tss.learning.session import Learnt, describe
from tss.methods.method import Companion, Earlier, Kept, Method, Remembered
from tss.results import Learned
from tss.store import Store, TaskEntry, TaskRecord
from tss.tasks.lesson import Lesson
from tss.tasks.task import Task


def earlier(store: Store) -> list[Earlier]:
    """The newest versions of a store's tasks, for methods that look back."""
    index = store.index()
    entries = [index.entry(name) for name in index.names()]
    return [Earlier(one.name, one.summary["kind"], partial(_remembered, store, one.name)) for one in entries]


def _remembered(store: Store, name: str) -> Remembered:
    record = store.read(name)
    return Remembered(
        Kept(record.gates, _under("method.", record.tensors)),
        _under("head.", record.tensors),
        tuple(record.meta["labels"]),
    )


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def asked_again(record: TaskRecord, ready: Ready) -> TaskRecord:
    """The record with the answers that the task gives to its probes now, here."""
    asked = {name: tensor for name, tensor in record.probes.items() if name.startswith("input.")}
    outputs = probes.answer(ready.lesson, asked, ready.added)
    backbone = ready.lesson.backbone
    here = probes.environment(backbone.device, backbone.model.dtype)
    meta = {**record.meta, "probe_hash": probes.digest(outputs), "environment": here}
    return replace(record, meta=meta, probes={**asked, **outputs})


def recorded(companion: Companion, like: TaskRecord) -> TaskRecord:
    """A companion as a task that is asked as `like` is, one of those that it is for."""
    what = companion.what
    told = {"kind": like.meta["kind"], "labels": len(what.labels), "scores": {}}
    meta = {**like.meta, **told, "labels": list(what.labels), "facts": {}, "curve": [], "remarks": []}
    head = {f"head.{name}": tensor.float() for name, tensor in what.head.items()}
    kept = {f"method.{name}": tensor for name, tensor in what.kept.tensors.items()}
    return TaskRecord(companion.name, meta, what.kept.gates, {**head, **kept}, like.probes, told)


@dataclass(frozen=True)
class Keepsake:
    """A task just learnt: the record the store will keep, and what it is told from."""

    task: Task
    lesson: Lesson
    learnt: Learnt
    record: TaskRecord
    answers: tuple[Any, ...]  # to the split it was scored on

    @classmethod
    def of(cls, task: Task, lesson: Lesson, learnt: Learnt, method: Method, config: dict[str, Any]) -> Keepsake:
        """Score the task (on test, or valid where there is none), make its probes, and put all it keeps together."""
        added = method.recall(learnt.kept)
        split = lesson.test if len(lesson.test) else lesson.valid
        scores, answers = lesson.evaluate(split, added)
        shown, output_hash = probes.make(lesson, split.rows, added)
        meta = describe(task, lesson, learnt, config) | {"scores": scores, "probe_hash": output_hash}
        summary = {"kind": task.kind, "labels": len(task.labels), "scores": scores, **learnt.facts}
        head = {f"head.{k}": v.detach().cpu() for k, v in lesson.head.state_dict().items()}
        kept = {f"method.{k}": v for k, v in learnt.kept.tensors.items()}
        kept |= about(lesson.backbone, [lesson.kind.input_row(lesson.backbone, e.input) for e in task.train[:ROWS]])
        record = TaskRecord(task.name, meta, learnt.kept.gates, {**head, **kept}, shown, summary)
        return cls(task, lesson, learnt, record, tuple(answer.value for answer in answers))

    def told(self, entry: TaskEntry) -> Learned:
        """What `learn` answers, once the store has it as `entry`."""
        outcome, meta = self.learnt.outcome, self.record.meta
        return Learned(
            version=entry.version,
            scores=meta["scores"],
            bytes=entry.bytes,
            gate_bytes=entry.gate_bytes,
            facts=meta["facts"],
            name=entry.name,
            steps=outcome.steps,
            seconds=outcome.seconds,
            open_gates=self.learnt.facts.get("open_gates"),
            curve=outcome.curve,
            warnings=(*self.task.warnings, *self.learnt.remarks(self.lesson)),
            resumed=outcome.resumed,
            answers=self.answers,
        )
