"""The state of a training at a step, as plain tensors and JSON, and back again, exactly."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from tss.learning.loop import Training

MARKS = ("step", "best_key", "best_step", "stale", "skipped", "bad", "curve", "pieces", "seconds")


class Checkpoints(Protocol):
    """Where a running training is kept; the store gives one."""

    def save(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None: ...

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None: ...


class Keyed:
    """Checkpoints that are used only for the very training they were made in.

    apart: seconds that must lie between two of them, and before the first; one asked for earlier is left out.
    """

    def __init__(self, place: Checkpoints, key: str, apart: float = 0.0):
        self._place, self._key, self._apart = place, key, apart
        self._last = time.monotonic()

    def save(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        if time.monotonic() - self._last >= self._apart:
            self._place.save(tensors, {**meta, "training": self._key})
            self._last = time.monotonic()

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        found = self._place.load()
        return found if found is not None and found[1].get("training") == self._key else None


def capture(training: Training) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Everything the rest of the training depends on."""
    tensors = {f"now.{i}": p.detach().clone() for i, p in enumerate(training.parameters)}
    tensors |= {f"best.{i}": t for i, t in enumerate(training.best)}
    for j, optimiser in enumerate(training.optimisers):
        for i, p in enumerate(optimiser.param_groups[0]["params"]):
            for key, value in optimiser.state.get(p, {}).items():
                if isinstance(value, Tensor):
                    tensors[f"optimiser.{j}.{i}.{key}"] = value
    tensors["random"] = torch.get_rng_state()
    if training.device.type == "cuda":
        tensors["random.cuda"] = torch.cuda.get_rng_state(training.device)
    return tensors, {mark: getattr(training, mark) for mark in MARKS}


def restore(training: Training, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
    """Put a captured state into a training that was prepared in the same way."""
    with torch.no_grad():
        for i, p in enumerate(training.parameters):
            p.copy_(tensors[f"now.{i}"])
    training.best = [tensors[f"best.{i}"].to(training.device) for i in range(len(training.best))]
    for j, optimiser in enumerate(training.optimisers):
        for i, p in enumerate(optimiser.param_groups[0]["params"]):
            prefix = f"optimiser.{j}.{i}."
            state = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
            away = optimiser.defaults.get("fused")  # a fused optimiser counts its steps on the device
            optimiser.state[p] = {k: v if k == "step" and not away else v.to(p.device) for k, v in state.items()}
    torch.set_rng_state(tensors["random"])
    if "random.cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random.cuda"], training.device)
    for mark in MARKS:
        setattr(training, mark, meta[mark])
    training.best_key = None if meta["best_key"] is None else (float(meta["best_key"][0]), float(meta["best_key"][1]))
