"""The Trainer of transformers as a peer: the same adapters trained directly, every text padded to the longest possible.

What it is spared: tokens are padded once, beforehand; no logging, no saving, no clipping, no progress bar; weights and
batches are in the precision of the device's benchmarks, not cast at every step.
"""

from __future__ import annotations

import copy
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch.nn.functional as F
from ratio import collected, synchronise
from torch import Tensor, nn
from transformers import Trainer, TrainerCallback, TrainingArguments, default_data_collator

from tss import Learner
from tss.backbones.backbone import Pass
from tss.tasks.batches import Batch
from tss.tasks.lesson import Lesson

WARM = 2  # epochs; the first compiles


class Direct(nn.Module):
    """A lesson's loss with trained adapters; backbone and kind of task are the benchmark's, the head a copy."""

    def __init__(self, learner: Learner, lesson: Lesson):
        super().__init__()
        bank: Any = learner.method.bank
        flat = bank.near_identity("direct").to(learner.backbone.device, learner.backbone.model.dtype)
        self.matrices = nn.ParameterList([nn.Parameter(m.clone()) for m in bank.matrices(flat)])
        own = copy.copy(lesson)
        own.head = self.head = copy.deepcopy(lesson.head)
        self.functions = [self._function(i) for i in range(bank.count)]
        self.loss = own.loss

    def _function(self, i: int) -> Callable[[Tensor], Tensor]:
        down, up = self.matrices[2 * i], self.matrices[2 * i + 1]
        return lambda x: F.linear(F.relu(F.linear(x, down)), up)

    def forward(self, ids: Tensor, mask: Tensor, target: Tensor) -> dict[str, Tensor]:
        return {"loss": self.loss(Batch(ids, mask, target, ()), Pass(self.functions))}


class Turns(TrainerCallback):
    """Times every epoch, and a turn of `ours` after each."""

    def __init__(self, device: str, ours: Callable[[], Any]):
        self.device, self.between = device, ours
        self.clock = time.perf_counter if device == "cuda" else time.process_time
        self.theirs: list[float] = []
        self.ours: list[float] = []

    def _now(self) -> float:
        synchronise(self.device)
        return self.clock()

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        self.began = self._now()

    def on_epoch_end(self, *_: Any, **__: Any) -> None:
        self.theirs.append(1e3 * (self._now() - self.began))
        with collected():
            begin = self._now()
            self.between()
            self.ours.append(1e3 * (self._now() - begin))


def epochs(
    learner: Learner, lesson: Lesson, batches: Sequence[Batch], ours: Callable[[], Any], rounds: int, compiled: bool
) -> tuple[float, float]:
    """Median milliseconds of an epoch of the Trainer and of ours, taking turns. batches: those of one epoch, padded."""
    device = learner.backbone.device.type
    rows = [
        {"ids": ids, "mask": mask, "target": target}
        for batch in batches
        for ids, mask, target in zip(batch.ids.cpu(), batch.mask.cpu(), batch.target.cpu(), strict=True)
    ]
    turns = Turns(device, ours)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=len(batches[0]), num_train_epochs=rounds + WARM, learning_rate=1e-5,
            weight_decay=0.0, max_grad_norm=0.0, optim="adamw_torch_fused", lr_scheduler_type="constant",
            logging_strategy="no", save_strategy="no", report_to=[], disable_tqdm=True, remove_unused_columns=False,
            torch_compile=compiled, use_cpu=device == "cpu",
        )  # fmt: skip
        model = Direct(learner, lesson)
        Trainer(model, arguments, default_data_collator, rows, callbacks=[turns]).train()  # type: ignore[arg-type]
    assert len(turns.theirs) == rounds + WARM
    return statistics.median(turns.theirs[WARM:]), statistics.median(turns.ours[WARM:])
