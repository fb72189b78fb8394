"""Optimisers for the loop: torch's AdamW and SGD, and the AdamW that the published code family used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, AdamW, Optimizer

from tss.learning.schedule import LearningConfig
from tss.methods.method import Group


class UncorrectedAdamW(Optimizer):
    """AdamW that adds epsilon to the uncorrected sqrt(v): at step k epsilon counts 1/sqrt(1 - 0.999^k) as much."""

    def __init__(self, params, lr: float, eps: float = 1e-6, betas=(0.9, 0.999), weight_decay: float = 0.0):
        super().__init__(params, {"lr": lr, "eps": eps, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            first, second = group["betas"]
            for p in (p for p in group["params"] if p.grad is not None):
                state = self.state[p]
                if not state:
                    state.update(step=torch.zeros(()), exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
                state["step"] += 1
                k = float(state["step"])
                state["exp_avg"].mul_(first).add_(p.grad, alpha=1 - first)
                state["exp_avg_sq"].mul_(second).addcmul_(p.grad, p.grad, value=1 - second)
                size = group["lr"] * sqrt(1 - second**k) / (1 - first**k)
                p.addcdiv_(state["exp_avg"], state["exp_avg_sq"].sqrt().add_(group["eps"]), value=-size)
                p.mul_(1.0 - group["lr"] * group["weight_decay"])


PIECES, LEAST, CHUNK = 32, 4096, 65_536  # CHUNK: what one processor is given of a tensor by kernels over many tensors


def pieces(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Each tensor in views of equal length, about PIECES of all tensors together; as it is where that gains nothing.

    A vector of 200,000 scores is 4 chunks: of a GPU's 132 processors 128 have nothing to do.
    """
    size = max(LEAST, -(-sum(t.numel() for t in tensors) // PIECES))
    size = -(-size // 64) * 64  # reads stay aligned
    cut = size < CHUNK
    return [list(t.detach().view(-1).split(size)) if cut and t.is_contiguous() else [t] for t in tensors]


class FinerAdamW(AdamW):
    """torch's fused AdamW, its kernel given long parameters in pieces. Number for number the same."""

    def __init__(self, *given: Any, **options: Any):
        super().__init__(*given, **options)
        self.copies: dict[Tensor, tuple[Tensor, list[Tensor]]] = {}

    def _init_group(self, group, *given):
        found = super()._init_group(group, *given)
        params, grads, firsts, seconds, _, steps = (each for each in given if isinstance(each, list))
        if group["amsgrad"] or not all(t.is_contiguous() for each in (params, grads, firsts, seconds) for t in each):
            return found
        cut = zip(params, steps, pieces(params), strict=True)
        steps[:] = _joined([step, *self._copies(p, step, len(parts) - 1)] for p, step, parts in cut)
        for each in (params, grads, firsts, seconds):
            each[:] = _joined(pieces(each))
        return found

    def _copies(self, parameter: Tensor, step: Tensor, count: int) -> list[Tensor]:
        """Step counts for the other pieces of a parameter: the kernel wants one of each. Its own is what is saved."""
        if parameter not in self.copies or self.copies[parameter][0] is not step:
            self.copies[parameter] = step, [step.clone() for _ in range(count)]
        return self.copies[parameter][1]


def _joined(lists: Iterable[list[Tensor]]) -> list[Tensor]:
    return [one for some in lists for one in some]


def build(groups: Sequence[Group], config: LearningConfig) -> list[Optimizer]:
    """A fresh optimiser a group: stale moments would move what a mask protects. Each notes its peak learning rate."""
    made = [_one(group, config) for group in groups if group.parameters]
    for optimiser in made:
        for part in optimiser.param_groups:
            part["peak"] = part["lr"]
    return made


def _one(group: Group, config: LearningConfig) -> Optimizer:
    if group.rule == "sgd":
        return SGD(group.parameters, lr=group.lr, **group.options)
    if config.adam_eps_uncorrected:
        return UncorrectedAdamW(group.parameters, lr=group.lr, **{"eps": config.adam_eps, **group.options})
    fused = all(p.device.type == "cuda" for p in group.parameters)  # one kernel instead of a dozen
    options = {"eps": config.adam_eps, "weight_decay": 0.0, "fused": fused, **group.options}
    return (FinerAdamW if fused else AdamW)(group.parameters, lr=group.lr, **options)


def set_rate(optimisers: Sequence[Optimizer], factor: float) -> None:
    for optimiser in optimisers:
        for part in optimiser.param_groups:
            part["lr"] = part["peak"] * factor
