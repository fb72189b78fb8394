"""SupSup: a binary sub-network of fixed random adapters for each task (Wortsman et al. 2020, arXiv 2006.14769).

    w_hat = w * 1[s > 0]      forward
    dL/ds := dL/dw_hat * w    backward, straight through the step

w is drawn once from a seed; s is drawn afresh (Kaiming) for every task and trained with its head. The task keeps its
gates, one bit a weight. No task influences another. It is TSS without soft-masking, bit for bit ("w/o SM").
The original keeps the top-k of |s| in convolutions and signed constants as weights (`adapter_init=signed_const`).
Cost: about that of training an adapter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from tss.backbones.backbone import Pass
from tss.errors import ConfigError
from tss.gates.packed import overlap
from tss.gates.scores import THRESHOLDS, draw_scores, gated, open_gates, through
from tss.methods.method import Group, Kept, Method, Train
from tss.tasks.batches import Batch
from tss.tasks.example import KINDS
from tss.tasks.lesson import Lesson


@dataclass(frozen=True)
class GateConfig:
    score_lr: float = 3e-2
    threshold: str = "gt"  # open where s > 0; "ge": s >= 0
    signed: str = ""  # kinds of task, with commas between, whose closed gates turn a weight's sign, not silence it

    def __post_init__(self) -> None:
        if self.threshold not in THRESHOLDS:
            raise ConfigError(f"threshold {self.threshold!r} is not one of {', '.join(THRESHOLDS)}")
        if wrong := [kind for kind in self.signed_kinds() if kind not in KINDS]:
            raise ConfigError(f"signed names kinds of task out of {', '.join(KINDS)}, not {', '.join(wrong)}")
        if not 0.0 < self.score_lr < float("inf"):
            raise ConfigError(f"score_lr must be above 0, not {self.score_lr}")

    def signed_kinds(self) -> list[str]:
        return [kind.strip() for kind in self.signed.split(",") if kind.strip()]


class SupSup(Method):
    label = "SupSup"
    family = "sub-network"
    mixable = True
    by_row = True
    self_contained = True
    order_free = True
    Config: ClassVar[type] = GateConfig

    def __init__(self, backbone, adapters, config, seed):
        super().__init__(backbone, adapters, config, seed)
        self.fixed = self.bank.fixed().to(self.device)  # w [size]
        self.scores = nn.Parameter(torch.empty(0, device=self.device))
        self.signed = False  # whether closed gates of the task at hand turn signs

    def start(self, lesson: Lesson) -> Tensor:
        """The scores a task begins with."""
        return draw_scores(self.bank, lesson.seed_key)

    def begin(self, lesson: Lesson, train: Train) -> None:
        start = self.start(lesson).to(self.device)
        self.signed = lesson.kind.name in self.config.signed_kinds()
        self.inherited = open_gates(start, self.config.threshold)
        self.scores = nn.Parameter(start.clone())

    def groups(self) -> list[Group]:
        return [Group([self.scores], self.config.score_lr)]

    def frozen(self) -> dict[str, Tensor]:
        return {**super().frozen(), "adapters": self.fixed}

    def passing(self, batch: Batch | None = None) -> Pass:
        return Pass(self.bank.functions(gated(self.scores, self.fixed, self.config.threshold, self.signed)))

    def kept(self) -> Kept:
        gates = open_gates(self.scores.detach(), self.config.threshold).cpu()
        return Kept(gates, {"signed": torch.tensor(True)} if self.signed else {})

    def recall(self, kept: Kept) -> Pass:
        assert kept.gates is not None
        return Pass(self.bank.functions(through(self.fixed, kept.gates.to(self.device), "signed" in kept.tensors)))

    def opened(self, gates: Tensor, tensors: Sequence[Mapping[str, Tensor]]) -> Tensor:
        signed = ["signed" in each for each in tensors]
        fixed = self.fixed.to(self.bank.dtype)
        return through(fixed, gates, torch.tensor(signed).to(self.device) if any(signed) else False)

    def facts(self) -> dict[str, float]:
        gates = open_gates(self.scores.detach(), self.config.threshold)
        return {"open_gates": float(gates.float().mean()), "flips": 1.0 - overlap(gates, self.inherited)}
