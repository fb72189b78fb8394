"""Losses and scores in the trackers people look at already, through accelerate's trackers.

TensorBoard writes into the folder given. MLflow and Weights & Biases go where their own settings say (for example
MLFLOW_TRACKING_URI, WANDB_MODE).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tss.errors import ConfigError, nearest

if TYPE_CHECKING:
    from tss.learning.progress import Progress

TRACKERS = ("tensorboard", "mlflow", "wandb")
PROJECT = "tss"  # the experiment of MLflow, the project of Weights & Biases
EVERY = 10  # steps between two losses; a tracker may be a server far away


def check_trackers(names: Sequence[str]) -> None:
    """Raises ConfigError for a name that is no tracker, or one whose package is not installed."""
    for name in names:
        if name not in TRACKERS:
            raise ConfigError(f"unknown tracker {name!r}{nearest(name, TRACKERS)}")
        for package in ("accelerate", name):
            if find_spec(package) is None:
                raise ConfigError(f"tracking with {name} needs the package {package}: pip install accelerate {name}")


class Track:
    """One run: `watch` is told of every step, `scores` of every task learnt. Steps of all its tasks are counted on."""

    def __init__(self, names: Sequence[str], folder: Path, run: str, config: Mapping[str, Any]):
        check_trackers(names)
        folder.mkdir(parents=True, exist_ok=True)
        self._trackers = [_made(name, folder, _plain(run)) for name in names]
        self._losses: list[float] = []
        self._task, self._before, self._step = "", 0, 0
        values = {key: v if isinstance(v, (bool, int, float, str)) else str(v) for key, v in config.items()}
        for tracker in self._trackers:
            tracker.start()
            tracker.store_init_configuration(values)

    def watch(self, now: Progress) -> None:
        if now.phase != "learning":
            return
        if now.task != self._task:
            self._task, self._before = now.task, self._step
        self._step = self._before + now.step
        self._losses.append(now.loss)
        if now.dev is not None or now.step % EVERY == 0:
            values = {"loss": sum(self._losses) / len(self._losses)}
            self._losses.clear()
            self._log(values if now.dev is None else {**values, "dev": now.dev})

    def scores(self, task: str, scores: Mapping[str, float]) -> None:
        self._log({f"test/{_plain(task)}/{metric}": value for metric, value in scores.items()})

    def _log(self, values: dict[str, float]) -> None:
        for tracker in self._trackers:
            tracker.log(values, step=self._step)

    def close(self) -> None:
        for tracker in self._trackers:
            tracker.finish()


@contextmanager
def tracked(names: Sequence[str], folder: Path, run: str, config: Mapping[str, Any]) -> Iterator[Track | None]:
    """A run that ends with the block; None where no tracker is asked for."""
    if not names:
        yield None
        return
    track = Track(names, folder, run, config)
    try:
        yield track
    finally:
        track.close()


def _made(name: str, folder: Path, run: str) -> Any:
    from accelerate import tracking

    if name == "tensorboard":
        return tracking.TensorBoardTracker(run, logging_dir=str(folder))
    if name == "mlflow":
        return tracking.MLflowTracker(PROJECT, run_name=run)
    return tracking.WandBTracker(PROJECT, name=run, dir=str(folder))


def _plain(text: str) -> str:
    """As part of a file's or a metric's name, which not every tracker takes as it is."""
    return re.sub(r"[^\w./-]+", "-", text, flags=re.ASCII).strip("./-") or "unnamed"
