"""The same numbers again on a GPU: kernels that add in a fixed order, where PyTorch has them.

The fastest kernels for the gradient of attention over long texts add up in whatever order their parts are done, and a
chain of tasks turns the last bit of one into whole points of a later one. On a CPU nothing needs to be asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils import deterministic

Result = TypeVar("Result")
_switches: Any = deterministic


def prepare() -> None:
    """cuBLAS repeats itself only with a workspace of fixed size, and looks once: before its first product."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


class Repeatable:
    """Calls functions with such kernels. A function that needs an operation without one is called as it is."""

    def __init__(self, device: torch.device):
        self.on = device.type == "cuda"
        self.trouble = ""

    def __call__(self, function: Callable[..., Result], *inputs: object) -> Result:
        if not self.on:
            return function(*inputs)
        before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        filling = _switches.fill_uninitialized_memory
        torch.use_deterministic_algorithms(True)
        _switches.fill_uninitialized_memory = False  # a kernel more for every tensor, to find reads of nothing
        try:
            return function(*inputs)
        except RuntimeError as problem:
            if "deterministic" not in str(problem).lower():
                raise
            why = str(problem).strip().splitlines()[0]
            self.on, self.trouble = False, f"the same training may end otherwise next time: {why}"
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])
            _switches.fill_uninitialized_memory = filling
        return function(*inputs)


def gradients(loss: Callable[[], Tensor], of: Sequence[Tensor], unused: bool = False) -> tuple[Tensor, ...]:
    """Of what `loss` gives, by each tensor; `unused`: None for those that it does not depend on."""
    return Repeatable(of[0].device)(lambda: torch.autograd.grad(loss(), of, allow_unused=unused))
