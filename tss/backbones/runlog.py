"""The log of a pretraining run: one JSON object a line, appended as the run goes, read back for the model card."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tss.errors import BackboneError

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


def read_log(path: Path) -> list[dict]:
    """The lines of a run's log. Raises: BackboneError if there is none or it holds no finished run."""
    try:
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    except (OSError, json.JSONDecodeError) as error:
        raise BackboneError(f"cannot read the log {path}: {error}") from error
    if not any(line["event"] == "end" for line in lines):
        raise BackboneError(f"the log {path} holds no finished run; finish it before writing its card")
    return lines


def whole_curve(lines: Sequence[Mapping]) -> list[dict]:
    """`lines` with steps, tokens and seconds counted on through all runs of the log: a model may be trained further."""
    offset = {"step": 0.0, "tokens": 0.0, "seconds": 0.0}
    counted = []
    for line in lines:
        counted.append({**line, **{key: line[key] + offset[key] for key in offset if key in line}})
        if line["event"] == "end":
            offset = {key: counted[-1][key] for key in offset}
    return counted
