"""Options of training, and what follows from them: how many steps, which learning rate when."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from tss.errors import ConfigError

PRECISIONS = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class LearningConfig:
    epochs: int = 50
    min_steps: int = 200  # tiny dev sets make early stops a coin flip
    max_steps: int = 0  # 0: as many as the epochs make
    batch_size: int = 32
    accumulation: int = 1  # a batch in so many pieces: the same maths in less memory
    warmup: float = 0.1  # share of all planned steps
    patience: int = 5  # evaluations without a better dev score, counted from the end of the warm-up
    eval_steps: int = 50  # evaluate every max(1 epoch, this many steps)
    dev_examples: int = 500
    select: str = "dev"  # "last": keep the last state, whatever dev says
    head_lr: float = 2.75e-3
    adam_eps: float = 1e-8
    adam_eps_uncorrected: bool = False  # add it to the uncorrected root, as the old transformers AdamW did
    balance: float = 0.0  # 1: a rare label counts as much as a common one, as in macro-F1 (`Lesson.balance`)
    clip: float = 0.0  # 0: no clipping; the unmasked gradient is clipped
    bad_steps: int = 5  # so many losses in a row that are no numbers end the training
    checkpoint_steps: int = 100
    compile: bool = False  # compile the loss: takes minutes once, pays for large backbones; rounds differently
    packed: bool = False  # rows of a batch in fewer, fuller ones: little padding; rounds differently, drops others
    record: bool = True  # on a GPU: replay steps as CUDA graphs; the numbers are the same
    precision: str = "float32"  # of the backbone; scores, heads and importance are always float32

    def __post_init__(self) -> None:
        least = dict.fromkeys(("epochs", "batch_size", "accumulation", "patience", "eval_steps", "dev_examples"), 1)
        least |= {"bad_steps": 1, "checkpoint_steps": 1, "min_steps": 0, "max_steps": 0, "clip": 0, "balance": 0}
        for key, value in least.items():
            if getattr(self, key) < value:
                raise ConfigError(f"{key} must be at least {value}, not {getattr(self, key)}")
        for key in ("head_lr", "adam_eps"):
            if not 0.0 < getattr(self, key) < float("inf"):
                raise ConfigError(f"{key} must be above 0, not {getattr(self, key)}")
        if not 0.0 <= self.warmup < 1.0:
            raise ConfigError(f"warmup is a share of the steps, from 0 to below 1, not {self.warmup}")
        if self.select not in ("dev", "last"):
            raise ConfigError(f"select {self.select!r} is not one of dev, last")
        if self.precision not in PRECISIONS:
            raise ConfigError(f"precision {self.precision!r} is not one of {', '.join(PRECISIONS)}")
        if self.max_steps and self.max_steps < self.min_steps:
            object.__setattr__(self, "min_steps", self.max_steps)  # asking for fewer steps is telling otherwise

    def planned(self, batches_per_epoch: int, tasks: int = 1) -> int:
        """Steps of a task, or of so many learnt together, if nothing stops it early. Limits are of one task."""
        steps = max(self.epochs * batches_per_epoch, tasks * self.min_steps)
        return min(steps, tasks * self.max_steps) if self.max_steps else steps

    def warm_steps(self, total: int) -> int:
        return ceil(self.warmup * total)

    def factor(self, step: int, total: int) -> float:
        """Learning rate at `step` (from 0), relative to its peak: linear up, then linear down to 0."""
        warm = self.warm_steps(total)
        if step < warm:
            return (step + 1) / warm
        return (total - step) / max(total - warm, 1)
