"""Learning a task from start to end: prepare, train, remember, and check that what is frozen stayed frozen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tss.backbones.backbone import hash_tensors
from tss.errors import TrainingError
from tss.learning.loop import Outcome, Progress, Watch, train
from tss.learning.resume import Checkpoints
from tss.learning.schedule import LearningConfig
from tss.methods.method import Kept, Method
from tss.tasks.lesson import Lesson


@dataclass(frozen=True)
class Learnt:
    outcome: Outcome
    kept: Kept
    facts: dict[str, float]
    frozen: str  # hash of everything the method declares frozen, the same before and after


def learn_lessons(
    lessons: Sequence[Lesson],
    method: Method,
    config: LearningConfig,
    watch: Watch | None = None,
    checkpoints: Checkpoints | None = None,
) -> Learnt:
    """Learn one task, or several together if the method is joint.

    Raises TrainingError if a frozen tensor changed: then nothing may be kept.
    """
    before = hash_tensors(method.frozen())
    method.begin(lessons[0], partial(train, config=config))
    seen = lessons if method.joint else method.lessons(lessons[0])
    outcome = train(seen, method, config, watch=watch, checkpoints=checkpoints)
    if watch:
        best = outcome.dev
        watch(Progress(lessons[0].name, outcome.steps, outcome.planned, 0.0, None, best, "remembering"))
    for lesson in lessons:
        method.end(lesson)
    after = hash_tensors(method.frozen())
    if before != after:
        raise TrainingError(
            f"{lessons[0].name}: weights or buffers that {method.label} declares frozen changed while learning; "
            "the task was not kept. This is a defect of the method or the backbone: please report it."
        )
    return Learnt(outcome, method.kept(), method.facts(), after)
