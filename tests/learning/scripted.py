"""A training whose dev curve is written down beforehand, to see what the loop makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import nn

from tss.methods.method import Group
from tss.tasks.batches import Batch, Row, Table
from tss.tasks.lesson import Split


class ScriptedLesson:
    """As much of a lesson as the loop asks for: 8 rows, and (score, loss) pairs told one an evaluation."""

    def __init__(self, dev: list[tuple[float | None, float]], rows: int = 8, name: str = "scripted"):
        self.name, self.seed_key = name, f"0/{name}"
        self.head = nn.Identity()
        self.kind = SimpleNamespace(weight=len)
        self.train = Split([Row([1] * (3 + i), [0]) for i in range(rows)], [0] * rows)
        self.valid = self.train
        self._dev = list(dev)
        self.asked = 0
        self.sizes: list[int] = []

    def table(self, split: Split) -> Table:
        return Table(split.rows, 0, True, torch.device("cpu"))

    def batches(self, rows, size) -> list[Batch]:
        return []

    def develop(self, split: Split, batches, forward):
        told = self._dev[min(self.asked, len(self._dev) - 1)]
        self.asked += 1
        self.sizes.append(len(split))
        return told


@dataclass
class ScriptedMethod:
    """Counts its steps in one parameter: with SGD, rate 1 and gradient -1 its value is the number of steps."""

    steady = True
    by_row = False
    joint = False
    losses: dict[int, float] | None = None  # step -> loss in place of the usual one
    gradient: float = -1.0
    lr: float = 1.0

    def __post_init__(self) -> None:
        self.device = torch.device("cpu")
        self.backbone = SimpleNamespace(model=nn.Identity())
        self.value = nn.Parameter(torch.zeros(2))
        self.calls, self.seen = 0, []

    def groups(self) -> list[Group]:
        return [Group([self.value], self.lr, "sgd")]

    def passing(self, batch=None):
        return None

    def loss(self, lesson, batch) -> torch.Tensor:
        step, self.calls = self.calls, self.calls + 1
        self.seen.append(batch.numbers)
        factor = (self.losses or {}).get(step, 1.0)
        return self.gradient * self.value.sum() * factor

    def before_step(self) -> None:
        """Nothing to do."""

    def after_step(self) -> None:
        """Nothing to do."""
