"""What follows a backward pass: the guard, the clip, the method's say and the optimisers' steps.

On a GPU all of it is one more recorded graph, as launching a dozen small kernels from Python takes longer than a small
model's whole backward pass. The guard then is a flag that the fused optimiser reads on the device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from tss.learning.optimisers import set_rate
from tss.learning.recorded import Recorder
from tss.methods.method import Method


class Update:
    """Moves the parameters by their gradients; a step whose loss or gradient is no number changes nothing."""

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        optimisers: Sequence[Optimizer],
        method: Method,
        clip: float,
        recorder: Recorder,
    ):
        self.parameters, self.optimisers, self.method = parameters, optimisers, method
        self.clip, self.recorder = clip, recorder
        # A clip is rare, weights of a whole backbone are too many to copy, and other optimisers count on the host.
        fused = all(isinstance(o, AdamW) and o.defaults["fused"] for o in optimisers)
        self.recordable = recorder.on and fused and method.steady and not clip and not method.trains_backbone

    def __call__(self, loss: Tensor, factor: float) -> tuple[float, bool]:
        """The loss, and whether the step was made. factor: the learning rate relative to its peak."""
        if self.recordable and self.recorder.on:
            return self._recorded(loss, factor)
        set_rate(self.optimisers, factor)
        value, size = torch.stack([loss, self._norm().to(loss)]).tolist()
        if not abs(value) + size < float("inf"):
            return value, False
        if self.clip and size > self.clip:
            for p in self.parameters:
                if p.grad is not None:
                    p.grad.mul_(self.clip / size)
        self._move()
        return value, True

    def _norm(self) -> Tensor:
        return torch.stack([p.grad.norm() for p in self.parameters if p.grad is not None]).norm()

    def _move(self) -> None:
        self.method.before_step()
        for optimiser in self.optimisers:
            optimiser.step()
        self.method.after_step()

    def _recorded(self, loss: Tensor, factor: float) -> tuple[float, bool]:
        moved = [p for p in self.parameters if p.grad is not None]
        found = [p.grad for p in moved if p.grad is not None]
        rate = torch.full((), factor, device=loss.device)

        def everything(loss: Tensor, rate: Tensor, *gradients: Tensor) -> tuple[Tensor | None, ...]:
            for p, gradient in zip(moved, gradients, strict=True):
                p.grad = gradient
            size = self._norm().to(loss)
            stop = (~torch.isfinite(loss + size)).float()
            for optimiser in self.optimisers:
                optimiser.found_inf = stop  # type: ignore[attr-defined]
                for part in optimiser.param_groups:
                    part["lr"], part["capturable"] = rate * part["peak"], True
            try:
                self._move()
            finally:
                for optimiser in self.optimisers:
                    del optimiser.found_inf  # type: ignore[attr-defined]
            return (torch.stack([loss, stop.to(loss)]),)

        (told,) = self.recorder(("update", len(moved)), everything, loss, rate, *found)
        assert told is not None
        value, stopped = told.tolist()
        return value, not stopped
