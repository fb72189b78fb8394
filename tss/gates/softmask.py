"""Soft-masking: what earlier tasks found important moves less.

`update` (default)  s <- s - (1 - I) * AdamW_step(grad): a learning rate per score, alive at any gradient scale;
`grad`              multiply the gradient, then AdamW: nearly a no-op, as Adam divides the factor out again;
`sgd`               multiply the gradient, then plain SGD.
The mask is never used in the forward pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

MODES = ("update", "grad", "sgd")


class SoftMask:
    """Keeps one flat parameter from moving where `importance` is high."""

    def __init__(self, importance: Tensor, mode: str):
        self.keep = 1.0 - importance  # [size]
        self.mode = mode
        self._before: Tensor | None = None

    def before_step(self, parameter: nn.Parameter) -> None:
        """After backward (and clipping), before the optimiser."""
        if self.mode == "update":
            self._before = parameter.detach().clone()
        elif parameter.grad is not None:
            parameter.grad.mul_(self.keep)

    def after_step(self, parameter: nn.Parameter) -> None:
        """After the optimiser. lerp gives exactly the old value at I = 1 and exactly the new one at I = 0."""
        if self._before is not None:
            with torch.no_grad():
                torch.lerp(self._before, parameter, self.keep, out=parameter)
            self._before = None


class SoftMasks:
    """The same for the hundreds of matrices of a whole LM, in few launches instead of one for each."""

    def __init__(self, importances: Sequence[Tensor], mode: str):
        self.keep = [1.0 - importance for importance in importances]
        self.mode = mode
        self._before: list[Tensor] = []

    def before_step(self, parameters: Sequence[nn.Parameter]) -> None:
        if self.mode == "update":
            self._before = [torch.empty_like(p) for p in parameters]
            torch._foreach_copy_(self._before, [p.detach() for p in parameters])
            return
        met = [(p.grad, keep) for p, keep in zip(parameters, self.keep, strict=True) if p.grad is not None]
        torch._foreach_mul_([gradient for gradient, _ in met], [keep for _, keep in met])

    def after_step(self, parameters: Sequence[nn.Parameter]) -> None:
        if self._before:
            with torch.no_grad():
                torch._foreach_copy_(list(parameters), torch._foreach_lerp(self._before, list(parameters), self.keep))
            self._before = []


def relative_step(importance: Tensor, gradient_rms: Tensor, epsilon: float) -> Tensor:
    """rho(I) = (1-I)(r+eps) / ((1-I)r+eps): the masked Adam step relative to the unmasked one in `grad` mode."""
    keep = 1.0 - importance
    return keep * (gradient_rms + epsilon) / (keep * gradient_rms + epsilon)
