"""A grid on a Ray cluster of this machine: the same numbers as without Ray, even when a worker is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from small_grid import OPTIONS, small_grid, write_tasks

from tss.bench.cell import Grid
from tss.bench.collect import read_runs
from tss.bench.formats import Table
from tss.bench.plan import Cell, make_plan
from tss.bench.ray_run import SHARE, Cluster
from tss.bench.run import run_grid
from tss.bench.sequence import read_log
from tss.bench.table import tables
from tss.errors import ConfigError, TssError

# Enough steps that a worker can be killed in the middle of a task.
LONGER = {**OPTIONS, "max_steps": 40, "eval_steps": 40, "checkpoint_steps": 5}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    yield Cluster("auto")
    ray.shutdown()


def numbers(grid: Grid) -> list[Table]:
    """All tables but the one that a clock decides."""
    return [table for table in tables(read_runs(grid.runs)) if table.title != "Cost of a task"]


@pytest.mark.slow  # each worker of a cluster has to load torch first
def test_a_worker_killed_in_the_middle(cluster: Cluster, tmp_path: Path):
    listing = write_tasks(tmp_path / "tasks")
    plan = make_plan([str(listing)], [0], ["tss", "supsup"], [0])
    first = plan.cells[0]
    on_ray, alone = (small_grid(tmp_path / name, options=LONGER) for name in ("ray", "alone"))
    events: list[tuple[str, str]] = []
    pids: dict[str, int] = {}
    killed: list[int] = []

    def listen(cell: Cell, what: str, details: dict[str, Any]) -> None:
        events.append((cell.key, what))
        if what == "begun":
            pids[cell.key] = details["pid"]
        if what == "step" and cell.key == first.key and details["task"] == "own/tagging" and not killed:
            killed.append(pids[first.key])
            os.kill(pids[first.key], signal.SIGKILL)
            assert len(read_log(on_ray.log(first))) == 1, "the second task was to be cut"

    finished = run_grid(plan, on_ray, listen=listen, cluster=cluster)
    assert finished.failed == {} and sorted(finished.done) == sorted(cell.key for cell in plan.cells)
    assert killed and [key for key, what in events if what == "retried"] == [first.key]
    assert all(events.count((cell.key, "done")) == 1 for cell in plan.cells)
    run_grid(plan, alone)
    assert numbers(on_ray) == numbers(alone)
    assert run_grid(plan, on_ray, cluster=cluster).skipped == [cell.key for cell in plan.cells]


def test_what_a_cell_asks_for():
    one_gpu = {"CPU": 16.0, "GPU": 1.0}
    assert Cluster().resources(one_gpu, None) == {"num_gpus": SHARE, "num_cpus": 1.0}
    assert Cluster().resources(one_gpu, "cpu")["num_gpus"] == Cluster().resources({"CPU": 2.0}, None)["num_gpus"] == 0
    assert Cluster(gpus=0.5, cpus=4).resources(one_gpu, "cuda") == {"num_gpus": 0.5, "num_cpus": 4}
    with pytest.raises(ConfigError, match="--gpus-per-cell"):
        Cluster(gpus=0.5).resources({"CPU": 2.0}, None)


def test_no_cluster_there(tmp_path: Path):
    pytest.importorskip("ray")
    plan = make_plan([str(write_tasks(tmp_path / "tasks"))], [0], ["tss"], [0])
    with pytest.raises(TssError, match="no Ray cluster at 127.0.0.1:1: ConnectionRefused"):
        run_grid(plan, small_grid(tmp_path / "runs"), cluster=Cluster("127.0.0.1:1"))
    with pytest.raises(ConfigError, match="neither auto nor an address"):
        run_grid(plan, small_grid(tmp_path / "runs"), cluster=Cluster("nowhere"))
