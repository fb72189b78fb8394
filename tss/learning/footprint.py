"""What a method takes: numbers trained, bytes kept, and work, counted while it learns two toy tasks with one step each.

Work is counted in positions that pass through the backbone's layers: 1 forward; with gradients 2 more, less the share
of weight gradients that a frozen backbone does not need. A task is taken to be trained for EPOCHS epochs, so what is
done in a step counts so often, and what is done before and after counts once. 1.0 is NCL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tss.backbones.backbone import Backbone, Pass
from tss.learning.loop import train
from tss.learning.schedule import LearningConfig
from tss.methods.method import Kept, Method
from tss.tasks.kind import ReadingConfig
from tss.tasks.lesson import Lesson
from tss.tasks.task import Task

EPOCHS = 10
ONE_STEP = LearningConfig(max_steps=1, batch_size=8, eval_steps=1, dev_examples=1, select="last")
TIMES = 16  # how often a text says the same: prompts and questions weigh less on texts of a usual length
ROWS = [(f"the {thing} is {word}, " * TIMES, word) for thing in ("film", "book") for word in ("good", "bad")]
LENGTHS = {"max_input": 64, "max_target": 32}


@dataclass(frozen=True)
class Footprint:
    """trained: numbers, beside the head. per_task: bytes kept for each further task, beside its head; shared: bytes
    kept once. work: relative to NCL, while the second task is learnt."""

    trained: int
    per_task: int
    shared: int
    work: float


class Work:
    """Positions through the layers of a backbone, without (0) and with (1) gradients."""

    def __init__(self, backbone: Backbone):
        self.backbone, self.counts = backbone, [0, 0]
        self.times, self.watched = 1, lambda: True

    @contextmanager
    def counting(self) -> Iterator[None]:
        def passed(module: Any, args: tuple, kwargs: dict) -> None:
            if torch.is_grad_enabled() or self.watched():
                states = args[0] if args else kwargs["hidden_states"]
                self.counts[torch.is_grad_enabled()] += self.times * states.shape[0] * states.shape[1]

        stacks = [self.backbone.model.get_submodule(stack.layers) for stack in self.backbone.layout.stacks]
        layers: list[Any] = [layer for stack in stacks for layer in stack.children()]
        hooks = [layer.register_forward_pre_hook(passed, with_kwargs=True) for layer in layers]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    @contextmanager
    def steps(self, method: Method) -> Iterator[None]:
        """Inside is a training: a step stands for EPOCHS; evaluations, the same for all methods, do not count."""
        self.times, self.watched = EPOCHS, lambda: method.moment is not None
        try:
            yield
        finally:
            self.times, self.watched = 1, lambda: True

    def total(self, weight_share: float) -> float:
        return self.counts[0] + self.counts[1] * (2 + weight_share)


def measure(make: Callable[[], Method], backbone: Backbone) -> Footprint:
    """Let a method learn two toy tasks. Raises TssError where it cannot work on this backbone."""
    method, work = make(), Work(backbone)
    lessons = [_lesson(backbone, name, method.kinds) for name in ("first", "second")]
    plain, bare = Work(backbone), _lesson(backbone, "plain", None)
    with plain.counting(), torch.no_grad():
        bare.logits(bare.batch(bare.train.rows), Pass())
    before: dict[str, Tensor] = {}
    for part in [lessons] if method.joint else [[lesson] for lesson in lessons]:
        before, work.counts = method.shared(), [0, 0]
        with work.counting():
            _learn(method, part, work)
    trained = sum(p.numel() for group in method.groups() for p in group.parameters)
    growth = 0 if method.joint else max(_bytes(method.shared()) - _bytes(before), 0)
    usual = 3 * EPOCHS * plain.counts[0] * (len(lessons) if method.joint else 1)
    size = sum(p.numel() for p in backbone.model.parameters())
    return Footprint(
        trained=trained,
        per_task=_kept(method.kept()) + growth,
        shared=_bytes(method.shared()) - growth,
        work=work.total(min(trained / size, 1.0)) / usual,
    )


def _learn(method: Method, lessons: Sequence[Lesson], work: Work) -> None:
    def inner(lessons: Sequence[Lesson], method: Method, **changed: Any) -> Any:
        kept = {key: value for key, value in changed.items() if key not in ("epochs", "max_steps", "min_steps")}
        with work.steps(method):
            steps = 1 if method.joint else len(lessons)  # one of each lesson; a joint method has so many for each
            return train(lessons, method, replace(ONE_STEP, max_steps=steps, **kept))

    method.begin(lessons[0], inner)
    inner(lessons if method.joint else method.lessons(lessons[0]), method)
    for lesson in lessons:
        method.end(lesson)


def _lesson(backbone: Backbone, name: str, kinds: Any) -> Lesson:
    task = Task.from_lists(name, "classification", ROWS, ROWS, lengths=LENGTHS)
    return Lesson.of(task, backbone, ReadingConfig(), 0, kinds)


def _kept(kept: Kept) -> int:
    return _bytes(kept.tensors) + (0 if kept.gates is None else -(-kept.gates.numel() // 8))


def _bytes(tensors: dict[str, Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors.values())
