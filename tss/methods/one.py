"""ONE and ONE (Adapter): every task alone. Nothing is shared, so nothing is forgotten and nothing is transferred: the
control against which transfer is measured.

ONE trains the whole LM, from its pretrained weights for every task: embeddings (with the tied LM head), norms, all.
Kept per task: the whole LM in float32. What is trained is a copy; the backbone itself stays pretrained.
ONE (Adapter) trains a fresh adapter a task over the frozen backbone, weights and biases. Init N(0, 0.02^2), near the
identity. Kept per task: the whole adapter in float32, 32 times the bits of TSS's gates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from tss.backbones.backbone import Pass
from tss.errors import ConfigError
from tss.methods.method import Group, Kept, Method, Train
from tss.tasks.batches import Batch
from tss.tasks.lesson import Lesson


@dataclass(frozen=True)
class TrainedAdapterConfig:
    adapter_lr: float = 1e-3


class OneAdapter(Method):
    label = "ONE (Adapter)"
    family = "bounds"
    mixable = True
    self_contained = True
    order_free = True
    Config: ClassVar[type] = TrainedAdapterConfig

    def __init__(self, backbone, adapters, config, seed):
        super().__init__(backbone, adapters, config, seed)
        self.weights = nn.Parameter(torch.empty(0, device=self.device))  # [size]
        self.biases = nn.Parameter(torch.empty(0, device=self.device))  # [bias_size]

    def begin(self, lesson: Lesson, train: Train) -> None:
        self._set(self.bank.near_identity(f"one/{lesson.seed_key}"), torch.zeros(self.bank.bias_size))

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


@dataclass(frozen=True)
class TrainedLmConfig:
    lm_lr: float = 5e-5

    def __post_init__(self) -> None:
        if not 0.0 < self.lm_lr < float("inf"):
            raise ConfigError(f"lm_lr must be above 0, not {self.lm_lr}")


class One(Method):
    label = "ONE"
    family = "bounds"
    self_contained = True
    order_free = True
    trains_backbone = True
    Config: ClassVar[type] = TrainedLmConfig

    def __init__(self, backbone, adapters, config, seed):
        super().__init__(backbone, adapters, config, seed)
        self.weights: dict[str, nn.Parameter] = {}  # by the backbone's names; empty before the first task

    @property
    def size(self) -> int:
        return sum(p.numel() for p in self.backbone.model.parameters())

    def begin(self, lesson: Lesson, train: Train) -> None:
        self._set(dict(self.backbone.model.named_parameters()))

    def _set(self, tensors: Mapping[str, Tensor]) -> None:
        self.weights = {name: nn.Parameter(t.detach().to(self.device).clone()) for name, t in tensors.items()}

    def groups(self) -> list[Group]:
        return [Group(list(self.weights.values()), self.config.lm_lr)]

    def passing(self, batch: Batch | None = None) -> Pass:
        return Pass(parameters=self.weights)

    def kept(self) -> Kept:
        return Kept(tensors={name: p.detach().cpu() for name, p in self.weights.items()})

    def recall(self, kept: Kept) -> Pass:
        return Pass(parameters={name: tensor.to(self.device) for name, tensor in kept.tensors.items()})
