"""ONE (Adapter): every task alone. A fresh adapter a task over the frozen backbone, weights and biases trained.

Nothing is shared, so nothing is forgotten and nothing is transferred: the control against which transfer is measured.
Init N(0, 0.02^2), near the identity. Kept per task: the whole adapter in float32, 32 times the bits of TSS's gates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from tss.backbones.backbone import Pass
from tss.methods.method import Group, Kept, Method, Train
from tss.tasks.batches import Batch
from tss.tasks.lesson import Lesson


@dataclass(frozen=True)
class TrainedAdapterConfig:
    adapter_lr: float = 1e-3


class OneAdapter(Method):
    label = "ONE (Adapter)"
    order_free = True
    Config: ClassVar[type] = TrainedAdapterConfig

    def __init__(self, backbone, adapters, config, seed):
        super().__init__(backbone, adapters, config, seed)
        self.weights = nn.Parameter(torch.empty(0, device=self.device))  # [size]
        self.biases = nn.Parameter(torch.empty(0, device=self.device))  # [bias_size]

    def begin(self, lesson: Lesson, train: Train) -> None:
        self._set(self.bank.draw(f"one/{lesson.seed_key}", "normal002"), torch.zeros(self.bank.bias_size))

    def _set(self, weights: Tensor, biases: Tensor) -> None:
        self.weights = nn.Parameter(weights.to(self.device).clone())
        self.biases = nn.Parameter(biases.to(self.device).clone())

    def groups(self) -> list[Group]:
        return [Group([self.weights, self.biases], self.config.adapter_lr)]

    def passing(self, batch: Batch | None = None) -> Pass:
        return Pass(self.bank.functions(self.weights, self.biases))

    def kept(self) -> Kept:
        return Kept(tensors={"weights": self.weights.detach().cpu(), "biases": self.biases.detach().cpu()})

    def recall(self, kept: Kept) -> Pass:
        tensors = {name: tensor.to(self.device) for name, tensor in kept.tensors.items()}
        return Pass(self.bank.functions(tensors["weights"], tensors["biases"]))
