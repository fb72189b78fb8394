"""Soft-masking: what earlier tasks found important moves less.

`update` (default)  s <- s - (1 - I) * AdamW_step(grad): a learning rate per score, alive at any gradient scale;
`grad`              multiply the gradient, then AdamW: nearly a no-op, as Adam divides the factor out again;
`sgd`               multiply the gradient, then plain SGD.
The mask is never used in the forward pass.
"""

from __future__ import annotations

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


def relative_step(importance: Tensor, gradient_rms: Tensor, epsilon: float) -> Tensor:
    """rho(I) = (1-I)(r+eps) / ((1-I)r+eps): the masked Adam step relative to the unmasked one in `grad` mode."""
    keep = 1.0 - importance
    return keep * (gradient_rms + epsilon) / (keep * gradient_rms + epsilon)
