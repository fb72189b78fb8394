"""What a task's inputs are about: the mean and spread of what the frozen backbone makes of them, kept with the task.

    distance(x, t) = mean over features of (x - mean_t)^2 / v,   v the mean of the tasks' spreads

About 1 for an input like those that the task was learnt on, more for others. Two short vectors a task; no example can
be read from them, and what a task answers does not depend on them. Sub-networks cannot tell: one that was learnt on a
single task is sure of anything (results/ideas.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from tss.backbones.backbone import Backbone, Pass
from tss.tasks.batches import Row, collate, plan

ROWS = 200  # training inputs that say what a task is about
TOKENS = 128  # of each
MEAN, SPREAD = "about.mean", "about.spread"
_LEAST = 1e-6  # a spread of nothing would make everything infinitely far


def about(backbone: Backbone, rows: Sequence[Row]) -> dict[str, Tensor]:
    """Mean and spread of the features of a task's inputs, [d] each; nothing where half precision gives no numbers."""
    found = features(backbone, rows)
    if not bool(found.isfinite().all()):
        return {}
    return {MEAN: found.mean(dim=0), SPREAD: found.var(dim=0, correction=0)}


@torch.no_grad()
def features(backbone: Backbone, rows: Sequence[Row]) -> Tensor:
    """Mean state of each input in the backbone as it is, without any task. [rows, d] float32 on the CPU"""
    training = backbone.model.training
    backbone.model.eval()
    short = [replace(row, ids=row.ids[:TOKENS]) for row in rows]
    out = torch.zeros(len(rows), backbone.width)
    for numbers in plan([len(row.ids) for row in short], 32, None):
        batch = collate([short[i] for i in numbers], numbers, backbone.text.pad, single=True).to(backbone.device)
        states, real = backbone.states(batch.ids, batch.mask, Pass()).float(), batch.mask.unsqueeze(-1)
        out[numbers] = ((states * real).sum(dim=1) / real.sum(dim=1)).cpu()
    backbone.model.train(training)
    return out


def distances(found: Tensor, means: Tensor, spread: Tensor) -> Tensor:
    """From inputs to tasks. found [n, d], means [tasks, d], spread [d] -> [n, tasks]"""
    size = spread.clamp(min=_LEAST).sqrt()
    return torch.cdist(found / size, means / size, compute_mode="donot_use_mm_for_euclid_dist").square() / len(spread)
