"""Two processes train a cell together and get what one process gets."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from small_grid import OPTIONS, small_grid, write_tasks
from tiny import tiny_path

from tss.bench.plan import Plan, make_plan
from tss.bench.run import run_grid
from tss.bench.sequence import read_header, read_log
from tss.learner import Learner

METHODS = ["tss", "ncl"]  # popup scores; the whole model


@pytest.fixture(scope="module")
def listing(tmp_path_factory) -> Path:
    return write_tasks(tmp_path_factory.mktemp("tasks"))


@pytest.fixture(scope="module")
def backbone(tmp_path_factory) -> str:
    """Without dropout, which is drawn anew on every process."""
    folder = tmp_path_factory.mktemp("backbone") / "bart"
    shutil.copytree(tiny_path("bart"), folder)
    config = json.loads((folder / "config.json").read_text())
    dropouts = {key: 0.0 for key in config if "dropout" in key}
    assert dropouts
    (folder / "config.json").write_text(json.dumps({**config, **dropouts}))
    return str(folder)


def launched(listing: Path, runs: Path, backbone: str, *more: str) -> subprocess.CompletedProcess[str]:
    settings = [word for key, value in OPTIONS.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    command += [
        "--main_process_port",
        "0",
        "-m",
        "tss",
        "bench",
        "run",
        "--data",
        ".",
        "--out",
        str(runs),
        "--sequences",
        str(listing),
        "--orders",
        "0",
    ]
    command += ["--methods", ",".join(METHODS), "--backbone", backbone, "--device", "cpu", *settings, *more]
    scratch = runs.parent / "scratch"
    scratch.mkdir()
    env = {**os.environ, "TMPDIR": str(scratch)}
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=env, timeout=300)


def close(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    # A key's bias moves all scores of a softmax alike: its gradient is rounding, which Adam makes into steps.
    for key, tensor in ((key, tensor) for key, tensor in one.items() if not key.endswith("k_proj.bias")):
        assert torch.allclose(tensor.float(), other[key].float(), atol=2e-5), key


def test_two_processes_equal_one(listing: Path, backbone: str, tmp_path: Path):
    plan: Plan = make_plan([str(listing)], [0], METHODS, [0])
    together, alone = (small_grid(tmp_path / name, backbone=backbone) for name in ("together", "alone"))
    ended = launched(listing, tmp_path / "together", backbone)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert "2 cells run" in ended.stderr and ended.stderr.count("cells run") == 1  # one of them speaks
    assert run_grid(plan, alone).failed == {}
    for cell in plan.cells:
        assert (read_header(together.log(cell)) or {})["processes"] == 2
        ours, theirs = (read_log(grid.log(cell)) for grid in (together, alone))
        assert [(line["task"], line["examples"]) for line in ours] == [(e["task"], e["examples"]) for e in theirs]
        for line, other in zip(ours, theirs, strict=True):
            assert line["row"] == pytest.approx(other["row"], abs=1e-3)
            assert line["curve"] == [pytest.approx(point, abs=2e-4) for point in other["curve"]]
        stores = [Learner.open(grid.store(cell)).store for grid in (together, alone)]
        close(stores[0].read_shared(), stores[1].read_shared())
        for line in ours:
            records = [store.read(line["task"]) for store in stores]
            close(records[0].tensors, records[1].tensors)
    assert not list((tmp_path / "scratch").glob("tss-rank-*"))
