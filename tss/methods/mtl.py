"""MTL (Adapter): all tasks of a group learnt together over one shared adapter, own heads; the upper bound.

Batches of all tasks are mixed in random order; the checkpoint is chosen by the mean dev score. Not continual: it needs
all data at once. `Learner.learn_together` trains it, once a store: training on would change what was learnt.
"""

from __future__ import annotations

from tss.errors import TaskError
from tss.methods.method import Train
from tss.methods.ncl import NclAdapter
from tss.tasks.lesson import Lesson


class MtlAdapter(NclAdapter):
    label = "MTL (Adapter)"
    forgets = False
    order_free = True
    joint = True

    def begin(self, lesson: Lesson, train: Train) -> None:
        if self.weights.numel():
            raise TaskError(f"{self.label} learns all its tasks together, once; use a new store for {lesson.name!r}")
        super().begin(lesson, train)
