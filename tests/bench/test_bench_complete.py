"""What a grid lacks is found, planned with the settings of its other cells, run, and put beside what was there."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from made_up_runs import write_runs
from small_grid import OPTIONS, small_grid, write_tasks
from tiny import tiny_path
from typer.testing import CliRunner

from tss.bench.collect import Runs, read_runs
from tss.bench.complete import missing, settings, told
from tss.bench.pack import pack
from tss.bench.plan import make_plan
from tss.bench.run import run_grid
from tss.bench.sequence import read_header, read_log
from tss.cli import app
from tss.errors import ConfigError, StoreError

SINGLE = {"ncl-adapter": {"adapter_lr": 2e-3}, "tss": {"score_lr": 0.02}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A grid of two orders, in which each of two methods has an option of its own."""
    listing = write_tasks(tmp_path_factory.mktemp("tasks"))
    grid = small_grid(tmp_path_factory.mktemp("whole"), each=SINGLE)
    assert not run_grid(make_plan([str(listing)], [0, 1], ["tss", "ncl-adapter", "supsup"], [0]), grid).failed
    return Path(grid.runs)


@pytest.fixture
def cut(whole: Path, tmp_path: Path) -> Path:
    """Packed, without one cell, and with another after its second task."""
    runs = Path(shutil.copytree(whole, tmp_path / "cut", ignore=shutil.ignore_patterns("stores")))
    log = runs / "ncl-adapter.mixed.o1.s0.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:3]))
    (runs / "tss.mixed.o0.s0.jsonl").unlink()
    pack([runs], tmp_path / "cut.jsonl.xz")
    return tmp_path / "cut.jsonl.xz"


def words(*given: str) -> list[str]:
    return ["bench", "complete", *given, "--backbone", str(tiny_path("bart")), "--device", "cpu"]


def test_a_whole_grid_lacks_nothing(whole: Path):
    assert missing(read_runs(whole)).cells == ()
    said = CliRunner().invoke(app, words(str(whole), "--dry-run"))
    assert said.exit_code == 0 and "to its end" in said.output


def test_what_is_lacking_is_run_with_its_methods_own_settings_to_the_same_numbers(
    whole: Path, cut: Path, tmp_path: Path
):
    more = tmp_path / "more"
    said = CliRunner().invoke(app, words(str(cut), "--data", ".", "--out", str(more), "--no-triangle"))
    assert said.exit_code == 0 and "2 cells run, 0 were done before, 0 failed" in said.output, said.output
    assert sorted(log.stem for log in more.glob("*.jsonl")) == ["ncl-adapter.mixed.o1.s0", "tss.mixed.o0.s0"]
    for cell, key, value in (("ncl-adapter.mixed.o1.s0", "adapter_lr", 2e-3), ("tss.mixed.o0.s0", "score_lr", 0.02)):
        now, then = (read_header(runs / f"{cell}.jsonl") for runs in (more, whole))
        assert now and then and now["config"] == then["config"]
        assert (now["config"][key], now["config"]["max_steps"]) == (value, OPTIONS["max_steps"])
        both = [[line["scores"] for line in read_log(runs / f"{cell}.jsonl")] for runs in (more, whole)]
        assert both[0] == both[1] and len(both[0]) == 3
    pack([cut, more], tmp_path / "both.jsonl.xz")
    both_runs = read_runs(tmp_path / "both.jsonl.xz")
    assert missing(both_runs).cells == () and both_runs.grid["settings"] == read_runs(cut).grid["settings"]


def test_only_what_is_wanted_is_completed(cut: Path):
    runs = read_runs(cut)
    assert [cell.key for cell in missing(runs).cells] == ["tss.mixed.o0.s0", "ncl-adapter.mixed.o1.s0"]
    assert [cell.key for cell in missing(runs, {"methods": ["tss"]}).cells] == ["tss.mixed.o0.s0"]
    assert [cell.key for cell in missing(runs, {"orders": [1]}).cells] == ["ncl-adapter.mixed.o1.s0"]
    with pytest.raises(ConfigError, match=r"not asked for method 'ts'; did you mean 'tss'"):
        missing(runs, {"methods": ["ts"]})
    with pytest.raises(ConfigError, match="not asked for order 3"):
        missing(runs, {"orders": [3]})


def test_what_was_run_with_several_settings_is_not_guessed(whole: Path):
    runs = read_runs(whole)
    for run in runs.runs:
        if run.header["cell"] == "tss.mixed.o0.s0":
            run.header["config"] = {**run.header["config"], "score_lr": 0.05}
    plan = make_plan_of(runs, "tss")
    with pytest.raises(ConfigError, match="several values of score_lr"):
        settings(runs, plan)
    with pytest.raises(ConfigError, match="tss has no cell in the grid"):
        settings(Runs(runs.grid, []), plan)


def make_plan_of(runs: Runs, method: str):
    """All cells of the method, as if none had been run."""
    return missing(Runs(runs.grid, []), {"methods": [method]})


def test_options_that_a_method_has_no_longer_are_left_out(whole: Path):
    runs = read_runs(whole)
    for run in runs.runs:
        run.header["config"] = {**run.header["config"], "favour": 0.5}
    found = settings(runs, make_plan_of(runs, "tss"))["tss"]
    assert "favour" not in found and found["score_lr"] == 0.02


def test_a_folder_takes_more_methods_later_but_no_other_settings_of_one(tmp_path: Path):
    listing = write_tasks(tmp_path / "tasks")
    grids = [
        small_grid(tmp_path / "runs", each={name: options}, first=1)
        for name, options in [*SINGLE.items(), ("tss", {"score_lr": 0.3})]
    ]
    for grid, method in zip(grids[:2], SINGLE, strict=True):
        assert not run_grid(make_plan([str(listing)], [0], [method], [0], first=1), grid).failed
    assert json.loads(Path(grids[0].runs, "grid.json").read_text())["settings"]["each"] == SINGLE
    with pytest.raises(StoreError, match="was made with each"):
        run_grid(make_plan([str(listing)], [1], ["tss"], [0], first=1), grids[2])
    alone = replace(grids[0], each={"tss": SINGLE["tss"]})  # without naming the other one again
    assert not run_grid(make_plan([str(listing)], [1], ["tss"], [0], first=1), alone).failed


def test_cost_is_told_by_cells_of_the_same_kind_cheapest_first(tmp_path: Path):
    folder = write_runs(tmp_path / "runs", ["ccd", "drg"], [0, 1], ["tss", "lamol", "hat"])
    for gone in ("tss.ccd.o1.s0", "hat.drg.o0.s0", "lamol.ccd.o0.s0", "lamol.ccd.o1.s0"):
        (folder / f"{gone}.jsonl").unlink()
    cut = folder / "tss.drg.o0.s0.jsonl"  # what was cut tells no cost
    cut.write_text("".join(cut.read_text().splitlines(keepends=True)[:3]))
    runs = read_runs(folder)
    rows = told(missing(runs), runs)
    assert rows == [  # every task took a second; both families have five
        ["hat", "1", "5", "drg 0"],
        ["tss", "2", "10", "ccd 1; drg 0"],
        ["lamol", "2", "?", "ccd 0, 1"],
    ]


def test_a_sequence_that_a_method_cannot_learn_whole_is_not_lacking(tmp_path: Path):
    folder = write_runs(tmp_path / "runs", ["ner", "drg", "heterogeneous"], [0], ["tss", "lamol"])
    runs = Runs(read_runs(folder).grid, [])
    assert {cell.key for cell in missing(runs).cells} == {
        *(f"tss.{name}.o0.s0" for name in ("ner", "drg", "heterogeneous")), "lamol.drg.o0.s0",
    }  # fmt: skip
