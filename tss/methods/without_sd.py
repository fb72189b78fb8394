"""Ablation "w/o SD": no gates, no scores. The adapter's weights are trained directly, one set for all tasks, with
TSS's importance and soft mask on the weights instead of the scores. Nothing is saved per task, so it forgets.

    w <- w - (1 - I_acc) * step,   I from dL/dw

Biases stay at zero, as in TSS: unprotected, they would be a second way to forget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tss.backbones.backbone import Pass
from tss.gates import importance as impt
from tss.gates.softmask import SoftMask
from tss.methods.method import Group, Train
from tss.methods.ncl import NclAdapter
from tss.methods.one import TrainedAdapterConfig
from tss.methods.tss import MaskConfig
from tss.tasks.batches import Batch
from tss.tasks.lesson import Lesson


@dataclass(frozen=True)
class MaskedAdapterConfig(TrainedAdapterConfig, MaskConfig):
    """Both parts' options."""


class WithoutSubnetworks(NclAdapter):
    label = "w/o SD"
    family = "regularisation"
    Config: ClassVar[type] = MaskedAdapterConfig

    def __init__(self, backbone, adapters, config, seed):
        super().__init__(backbone, adapters, config, seed)
        self.importance: Tensor | None = None
        self._mask: SoftMask | None = None

    def begin(self, lesson: Lesson, train: Train) -> None:
        super().begin(lesson, train)
        self._mask = None if self.importance is None else SoftMask(self.importance, self.config.softmask_apply)

    def groups(self) -> list[Group]:
        rule = "sgd" if self.config.softmask_apply == "sgd" else "adamw"
        return [Group([self.weights], self.config.adapter_lr, rule)]

    def passing(self, batch: Batch | None = None) -> Pass:
        return Pass(self.bank.functions(self.weights))

    def before_step(self) -> None:
        if self._mask is not None:
            self._mask.before_step(self.weights)

    def after_step(self) -> None:
        if self._mask is not None:
            self._mask.after_step(self.weights)

    def end(self, lesson: Lesson) -> None:
        c = self.config
        weights, ones = self.weights.detach(), torch.ones_like(self.weights)
        batches = lesson.batches(lesson.train.rows, c.impt_batch)
        raw = impt.raw_importance(c.impt_reduce, self.bank, weights, ones, batches, lesson.row_losses)
        found = impt.normalise(raw, self.bank, c.impt_norm, c.impt_unit, c.impt_heat)
        self.importance = impt.accumulate(found, self.importance)

    def shared(self) -> dict[str, Tensor]:
        return {**super().shared(), **({} if self.importance is None else {"importance": self.importance})}

    def load_shared(self, tensors: dict[str, Tensor]) -> None:
        super().load_shared(tensors)
        self.importance = tensors["importance"].to(self.device) if "importance" in tensors else None
