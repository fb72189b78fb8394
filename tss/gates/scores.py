"""Popup scores and the gates they open: g = 1[s > 0], forward w * g, backward straight through the step."""

from __future__ import annotations

from math import sqrt
from typing import Any

import torch
from torch import Tensor

from tss import randomness
from tss.backbones.adapters import AdapterBank
from tss.errors import ConfigError

THRESHOLDS = {"gt": torch.gt, "ge": torch.ge}


def draw_scores(bank: AdapterBank, key: str) -> Tensor:
    """Kaiming-uniform with a = sqrt(5): U(-1/sqrt(fan_in), 1/sqrt(fan_in)); about half the gates open. [size]"""
    return torch.cat(
        [
            randomness.uniform(f"scores/{key}/{i}", s.stop - s.start, 1.0 / sqrt(s.columns))
            for i, s in enumerate(bank.segments)
        ]
    )


def open_gates(scores: Tensor, threshold: str = "gt") -> Tensor:
    """The binary gates of the scores. The one place where scores become gates. bool [size]

    Raises ConfigError for an unknown threshold and ValueError if a score is not a number.
    """
    if threshold not in THRESHOLDS:
        raise ConfigError(f"threshold {threshold!r} is not one of gt, ge")
    if not bool(torch.isfinite(scores).all()):
        raise ValueError("gates cannot be made from scores that are not finite")
    return THRESHOLDS[threshold](scores, 0)


def through(weights: Tensor, gates: Tensor, signed: bool = False) -> Tensor:
    """What gates (bool) let through: the weight or nothing; `signed`: the weight or its negative."""
    return torch.where(gates, weights, -weights) if signed else weights * gates


class _Gated(torch.autograd.Function):
    """w * 1[s > 0], with d/ds := upstream * w, so that closed gates learn too."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, weights: Tensor, threshold: str, signed: bool) -> Tensor:
        ctx.save_for_backward(weights)
        return through(weights, THRESHOLDS[threshold](scores, 0), signed)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None, None]:
        (weights,) = ctx.saved_tensors
        return upstream * weights, None, None, None


def gated(scores: Tensor, weights: Tensor, threshold: str = "gt", signed: bool = False) -> Tensor:
    """The sub-network's weights, differentiable in the scores. [size]"""
    return _Gated.apply(scores, weights, threshold, signed)
