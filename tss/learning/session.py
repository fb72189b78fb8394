"""Learning a task from start to end: prepare, train, remember, and check that what is frozen stayed frozen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any

from tss.backbones.backbone import hash_tensors
from tss.errors import TrainingError
from tss.learning import probes
from tss.learning.loop import Training, train
from tss.learning.parallel import ALONE, Ranks
from tss.learning.progress import Outcome, Progress, Watch
from tss.learning.resume import Checkpoints
from tss.learning.schedule import LearningConfig
from tss.methods.method import Kept, Method, Train
from tss.tasks.lesson import Lesson
from tss.tasks.task import Task


@dataclass(frozen=True)
class Learnt:
    outcome: Outcome
    kept: Kept
    facts: dict[str, float]
    asked_pieces: int
    frozen: str  # hash of everything the method declares frozen, the same before and after
    beside: float  # seconds of what the method did before the first step and after the last: probes, races, importance

    def remarks(self, lesson: Lesson) -> list[str]:
        """What a user should know about the task just learnt."""
        out = []
        share = self.facts.get("open_gates")
        if share in (0.0, 1.0):
            what = "empty: all gates are closed" if share == 0.0 else "full: all gates are open"
            out.append(f"the sub-network is {what}")
        if self.outcome.skipped:
            out.append(f"{self.outcome.skipped} steps were skipped because loss or gradient was not a number")
        if self.outcome.pieces > self.asked_pieces:
            out.append(f"memory ran out: batches were computed in {self.outcome.pieces} pieces, with the same result")
        out += self.outcome.troubles
        cut = sum(row.cut for row in lesson.train.rows)
        if cut:
            limit = lesson.kind.limit(lesson.backbone)
            out.append(f"{cut} of {len(lesson.train)} training inputs were longer than {limit} tokens and were cut")
        return out


def learn_lessons(
    lessons: Sequence[Lesson],
    method: Method,
    config: LearningConfig,
    watch: Watch | None = None,
    checkpoints: Checkpoints | None = None,
    ranks: Ranks = ALONE,
) -> Learnt:
    """Learn one task, or several together if the method is joint.

    Raises TrainingError if a frozen tensor changed: then nothing may be kept.
    """
    if ranks.count > 1:
        method.load_shared(ranks.same(method.shared()))
    before = hash_tensors(method.frozen())
    began = perf_counter()
    method.begin(lessons[0], _inner(config, ranks))
    beside = perf_counter() - began
    seen = lessons if method.joint else method.lessons(lessons[0])
    outcome = train(seen, method, config, watch=watch, checkpoints=checkpoints, ranks=ranks)
    if watch:
        best = outcome.dev
        watch(Progress(lessons[0].name, outcome.steps, outcome.planned, 0.0, None, best, "remembering"))
    began = perf_counter()
    for lesson in lessons:
        method.end(lesson)
    beside += perf_counter() - began
    after = hash_tensors(method.frozen())
    if before != after:
        raise TrainingError(
            f"{lessons[0].name}: weights or buffers that {method.label} declares frozen changed while learning; "
            "the task was not kept. This is a defect of the method or the backbone: please report it."
        )
    return Learnt(outcome, method.kept(), method.facts(), config.accumulation, after, beside)


def _inner(config: LearningConfig, ranks: Ranks = ALONE) -> Train:
    """The loop for a method's own trainings: with the options of the run, but for those that it names."""

    def inner(lessons: Sequence[Lesson], method: Method, **changed: Any) -> Outcome:
        return train(lessons, method, replace(config, **changed), ranks=ranks)

    return inner


def estimate(lesson: Lesson, method: Method, config: LearningConfig) -> dict[str, Any]:
    """What learning would take, from the plan and three timed steps. The method given is used up."""
    few: dict[str, Any] = {"max_steps": 3, "min_steps": 1, "dev_examples": 1}
    before = 0

    def inner(lessons: Sequence[Lesson], method: Method, **changed: Any) -> Outcome:
        nonlocal before
        before += Training(lessons, method, replace(config, **changed), None, None).total
        return _inner(config)(lessons, method, **{**changed, **few})

    method.begin(lesson, inner)
    whole = Training([lesson], method, config, None, None)
    timed = Training([lesson], method, replace(config, **few), None, None).run()
    gates = method.kept().gates
    return {
        "task": lesson.name,
        "method": method.label,
        "steps": whole.total,
        "least_steps": min(config.min_steps, whole.total),
        "steps_before": before,  # of races, probes and the like
        "seconds": round(timed.seconds / timed.steps * (before + whole.total), 1),
        "trainable": sum(p.numel() for p in whole.parameters),
        "gate_bytes": 0 if gates is None else (gates.numel() + 7) // 8,
        "head_bytes": 4 * sum(p.numel() for p in lesson.head.parameters()),
        "cut_examples": sum(row.cut for row in lesson.train.rows),
    }


def describe(task: Task, lesson: Lesson, learnt: Learnt, config: dict[str, Any]) -> dict[str, Any]:
    """What a task's record says of it, beside tensors and scores; enough to answer with it in another process."""
    backbone = lesson.backbone
    took = {"seconds": learnt.outcome.seconds, "seconds_beside": learnt.beside}
    return {
        "kind": task.kind,
        "labels": list(task.labels),
        "lengths": asdict(task.lengths),
        "metric": task.metric,
        "family": task.family,
        "pair": task.pair,
        "reading": asdict(lesson.kind.reading),
        "config": config,
        "remarks": learnt.remarks(lesson),
        "facts": {**learnt.facts, "steps": learnt.outcome.steps, **took},
        "curve": learnt.outcome.curve,
        "task_hash": task.fingerprint(),
        "frozen_hash": learnt.frozen,
        "environment": probes.environment(backbone.device, backbone.model.dtype),
    }
