"""Grids that run, are cut, go on and fail in part; and that the numbers are the same in the end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from small_grid import METHODS, OPTIONS, small_grid, write_tasks
from tiny import tiny_path

from tss.bench import run as running
from tss.bench.cell import Backbones, Grid
from tss.bench.collect import documents, read_runs, sequences
from tss.bench.plan import Cell, Plan, make_plan
from tss.bench.run import Job, run_grid, run_jobs
from tss.bench.sequence import read_header, read_log
from tss.bench.table import tables
from tss.errors import ConfigError, StoreError
from tss.learner import Learner
from tss.report.page import write_page


@pytest.fixture(scope="module")
def listing(tmp_path_factory) -> Path:
    return write_tasks(tmp_path_factory.mktemp("tasks"))


@pytest.fixture(scope="module")
def plan(listing: Path) -> Plan:
    return make_plan([str(listing)], [0, 1], METHODS, [0])


@pytest.fixture(scope="module")
def whole(tmp_path_factory, plan: Plan) -> Grid:
    """A grid that was run without a break."""
    grid = small_grid(tmp_path_factory.mktemp("whole"))
    finished = run_grid(plan, grid)
    assert finished.failed == {} and len(finished.done) == len(plan.cells) == 2 + 2 + 3 + 3
    return grid


def numbers(grid: Grid, cell: Cell) -> list[dict[str, Any]]:
    """The lines of a cell without what a clock or a store decides."""
    lines = read_log(grid.log(cell))
    for line in lines:
        del line["facts"]["seconds"], line["facts"]["seconds_beside"]
        del line["file"], line["bytes"], line["wall"]  # a task's file also holds how long it took
    return lines


def test_lines_hold_what_was_measured(whole: Grid, plan: Plan):
    cells = {cell.key: cell for cell in plan.cells}
    forgets = read_log(whole.log(cells["ncl-adapter.mixed.o0.s0"]))
    assert [len(line["row"]) for line in forgets] == [1, 2, 3] and None not in forgets[1]["row"]
    assert set(forgets[-1]["final_scores"]) == {line["task"] for line in forgets[:2]}
    once = read_log(whole.log(cells["ncl-adapter.mixed.o1.s0"]))
    assert once[1]["row"][0] is None and None not in once[2]["row"]
    kept = read_log(whole.log(cells["tss.mixed.o0.s0"]))
    assert kept[2]["row"][:2] == [next(iter(line["scores"].values())) for line in kept[:2]]
    assert sum(line["proof"]["comparisons"] for line in kept) == 2 and kept[2]["proof"]["changed_bytes"] == 0
    spots = [spot for line in kept for spot in line["spot"]]
    assert spots and all(spot["equal"] for spot in spots)
    header = read_header(whole.log(cells["tss.mixed.o0.s0"]))
    assert header and header["config"]["max_steps"] == OPTIONS["max_steps"] and header["environment"]["torch"]


def test_what_is_done_is_skipped(whole: Grid, plan: Plan):
    finished = run_grid(plan, whole)
    assert (finished.done, len(finished.skipped)) == ([], len(plan.cells))


def test_a_runner_killed_in_the_middle_goes_on_to_the_same_numbers(
    whole: Grid, plan: Plan, listing: Path, tmp_path: Path
):
    grid = small_grid(tmp_path / "runs")
    command = [sys.executable, str(Path(__file__).with_name("grid_runner.py"))]
    process = subprocess.Popen(
        [*command, grid.runs, str(listing), grid.backbone], stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    assert process.stdout
    for event in process.stdout:  # in the second task of a method that forgets, after its first checkpoint
        if event.split() == ["ncl-adapter.mixed.o0.s0", "step", "own/tagging", "3"]:
            os.kill(process.pid, signal.SIGKILL)
            break
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    cut = next(cell for cell in plan.cells if cell.key == "ncl-adapter.mixed.o0.s0")
    assert len(read_log(grid.log(cut))) == 1
    with open(grid.log(cut), "a", encoding="utf-8") as log:
        log.write('{"task": "own/tag')  # and a line that never got to its end
    finished = run_grid(plan, grid)
    assert finished.failed == {} and cut.key in finished.done and "tss.mixed.o0.s0" in finished.skipped
    for cell in plan.cells:
        assert numbers(grid, cell) == numbers(whole, cell), cell.key


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_killed_process_is_replaced_and_no_cell_counts_twice(whole: Grid, plan: Plan, tmp_path: Path, count: int):
    grid = small_grid(tmp_path / "runs")
    part = Plan(plan.asked, plan.methods, plan.seeds, plan.cells[:count])
    killed: list[int] = []
    pids: dict[str, int] = {}
    events: list[tuple[str, str]] = []

    def listen(cell: Cell, what: str, details: dict[str, Any]) -> None:
        events.append((cell.key, what))
        if what == "begun":
            pids[cell.key] = details["pid"]
        if what == "step" and cell is part.cells[0] and not killed and details["task"] == "own/tagging":
            killed.append(pids[cell.key])
            os.kill(pids[cell.key], signal.SIGKILL)

    finished = run_grid(part, grid, jobs=2, listen=listen)
    assert len(killed) == 1 and events.count((part.cells[0].key, "retried")) == 1
    assert sorted(finished.done) == sorted(cell.key for cell in part.cells) and not finished.failed
    for cell in part.cells:
        assert events.count((cell.key, "done")) == 1
        assert numbers(grid, cell) == numbers(whole, cell)


@pytest.mark.parametrize("jobs", [1, 2])
def test_when_time_is_up_cells_are_left_and_the_next_call_ends_them(
    whole: Grid, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
):
    grid = small_grid(tmp_path / "runs")
    part = Plan(plan.asked, plan.methods, plan.seeds, plan.cells[:2])
    clock = [0.0]
    monkeypatch.setattr(running, "monotonic", lambda: clock[0])

    def listen(cell: Cell, what: str, details: dict[str, Any]) -> None:
        if what == "task":  # the first task of a cell is learnt
            clock[0] = 100.0

    finished = run_grid(part, grid, jobs=jobs, listen=listen, seconds=60.0)
    assert finished.failed == {} and finished.done == []
    again = run_grid(part, grid)
    assert (again.failed, len(again.done) + len(again.skipped)) == ({}, 2)
    for cell in part.cells:
        assert numbers(grid, cell) == numbers(whole, cell)


def test_a_failure_does_not_stop_the_others(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    honest = running.run_cell

    def breaking(cell: Cell, *rest: Any, **more: Any) -> None:
        if cell.method == "supsup" and "tagging" in cell.key:
            raise RuntimeError("out of luck")
        honest(cell, *rest, **more)

    monkeypatch.setattr(running, "run_cell", breaking)
    part = Plan(plan.asked, plan.methods, plan.seeds, tuple(cell for cell in plan.cells if cell.method == "supsup"))
    grid = small_grid(tmp_path / "runs")
    finished = run_grid(part, grid)
    (failed,) = finished.failed
    assert "tagging" in failed and finished.failed[failed] == "RuntimeError: out of luck" and len(finished.done) == 2
    assert "out of luck" in (tmp_path / "runs" / f"{failed}.error.txt").read_text()
    monkeypatch.undo()
    again = run_grid(part, grid)
    assert again.done == [failed] and len(again.skipped) == 2 and not list((tmp_path / "runs").glob("*.error.txt"))


def test_a_process_that_is_started_as_time_runs_out_is_stopped_too(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    begun: list[subprocess.Popen[str]] = []
    usual = running._Processes._start

    def late(self, number: int, grid: Grid) -> subprocess.Popen[str]:
        sleep(0.5)
        begun.append(usual(self, number, grid))
        return begun[-1]

    monkeypatch.setattr(running._Processes, "_start", late)
    before = threading.active_count()
    finished = run_grid(plan, small_grid(tmp_path / "runs"), jobs=2, seconds=0.1)
    assert begun and not finished.done and not finished.failed
    assert all(process.poll() is not None for process in begun) and threading.active_count() == before


def test_cells_of_several_grids_share_processes(plan: Plan, whole: Grid, tmp_path: Path):
    """The same cell in two grids of other settings: each in its own folder, with its own numbers."""
    cell = next(cell for cell in plan.cells if cell.method == "supsup")
    grids = [small_grid(tmp_path / f"{steps}", options={**OPTIONS, "max_steps": steps}) for steps in (4, 2)]
    for grid in grids:
        Path(grid.runs).mkdir()
    told: list[tuple[str, str]] = []
    jobs = [Job(cell, grid) for grid in grids]
    run_jobs(jobs, 1, lambda job, what, details: told.append((job.grid.runs, what)))
    assert [one for one in told if one[1] in ("done", "failed")] == [(grid.runs, "done") for grid in grids]
    assert numbers(grids[0], cell) == numbers(whole, cell)
    assert [read_log(grid.log(cell))[0]["facts"]["steps"] for grid in grids] == [4, 2]


def test_folders_of_one_family_are_learnt_together(listing: Path, tmp_path: Path):
    copied = Path(shutil.copytree(listing.parent, tmp_path / "tasks"))
    for file in copied.glob("*/task.json"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "family": "all alike"}))
    grid, plan = small_grid(tmp_path / "runs"), make_plan([str(copied / listing.name)], [0, 1], ["mtl-adapter"], [0])
    assert run_grid(plan, grid).done == [plan.cells[0].key] and len(read_log(grid.log(plan.cells[0]))) == 3


def test_other_settings_need_another_folder(whole: Grid, plan: Plan):
    with pytest.raises(StoreError, match="limit_test"):
        run_grid(plan, small_grid(Path(whole.runs), limit_test=3))
    with pytest.raises(ConfigError, match="no_such_option"):
        run_grid(plan, small_grid(Path(whole.runs), options={"no_such_option": 1}))


def test_a_lost_store_is_begun_anew(whole: Grid, plan: Plan, tmp_path: Path):
    runs = tmp_path / "runs"
    shutil.copytree(whole.runs, runs)
    grid = small_grid(runs)
    cell = plan.cells[0]
    lines = grid.log(cell).read_text().splitlines(keepends=True)
    grid.log(cell).write_text("".join(lines[:2]))  # header and one task
    shutil.rmtree(grid.store(cell))
    assert run_grid(plan, grid).done == [cell.key]
    assert numbers(grid, cell) == numbers(whole, cell)
    assert json.loads((runs / "grid.json").read_text())["methods"] == list(METHODS)


def test_tables_and_pages_of_a_grid(whole: Grid, tmp_path: Path):
    runs = read_runs(whole.runs)
    own = next(table for table in tables(runs) if table.title == "Sequence mixed")
    assert {row[0] for row in own.rows} == {"TSS", "NCL (Adapter)", "SupSup", "MTL (Adapter)"}
    assert next(row for row in own.rows if row[0] == "TSS")[own.columns.index("FR")] == "0.00 ± 0.00"
    (sequence,) = sequences(runs)
    text = write_page(documents(runs, sequence), tmp_path / "page.html").read_text()
    assert "SupSup" in text and "0 bytes changed" in text


def test_a_backbone_is_lent_only_to_cells_that_load_it_alike(tmp_path: Path):
    """What a method trains is held in float32; the frozen backbone of other methods has the precision asked for."""
    backbones, found = Backbones(), []
    for name in ("supsup", "ncl", "one", "hat", "supsup"):
        learner = Learner.open(
            tmp_path / f"{len(found)}",
            method=name,
            backbone=tiny_path("bart"),
            device="cpu",
            config={"precision": "bfloat16"},
        )
        backbones.lend(learner)
        found.append(learner.backbone)
    assert [str(one.model.dtype) for one in found] == [
        f"torch.{kind}" for kind in ("bfloat16", "float32", "float32", "bfloat16", "bfloat16")
    ]
    assert found[1] is found[2] and found[3] is found[4]  # and where they do, it is
