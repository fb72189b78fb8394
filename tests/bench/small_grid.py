"""A grid small enough for tests: three toy task folders, a list of them, the tiny backbone, a few steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tiny import tiny_path
from toy_tasks import LENGTHS, toy

from tss.bench.cell import Grid

KINDS = ("pair", "tagging", "generation")
METHODS = ("tss", "ncl-adapter", "supsup", "mtl-adapter")
OPTIONS: dict[str, Any] = {
    "max_steps": 4,
    "eval_steps": 2,
    "batch_size": 8,
    "checkpoint_steps": 2,
    "bottleneck": 4,
    "adapter_std": 0.2,
    "head_lr": 3e-2,
}


def write_tasks(folder: Path) -> Path:
    """The task folders, and the list of them, which is returned."""
    for kind in KINDS:
        task = toy(kind, f"own/{kind}")
        place = folder / kind
        place.mkdir(parents=True)
        about = {"name": task.name, "kind": task.kind, "lengths": LENGTHS, "family": task.kind}
        (place / "task.json").write_text(json.dumps(about))
        for split in ("train", "valid", "test"):
            rows = [_row(task.kind, example) for example in getattr(task, split)]
            (place / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    listing = folder / "mixed.txt"
    listing.write_text("\n".join(KINDS) + "\n")
    return listing


def _row(kind: str, example) -> dict[str, Any]:
    if kind == "tagging":
        return {"tokens": list(example.input), "tags": list(example.target)}
    if kind == "generation":
        return {"source": example.input[0], "target": example.target}
    return {"text": example.input[0], "pair": example.input[1], "label": example.target}


def small_grid(runs: Path, **changes: Any) -> Grid:
    given: dict[str, Any] = {"data": ".", "backbone": str(tiny_path("bart")), "options": OPTIONS, "device": "cpu"}
    return Grid(runs=str(runs), **{**given, **changes})
