"""EWC: a quadratic pull towards what earlier tasks learnt, weighted by the diagonal Fisher information
(Kirkpatrick et al. 2017, arXiv 1612.00796), on the whole LM.

    L_t + lambda/2 * sum_i F_i (theta_i - theta*_i)^2        heads excluded, lambda = 5000
    F_new = (1/N) sum_b B_b * (gradient of the mean loss of batch b)^2      true labels, no penalty in that loss

`ewc_accum=mean`  F <- (F_new + t F) / (t + 1), theta* <- theta after task t (from 0): one penalty, one anchor.
`ewc_accum=sum`   one penalty a task, each with its own F and theta*, as originally. A sum of parabolas is a parabola
                  (plus a constant, which is left out), so it is kept as one: F <- F + F_new, theta* <- the F-weighted
                  mean of all anchors.
`fisher=batch`    B = 8 (2 for generation), as in the authors' code; `fisher=sample` is B = 1, the exact diagonal.

Shared: the LM, F and theta* (3x the LM; with "mean" theta* is the LM itself: 2x). Kept per task: its head.
Cost: NCL and one backward pass over the task's data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tss.backbones.recorded import Recorder
from tss.backbones.repeatable import gradients
from tss.errors import ConfigError
from tss.methods.method import Train
from tss.methods.ncl import Ncl
from tss.methods.one import TrainedLmConfig
from tss.tasks.batches import Batch, plan
from tss.tasks.lesson import Lesson


@dataclass(frozen=True)
class EwcConfig(TrainedLmConfig):
    ewc_lambda: float = 5000.0
    ewc_accum: str = "mean"
    fisher: str = "batch"
    fisher_batch: int = 8
    fisher_batch_generation: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ewc_accum not in ("mean", "sum"):
            raise ConfigError(f"ewc_accum {self.ewc_accum!r} is not one of mean, sum")
        if self.fisher not in ("batch", "sample"):
            raise ConfigError(f"fisher {self.fisher!r} is not one of batch, sample")
        if not self.ewc_lambda >= 0:
            raise ConfigError(f"ewc_lambda must be at least 0, not {self.ewc_lambda}")
        if min(self.fisher_batch, self.fisher_batch_generation) < 1:
            raise ConfigError("fisher_batch and fisher_batch_generation must be at least 1")


class Ewc(Ncl):
    label = "EWC"
    family = "regularisation"
    Config: ClassVar[type] = EwcConfig

    def __init__(self, backbone, adapters, config, seed):
        super().__init__(backbone, adapters, config, seed)
        self.fisher: dict[str, Tensor] = {}  # F
        self.anchor: dict[str, Tensor] = {}  # theta*
        self.learnt = 0  # tasks behind F

    def begin(self, lesson: Lesson, train: Train) -> None:
        super().begin(lesson, train)
        if self.fisher and self.config.ewc_accum == "mean":
            self.anchor = {name: p.detach().clone() for name, p in self.weights.items()}

    def loss(self, lesson: Lesson, batch: Batch) -> Tensor:
        loss = super().loss(lesson, batch)
        return loss + self.penalty() if self.fisher else loss

    def penalty(self) -> Tensor:
        """lambda/2 * sum F (theta - theta*)^2"""
        # Strung together: one operation each instead of one for each of some hundred matrices.
        fisher, now, anchor = (_strung(each, self.fisher) for each in (self.fisher, self.weights, self.anchor))
        return self.config.ewc_lambda / 2 * (fisher * (now - anchor).square()).sum()

    def end(self, lesson: Lesson) -> None:
        new = self._fisher(lesson)
        for name, p in self.weights.items():
            old = self.fisher.get(name, torch.zeros_like(new[name]))
            if self.config.ewc_accum == "mean":
                self.fisher[name] = (new[name] + self.learnt * old) / (self.learnt + 1)
            else:
                both = old + new[name]
                anchor = self.anchor.get(name, p.detach())
                share = torch.where(both > 0, new[name] / both, 1.0)
                self.anchor[name] = torch.lerp(anchor, p.detach(), share)
                self.fisher[name] = both
        self.learnt += 1

    def _fisher(self, lesson: Lesson) -> dict[str, Tensor]:
        """F of the task at its best state, dropout off, in float32."""
        c = self.config
        names, weights = list(self.weights), list(self.weights.values())
        total = {name: torch.zeros_like(p) for name, p in self.weights.items()}
        batched = c.fisher_batch_generation if lesson.kind.by_loss else c.fisher_batch  # only generation is by_loss
        recorder, table = Recorder(self.device.type == "cuda"), lesson.table(lesson.train)

        def add(ids: Tensor, mask: Tensor, target: Tensor) -> tuple[()]:
            batch = Batch(ids, mask, target, ())
            found = gradients(lambda: lesson.loss(batch, self.passing(batch)), weights, unused=True)
            for name, gradient in zip(names, found, strict=True):
                if gradient is not None:
                    squares = gradient.square().nan_to_num_(nan=0.0, posinf=0.0)  # terms that are no numbers
                    total[name].add_(squares, alpha=len(batch) / len(lesson.train))
            return ()

        with self.backbone.full_precision():
            for numbers in plan(lesson.train.lengths(), 1 if c.fisher == "sample" else batched, None):
                batch = table.batch(numbers, rounded=recorder.on)
                recorder("fisher", add, batch.ids, batch.mask, batch.target)
        recorder.close()
        return total

    def shared(self) -> dict[str, Tensor]:
        state = {**super().shared(), **{f"fisher.{name}": f for name, f in self.fisher.items()}}
        if self.config.ewc_accum == "sum":
            state |= {f"anchor.{name}": a for name, a in self.anchor.items()}
        return {**state, "learnt": torch.tensor(self.learnt)}

    def load_shared(self, tensors: dict[str, Tensor]) -> None:
        super().load_shared(tensors)
        self.fisher, self.anchor = self._part(tensors, "fisher."), self._part(tensors, "anchor.")
        self.learnt = int(tensors.get("learnt", torch.tensor(0)))

    def _part(self, tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
        return {n.removeprefix(prefix): t.to(self.device) for n, t in tensors.items() if n.startswith(prefix)}

    def facts(self) -> dict[str, float]:
        return {"fisher": sum(float(f.double().sum()) for f in self.fisher.values()) / self.size}


def _strung(tensors: Mapping[str, Tensor], names: Iterable[str]) -> Tensor:
    return torch.cat([tensors[name].flatten() for name in names])
