"""Directions in which the inputs of a weight matrix lie, for methods that keep updates away from them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from tss.backbones.adapters import AdapterBank
from tss.backbones.backbone import Pass

NOTHING = 1e-10  # share of all energy below which a direction is rounding


def directions(memory: Tensor, energy: Tensor, tau: float) -> tuple[Tensor, Tensor]:
    """The memory with a task's new directions, and which of its columns are the task's.

    Old directions m (energies |m'R|^2) and the left singular vectors of R - MM'R (energies sigma^2) are ranked
    together; the strongest that hold tau |R|^2 are the task's.
    memory M [d, m], orthonormal columns; energy R R' [d, d] in float64 -> [d, m + new], bool [m + new]
    """
    old, total = memory.double(), energy.trace()
    rest = torch.eye(len(energy), dtype=energy.dtype, device=energy.device) - old @ old.T
    values, vectors = torch.linalg.eigh(rest @ energy @ rest)
    free = len(energy) - old.shape[1]
    values, vectors = values.flip(0)[:free], vectors.flip(1)[:, :free]
    known = (old * (energy @ old)).sum(dim=0)
    strength, order = torch.cat([known, values]).sort(descending=True, stable=True)
    count = int((strength.cumsum(dim=0) < tau * total).sum()) + 1
    chosen = torch.zeros(len(order), dtype=torch.bool, device=energy.device)
    chosen[order[:count]] = strength[:count] > NOTHING * total
    new = chosen[old.shape[1] :]
    return torch.cat([memory, vectors[:, new].to(memory)], dim=1), torch.cat([chosen[: old.shape[1]], new[new]])


def regime(g: Tensor, basis: Tensor, before: Tensor, eps1: float, eps2: float) -> tuple[int, float]:
    """1: g hardly lies in the subspace; 2: it does, against the old gradient; 3: and along it. With |g S|/|g|.

    g, before [out, in]: gradients of the new and the old task; basis S [in, k], orthonormal.
    """
    size = float(g.norm())
    share = float((g @ basis).norm()) / size if size > 0 else 0.0
    if size == 0 or share < eps1:
        return 1, share
    return (3 if float((before * g).sum()) >= eps2 * float(before.norm()) * size else 2), share


@torch.no_grad()
def energies(bank: AdapterBank, weights: Tensor, biases: Tensor, passes: Iterable) -> list[Tensor]:
    """R R' [in, in], float64, of the inputs R of every matrix of the adapters.

    passes: functions of a `Pass`, each a forward pass without padding; all positions count.
    """
    total = [torch.zeros(s.columns, s.columns, dtype=torch.float64, device=weights.device) for s in bank.segments]

    def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        seen = x.flatten(0, -2).double()
        total[weight.storage_offset() // weight.numel()] += seen.T @ seen  # matrices lie in order, all of one size
        return F.linear(x, weight, bias)

    added = Pass(bank.functions(weights.detach(), biases, linear))
    for forward in passes:
        forward(added)
    return total
