"""Importance of each score for a task, from one pass over its training set, and its accumulation over tasks.

raw  = (1/N) sum_n dL(x_n, y_n)/ds          (`signed_mean`; other reductions below)
z    = (raw - mean) / std                    per weight matrix (or row, or adapter)
I    = |tanh(z)| in [0, 1)                   (`abs_tanh`; `relu_tanh` = max(0, tanh z))
I_acc = max(I, I_acc)                        element by element
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from tss.backbones.adapters import AdapterBank
from tss.backbones.backbone import Pass
from tss.backbones.repeatable import Repeatable

REDUCTIONS = ("signed_mean", "mean_abs_batch", "mean_abs_sample")
NORMS = ("abs_tanh", "relu_tanh")
UNITS = ("matrix", "row", "block")

AT_ONCE, GPU_BYTES = 8, 64 << 20

# (batch, what the forward pass carries) -> loss of each example [batch]
RowLoss = Callable[[Any, Pass], Tensor]


def normalise(
    raw: Tensor, bank: AdapterBank, norm: str = "abs_tanh", unit: str = "matrix", heat: float = 1.0
) -> Tensor:
    """Raw importance [size] -> [size] in [0, 1). A unit whose values are all equal gets 0. `heat` > 1 flattens."""
    parts = []
    block = 2 * bank.width * bank.bottleneck
    for i, s in enumerate(bank.segments):
        values = raw[s.start : s.stop].double()
        if unit == "row":
            z = standardised(values.view(s.rows, s.columns), dim=1).reshape(-1)
        elif unit == "matrix":
            z = standardised(values, dim=0)
        else:
            start = (i // 2) * block
            whole = raw[start : start + block].double()
            z = standardised(whole, dim=0)[s.start - start : s.stop - start]
        parts.append(z)
    squashed = torch.tanh(torch.cat(parts) / heat)
    squashed = squashed.abs() if norm == "abs_tanh" else squashed.clamp(min=0)
    return squashed.float().clamp(max=1.0)


def standardised(values: Tensor, dim: int) -> Tensor:
    """(v - mean) / std. The tiny addend is relative, so that scaling the loss changes nothing."""
    mean = values.mean(dim=dim, keepdim=True)
    std = values.std(dim=dim, keepdim=True, correction=0)
    floor = 1e-12 * values.abs().amax(dim=dim, keepdim=True)
    return torch.where(std > floor, (values - mean) / (std + floor + 1e-300), torch.zeros_like(values))


def accumulate(importance: Tensor, before: Tensor | None) -> Tensor:
    """Element-wise maximum over tasks."""
    return importance if before is None else torch.maximum(importance, before)


def raw_importance(
    reduction: str,
    bank: AdapterBank,
    weights: Tensor,
    factor: Tensor,
    batches: Iterable[Any],
    row_loss: RowLoss,
    biases: Tensor | None = None,
) -> Tensor:
    """dL/dw over the batches, reduced as asked, times `factor` (w for scores, 1 for weights, w*g for alpha). [size]

    weights: the effective weights of the adapters, w*g for a sub-network. `row_loss` gives one loss a row.
    """
    if reduction == "mean_abs_sample":
        return _per_sample(bank, weights, factor, batches, row_loss, biases)
    signed = reduction == "signed_mean"

    def gradient(batch: Any) -> tuple[Tensor, int]:
        leaf = weights.detach().clone().requires_grad_(True)
        losses = row_loss(batch, Pass(bank.functions(leaf, biases)))
        return torch.autograd.grad(losses.sum() if signed else losses.mean(), leaf)[0].float(), len(losses)

    total, count, repeatable = torch.zeros_like(weights, dtype=torch.float32), 0, Repeatable(weights.device)
    for batch in batches:
        found, rows = repeatable(gradient, batch)
        total += found if signed else found.abs()
        count += rows if signed else 1
    return total / max(count, 1) * (factor if signed else factor.abs())


def at_once(weight: Tensor) -> int:
    """Examples whose gradients are held together, so that memory does not grow with the batch: few on a CPU, whose
    caches are small, and some MiB on a GPU, where every piece is a handful of launches."""
    return AT_ONCE if weight.device.type == "cpu" else max(AT_ONCE, GPU_BYTES // (4 * weight.numel()))


class _WatchedLinear(torch.autograd.Function):
    """A linear layer whose backward adds |gradient of each example| to a sum: |delta_n^T x_n|, over n."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, total: Tensor, anchor: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.total = total
        return torch.nn.functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, delta: Tensor) -> tuple[Tensor, None, None, None, None]:
        x, weight = ctx.saved_tensors
        few = at_once(weight)
        for start in range(0, len(x), few):
            part = slice(start, start + few)
            each = torch.einsum("nto,nti->noi", delta[part].float(), x[part].float())
            ctx.total.add_(each.abs_().sum(dim=0))
        return delta @ weight, None, None, None, None


def _per_sample(
    bank: AdapterBank, weights: Tensor, factor: Tensor, batches: Iterable[Any], row_loss: RowLoss, biases: Tensor | None
) -> Tensor:
    """Exact (1/N) sum_n |dL_n/dw| * |factor| in one batched backward, without a loop over examples."""
    weights = weights.detach().to(bank.dtype)
    total, count = torch.zeros_like(weights, dtype=torch.float32), 0
    sums = {m.data_ptr(): t for m, t in zip(bank.matrices(weights), bank.matrices(total), strict=True)}
    anchor = torch.zeros((), device=weights.device, requires_grad=True)  # the backbone is frozen: start a graph

    def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return _WatchedLinear.apply(x, weight, bias, sums[weight.data_ptr()], anchor)

    for batch in batches:
        losses = row_loss(batch, Pass(bank.functions(weights, biases, linear)))
        torch.autograd.grad(losses.sum(), anchor, allow_unused=True)  # touches no .grad of the head
        count += len(losses)
    return total / max(count, 1) * factor.abs()
