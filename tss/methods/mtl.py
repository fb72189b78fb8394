"""MTL and MTL (Adapter): all tasks of a group learnt together, own heads; the upper bound. MTL trains the whole LM,
MTL (Adapter) one shared adapter.

Batches of all tasks are mixed in random order; the checkpoint is chosen by the mean dev score. Not continual: it needs
all data at once. `Learner.learn_together` trains it, once a store: training on would change what was learnt.
"""

from __future__ import annotations

from tss.errors import TaskError
from tss.methods.method import Train
from tss.methods.ncl import Ncl, NclAdapter
from tss.tasks.lesson import Lesson


class MtlAdapter(NclAdapter):
    label = "MTL (Adapter)"
    forgets = False
    order_free = True
    joint = True

    def begin(self, lesson: Lesson, train: Train) -> None:
        _once(self.label, lesson, bool(self.weights.numel()))
        super().begin(lesson, train)


class Mtl(Ncl):
    label = "MTL"
    forgets = False
    order_free = True
    joint = True

    def begin(self, lesson: Lesson, train: Train) -> None:
        _once(self.label, lesson, bool(self.weights))
        super().begin(lesson, train)


def _once(label: str, lesson: Lesson, learnt: bool) -> None:
    if learnt:
        raise TaskError(f"{label} learns all its tasks together, once; use a new store for {lesson.name!r}")
