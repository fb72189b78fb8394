"""The log of a pretraining run: one JSON object a line, appended as the run goes, read back for the model card."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

Progress = Callable[[dict], None]
NAME = "log.jsonl"


def logger(out: Path, on_progress: Progress | None) -> Callable[[dict], None]:
    def log(line: dict) -> None:
        with (out / NAME).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if on_progress:
            on_progress(line)

    return log


def trim_log(out: Path, step: float) -> None:
    """Forget what was logged after the checkpoint, since it is done again."""
    path = out / NAME
    if path.exists():
        lines = [line for line in path.read_text("utf-8").splitlines() if json.loads(line).get("step", 0) <= step]
        path.write_text("".join(line + "\n" for line in lines), "utf-8")
