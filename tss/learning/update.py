"""What follows a backward pass: the guard, the clip, the method's say and the optimisers' steps.

On a GPU all of it is recorded, at best together with the pass before it (`at_once`), as launching a dozen small kernels
from Python takes longer than a small model's whole backward pass. The guard then is a flag that the fused optimiser
reads on the device, and the loss of a step is read while the next is under way: neither Python nor the GPU waits for
the other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from tss.backbones.recorded import Outputs, Recorder
from tss.errors import TrainingError
from tss.learning.optimisers import pieces, set_rate
from tss.methods.method import Method


@dataclass(frozen=True)
class Made:
    """What became of a step: its loss, and whether it changed anything."""

    loss: float
    made: bool


class OnTheWay:
    """Numbers that leave the device and are read one step later."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Tensor, torch.cuda.Event | None]] = []

    def send(self, told: Tensor) -> list[Made]:
        """told: loss and whether it was no number, [2]; may be overwritten at once. What has come until now."""
        there = torch.empty(told.shape, dtype=told.dtype, pin_memory=told.is_cuda)
        there.copy_(told, non_blocking=True)
        event = torch.cuda.Event() if told.is_cuda else None
        if event is not None:
            event.record()
        self._waiting.append((there, event))
        return self.read(all_but=1)

    def read(self, all_but: int = 0) -> list[Made]:
        """Waits for what was sent, but for the latest so many, and gives it in its order."""
        out = []
        while len(self._waiting) > all_but:
            there, event = self._waiting.pop(0)
            if event is not None:
                event.synchronize()
            value, stopped = there.tolist()
            out.append(Made(value, not stopped))
        return out


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
        self.clip, self.recorder, self.on_the_way = clip, recorder, OnTheWay()
        # A clip is rare, weights of a whole backbone are too many to copy, and other optimisers count on the host.
        fused = all(isinstance(o, AdamW) and o.defaults["fused"] for o in optimisers)
        self.recordable = recorder.on and fused and method.steady and not clip and not method.trains_backbone
        device = parameters[0].device
        self.parts = [part for o in optimisers for part in o.param_groups] if self.recordable else []
        self.peaks = torch.tensor([part["peak"] for part in self.parts], device=device)
        self.rates = torch.empty_like(self.peaks)  # where a recording reads them
        self.one = torch.ones(1, device=device)

    def __call__(self, loss: Tensor, factor: float) -> list[Made]:
        """Of this step and those before it, what is known by now. factor: the learning rate relative to its peak."""
        if not self.recordable:
            return [self._plain(loss, factor)]
        found = [p.grad for p in self.parameters]  # the same arithmetic where recording has failed since

        def follow(loss: Tensor, *given: Tensor) -> Outputs:
            left = iter(given)
            return (self._on_device(loss, [None if g is None else next(left) for g in found]),)

        present = [g for g in found if g is not None]
        return self._sent(("update", len(present)), follow, [loss, *present], factor)

    def at_once(
        self, key: Hashable, derive: Callable[..., Outputs], inputs: Sequence[Tensor], factor: float
    ) -> list[Made]:
        """The same with the pass before it, as one recording. derive(*inputs): the loss, and every gradient or None."""

        def whole(*inputs: Tensor) -> Outputs:
            loss, *gradients = derive(*inputs)
            assert loss is not None
            return (self._on_device(loss, gradients),)

        return self._sent(key, whole, inputs, factor)

    def _sent(
        self, key: Hashable, function: Callable[..., Outputs], inputs: Sequence[Tensor], factor: float
    ) -> list[Made]:
        torch.mul(self.peaks, factor, out=self.rates)
        (told,) = self.recorder(key, function, *inputs)
        assert told is not None
        return self.on_the_way.send(told)

    def settle(self) -> list[Made]:
        """What was not known yet of the steps until now."""
        return self.on_the_way.read()

    def _plain(self, loss: Tensor, factor: float) -> Made:
        set_rate(self.optimisers, factor)
        value, size = torch.stack([loss, self._norm().to(loss)]).tolist()
        if not abs(value) + size < float("inf"):
            return Made(value, False)
        if self.clip and size > self.clip:
            for p in self.parameters:
                if p.grad is not None:
                    p.grad.mul_(self.clip / size)
        self._move()
        return Made(value, True)

    def _norm(self) -> Tensor:
        found = torch._foreach_norm([p.grad for p in self.parameters if p.grad is not None])  # few launches for many
        return torch.stack(found).norm()

    def _move(self) -> None:
        self.method.before_step()
        for optimiser in self.optimisers:
            optimiser.step()
        self.method.after_step()

    def _no_number(self, tensors: list[Tensor]) -> Tensor:
        """1 if one of them holds NaN or infinity, else 0: the check of torch's own GradScaler, one launch for all."""
        found = torch.zeros(1, device=self.one.device)
        torch._amp_foreach_non_finite_check_and_unscale_([t for some in pieces(tensors) for t in some], found, self.one)
        return found.squeeze()

    def _on_device(self, loss: Tensor, gradients: Sequence[Tensor | None]) -> Tensor:
        """Guard and move without a look at a number: the loss, and whether something was no number."""
        for p, gradient in zip(self.parameters, gradients, strict=True):
            p.grad = gradient
        stop = self._no_number([loss, *(g for g in gradients if g is not None)])
        for optimiser in self.optimisers:
            optimiser.found_inf = stop  # type: ignore[attr-defined]
        for part, rate in zip(self.parts, self.rates.unbind(), strict=True):
            part["lr"], part["capturable"] = rate, True
        try:
            self._move()
        finally:
            for optimiser in self.optimisers:
                del optimiser.found_inf  # type: ignore[attr-defined]
        return torch.stack([loss, stop.to(loss)])


def no_number(name: str, bad: int, step: int, numbers: Sequence[int]) -> TrainingError:
    """What is said after too many bad steps in a row."""
    rows = ", ".join(str(n + 1) for n in numbers[:8])
    return TrainingError(
        f"{name}: loss or gradient is not a number in {bad} steps in a row, up to step {step} (training rows {rows}, "
        "…). Nothing was added to the store. Try a smaller learning rate (for TSS: --set score_lr=…) or "
        "precision=float32."
    )
