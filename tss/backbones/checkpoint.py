"""The state of a pretraining run on disk: weights and both moments of AdamW, replaced atomically, never pickled."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from tss.errors import DamagedError

_PARTS = ("weight", "exp_avg", "exp_avg_sq")


def save_checkpoint(
    path: Path, model: torch.nn.Module, optimizer: torch.optim.AdamW, progress: dict[str, float]
) -> None:
    """Write model, optimiser and `progress` (step, tokens, seconds); a crash leaves the previous file whole."""
    tensors: dict[str, torch.Tensor] = {}
    for name, parameter in model.named_parameters():
        state = optimizer.state[parameter]
        for part, tensor in zip(_PARTS, (parameter, state["exp_avg"], state["exp_avg_sq"]), strict=True):
            tensors[f"{part}/{name}"] = tensor.detach().to("cpu", copy=True).contiguous()
    partial = path.with_suffix(".partial")
    save_file(tensors, partial, metadata={key: repr(value) for key, value in progress.items()})
    with partial.open("rb") as written:
        os.fsync(written.fileno())
    os.replace(partial, path)


def load_checkpoint(path: Path, model: torch.nn.Module, optimizer: torch.optim.AdamW) -> dict[str, float]:
    """Put the state of `path` into model and optimiser; returns `progress`. Raises: DamagedError if it does not fit."""
    try:
        with safe_open(path, framework="pt") as file:
            progress = {key: float(value) for key, value in file.metadata().items()}
            for name, parameter in model.named_parameters():
                weight, first, second = (file.get_tensor(f"{part}/{name}") for part in _PARTS)
                with torch.no_grad():
                    parameter.copy_(weight)
                optimizer.state[parameter] = {
                    "step": torch.tensor(progress["step"], device=parameter.device if _fused(optimizer) else "cpu"),
                    "exp_avg": first.to(parameter.device),
                    "exp_avg_sq": second.to(parameter.device),
                }
    except (SafetensorError, RuntimeError, KeyError) as error:
        raise DamagedError(
            f"the checkpoint {path} does not belong to this size or is damaged ({error}); delete it to start again"
        ) from error
    return progress


def _fused(optimizer: torch.optim.AdamW) -> bool:
    return bool(optimizer.defaults.get("fused"))
