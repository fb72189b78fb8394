"""Attention of a task over the features that several sub-networks give for the same position (CAT's second path).

    q  = relu(task embedding);   a_k = softmax_k(q_h . K f_k / sqrt(size)) for each of 5 heads of size floor(d / 5)
    y  = f_t + O [sum_k a_k V f_k];   z = y + W2 relu(W1 LN(y))

f_t, the task's own feature, is the residual, and O and W2 begin small, so that z begins as f_t: whatever reads it, be
it the frozen LM head, finds what it knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor

from tss.backbones.added import Functions, Pass
from tss.randomness import normal, uniform
from tss.tasks.batches import Batch
from tss.tasks.lesson import Lesson

HEADS = 5


def inner_width(width: int) -> int:
    return HEADS * max(width // HEADS, 1)


def first_values(width: int, key: str) -> dict[str, Tensor]:
    """Weights by name. query, key, value [5 size, d]; out [d, 5 size]; first, second [d, d]; gain, shift [d]"""
    inner = inner_width(width)
    values = {
        name: uniform(f"{key}/{name}", inner * width, 1 / sqrt(width)).view(inner, width)
        for name in ("query", "key", "value")
    }
    values["out"] = normal(f"{key}/out", width * inner, 0.02).view(width, inner)
    values["first"] = uniform(f"{key}/first", width * width, 1 / sqrt(width)).view(width, width)
    values["second"] = normal(f"{key}/second", width * width, 0.02).view(width, width)
    return {**values, "gain": torch.ones(width), "shift": torch.zeros(width)}


def attend(weights: Mapping[str, Tensor], task: Tensor, states: Tensor) -> Tensor:
    """task [d]; states [features, batch, length, d], the task's own first -> [batch, length, d]"""
    x, width = states.float(), states.shape[-1]
    size = inner_width(width) // HEADS
    query = F.linear(F.relu(task), weights["query"]).view(HEADS, size)
    keys, values = (F.linear(x, weights[name]).unflatten(-1, (HEADS, size)) for name in ("key", "value"))
    share = ((keys * query).sum(dim=-1) / sqrt(size)).softmax(dim=0)  # [features, batch, length, heads]
    mixed = (share[..., None] * values).sum(dim=0).flatten(-2)
    y = x[0] + F.linear(mixed, weights["out"])
    normed = F.layer_norm(y, (width,), weights["gain"], weights["shift"])
    return (y + F.linear(F.relu(F.linear(normed, weights["first"])), weights["second"])).to(states.dtype)


def learning_path(
    weights: Mapping[str, Tensor],
    task: Tensor,
    own: Functions,
    others: Functions,
    copies: int,
    lesson: Lesson,
    batch: Batch,
) -> Pass:
    """The attended pass of a training step: first the features of the others, without gradient, then its own.

    own: adapters of the task; others: of `copies` other sub-networks at once.
    """
    seen: list[Tensor] = []

    def see(states: Tensor) -> Tensor:
        seen.append(states)
        return states[0]

    with torch.no_grad():
        lesson.logits(batch, Pass(others, copies=copies, reading=see))
    return Pass(own, reading=lambda states: attend(weights, task, torch.cat([states, seen[0]])))


def answering_path(weights: Mapping[str, Tensor], task: Tensor, adapters: Functions, copies: int) -> Pass:
    """The attended pass that answers: all sub-networks at once as copies of the input, the task's own first."""
    return Pass(adapters, copies=copies, reading=lambda states: attend(weights, task, states))
