"""Probes: a few inputs at a fixed shape with a task's answers to them, to prove later that nothing changed.

In the environment where they were made the answers must come back byte for byte; in another (a different processor,
thread count or library) kernels may add in another order, so there a tolerance is stated and used.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from tss.tasks.batches import Batch, Row
from tss.tasks.lesson import Lesson

COUNT = 8
LONGEST = 32  # tokens of a probe's input and target
TOLERANCE = 1e-3  # largest difference of an output in another environment


@dataclass(frozen=True)
class Comparison:
    """status: "equal" (every byte), "close" (another environment, within TOLERANCE) or "changed"."""

    status: str
    outputs: int
    changed_bytes: int
    largest: float
    same_environment: bool


def environment(device: torch.device, dtype: torch.dtype) -> dict[str, str]:
    """What decides the order in which kernels add numbers."""
    import transformers

    where = torch.cuda.get_device_name(device) if device.type == "cuda" else torch.backends.cpu.get_cpu_capability()
    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "device": f"{device.type} {where}",
        "machine": platform.machine(),
        "dtype": str(dtype).removeprefix("torch."),
        "threads": str(torch.get_num_threads()) if device.type == "cpu" else "any",
    }


def make(lesson: Lesson, rows: Sequence[Row], added) -> tuple[dict[str, Tensor], str]:
    """Probe inputs and outputs from the first rows, and the SHA-256 of the outputs."""
    chosen = [
        Row(row.ids[:LONGEST], row.target[:LONGEST], row.cut, tuple(p for p in row.places if p < LONGEST))
        for row in rows[:COUNT]
    ]
    batch = lesson.batch(chosen)
    probes = {"input.ids": batch.ids, "input.mask": batch.mask, "input.target": batch.target}
    probes = {name: tensor.to("cpu", torch.int32) for name, tensor in probes.items()}
    outputs = answer(lesson, probes, added)
    return {**probes, **outputs}, digest(outputs)


@torch.no_grad()
def answer(lesson: Lesson, probes: dict[str, Tensor], added) -> dict[str, Tensor]:
    """Answer the probe inputs again: logits, or losses and generated ids where the logits are a vocabulary wide."""
    ids, mask, target = (probes[f"input.{name}"].long() for name in ("ids", "mask", "target"))
    batch = Batch(ids, mask, target, tuple(range(len(ids)))).to(lesson.backbone.device)
    lesson.head.eval()
    lesson.backbone.model.eval()
    logits = lesson.logits(batch, added).float()
    if not lesson.kind.by_loss:
        return {"output.logits": logits.cpu()}
    losses = lesson.kind.row_losses(logits, batch).float().cpu()
    limits = {"max_tokens": LONGEST, "min_tokens": 1, "beams": 1, "no_repeat": 0}
    texts = lesson.backbone.generate(batch.ids, batch.mask, added, **limits)
    words = [F.pad(torch.tensor(t[:LONGEST], dtype=torch.int32), (0, LONGEST - len(t[:LONGEST]))) for t in texts]
    return {"output.losses": losses, "output.ids": torch.stack(words)}


def digest(outputs: dict[str, Tensor]) -> str:
    total = hashlib.sha256()
    for name in sorted(outputs):
        total.update(name.encode() + _bytes(outputs[name]))
    return total.hexdigest()


def compare(lesson: Lesson, probes: dict[str, Tensor], added, made_in: dict[str, str]) -> Comparison:
    """Answer again and compare with what was recorded."""
    now = answer(lesson, probes, added)
    same = environment(lesson.backbone.device, lesson.backbone.model.dtype) == made_in
    changed, largest = 0, 0.0
    for name, tensor in now.items():
        old = probes[name]
        if old.shape != tensor.shape:
            return Comparison("changed", len(tensor), tensor.numel(), float("inf"), same)
        changed += sum(a != b for a, b in zip(_bytes(old), _bytes(tensor), strict=True))
        if tensor.is_floating_point():
            largest = max(largest, float((old - tensor).abs().nan_to_num(nan=float("inf")).max()))
        elif same and not torch.equal(old, tensor):
            largest = float("inf")
    outputs = sum(tensor.numel() for tensor in now.values())
    if changed == 0:
        return Comparison("equal", outputs, 0, 0.0, same)
    status = "close" if not same and largest <= TOLERANCE else "changed"
    return Comparison(status, outputs, changed, largest, same)


def _bytes(tensor: Tensor) -> bytes:
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()
