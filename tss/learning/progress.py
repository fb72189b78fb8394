"""What a training tells while it is under way, and what became of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """Told to whoever watches. dev: the latest dev score (or minus the dev loss); phase: what is going on."""

    task: str
    step: int
    steps: int
    loss: float
    dev: float | None
    best: float | None
    phase: str = "learning"


@dataclass(frozen=True)
class Outcome:
    """curve: [step, training loss, dev score or None] at every evaluation."""

    steps: int
    planned: int
    best_step: int
    dev: float
    dev_loss: float
    seconds: float
    skipped: int
    pieces: int  # more than asked for: batches were cut because memory ran out
    resumed: bool
    troubles: list[str]  # what was slower or less repeatable than it should be
    curve: list[list[float | None]]


Watch = Callable[[Progress], None]
