"""SupSup: a binary sub-network of fixed random adapters for each task (Wortsman et al. 2020, arXiv 2006.14769).

    w_hat = w * 1[s > 0]      forward
    dL/ds := dL/dw_hat * w    backward, straight through the step

w is drawn once from a seed; s is drawn afresh (Kaiming) for every task and trained with its head. The task keeps its
gates, one bit a weight. No task influences another. It is TSS without soft-masking, bit for bit ("w/o SM").
The original keeps the top-k of |s| in convolutions and signed constants as weights (`adapter_init=signed_const`).
`signed` (ours): w_hat = w (2 g - 1) in tasks of the kinds it names, and such a task carries a mark beside its gates.
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
    signed_std: float = 0.0  # deviation of the frozen weights there; 0: what suits the backbone's width

    def __post_init__(self) -> None:
        if self.threshold not in THRESHOLDS:
            raise ConfigError(f"threshold {self.threshold!r} is not one of {', '.join(THRESHOLDS)}")
        kinds_in("signed", self.signed)
        if not 0.0 <= self.signed_std < float("inf"):
            raise ConfigError(f"signed_std must be at least 0, not {self.signed_std}")
        if not 0.0 < self.score_lr < float("inf"):
            raise ConfigError(f"score_lr must be above 0, not {self.score_lr}")

    def signed_kinds(self) -> list[str]:
        return kinds_in("signed", self.signed)


def kinds_in(option: str, text: str) -> list[str]:
    """The kinds of task that an option names, with commas between. Raises ConfigError for one that does not exist."""
    kinds = [kind.strip() for kind in text.split(",") if kind.strip()]
    if wrong := [kind for kind in kinds if kind not in KINDS]:
        raise ConfigError(f"{option} names kinds of task out of {', '.join(KINDS)}, not {', '.join(wrong)}")
    return kinds


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
        self.signed_std = config.signed_std or self.bank.suited
        self._turning = 0.0, self.fixed  # a deviation and the weights that have it
        self.signed, self.base = False, self.fixed  # of the task at hand: whether closed gates turn signs; its weights

    def start(self, lesson: Lesson) -> Tensor:
        """The scores a task begins with."""
        return draw_scores(self.bank, lesson.seed_key)

    def begin(self, lesson: Lesson, train: Train) -> None:
        start = self.start(lesson).to(self.device)
        self.signed = lesson.kind.name in self.config.signed_kinds()
        self.base = self._signed_weights(self.signed_std) if self.signed else self.fixed
        self.inherited = open_gates(start, self.config.threshold)
        self.scores = nn.Parameter(start.clone())

    def groups(self) -> list[Group]:
        return [Group([self.scores], self.config.score_lr)]

    def frozen(self) -> dict[str, Tensor]:
        there = {"adapters": self.fixed}
        if self.config.signed_kinds():
            there["adapters.signed"] = self._signed_weights(self.signed_std)
        return {**super().frozen(), **there}

    def effective(self) -> Tensor:
        """The weights of the sub-network at hand, differentiable in the scores. [size]"""
        return gated(self.scores, self.base, self.config.threshold, self.signed)

    def passing(self, batch: Batch | None = None) -> Pass:
        return Pass(self.bank.functions(self.effective()))

    def kept(self) -> Kept:
        return self.as_kept(self.scores.detach(), self.signed)

    def as_kept(self, scores: Tensor, signed: bool) -> Kept:
        """What a task with these scores would keep."""
        gates = open_gates(scores, self.config.threshold).cpu()
        return Kept(gates, {"signed": torch.tensor(self.signed_std, dtype=torch.float64)} if signed else {})

    def recall(self, kept: Kept) -> Pass:
        assert kept.gates is not None
        gates, std = kept.gates.to(self.device), kept.tensors.get("signed")
        if std is None:
            return Pass(self.bank.functions(through(self.fixed, gates)))
        return Pass(self.bank.functions(through(self._signed_weights(float(std)), gates, signed=True)))

    def opened(self, gates: Tensor, tensors: Sequence[Mapping[str, Tensor]]) -> Tensor | None:
        stds = [float(each["signed"]) if "signed" in each else None for each in tensors]
        sizes = {std for std in stds if std is not None}
        weights = through(self.fixed.to(self.bank.dtype), gates)
        if len(sizes) > 1:
            return None
        for std in sizes:
            there = torch.tensor([one is not None for one in stds]).to(self.device)
            turned = through(self._signed_weights(std).to(self.bank.dtype), gates, signed=True)
            weights = torch.where(there[:, None], turned, weights)
        return weights

    def _signed_weights(self, std: float) -> Tensor:
        """The frozen weights with the deviation that a signed task was learnt with."""
        if std == self.bank.std:
            return self.fixed
        if self._turning[0] != std:
            self._turning = std, self.bank.fixed(std).to(self.device)
        return self._turning[1]

    def facts(self) -> dict[str, float]:
        gates = open_gates(self.scores.detach(), self.config.threshold)
        return {"open_gates": float(gates.float().mean()), "flips": 1.0 - overlap(gates, self.inherited)}
