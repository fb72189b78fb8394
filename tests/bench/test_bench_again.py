"""A cell of a packed grid run again from its saved settings: equal, compared, refused where it is not the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from small_grid import small_grid, write_tasks
from tiny import tiny_path
from typer.testing import CliRunner

from tss.bench.again import again, apart, by_family, compared, find, gone
from tss.bench.collect import Runs, read_runs
from tss.bench.pack import pack
from tss.bench.plan import make_plan
from tss.bench.run import run_grid
from tss.cli import app
from tss.errors import TssError


@pytest.fixture(scope="module")
def packed(tmp_path_factory) -> Path:
    listing = write_tasks(tmp_path_factory.mktemp("tasks"))
    grid = small_grid(tmp_path_factory.mktemp("runs"))
    run_grid(make_plan([str(listing)], [0], ["tss", "ncl-adapter"], [0]), grid)
    file = tmp_path_factory.mktemp("packed") / "grid.jsonl.xz"
    pack([Path(grid.runs)], file)
    return file


@pytest.fixture(scope="module")
def runs(packed: Path) -> Runs:
    return read_runs(packed)


def test_the_same_settings_give_the_same_numbers(packed: Path, tmp_path: Path):
    words = ["bench", "again", str(packed), "ncl-adapter.mixed.o0", "--data", ".", "--out", str(tmp_path)]
    told = CliRunner().invoke(app, [*words, "--device", "cpu", "--backbone", str(tiny_path("bart"))])
    assert told.exit_code == 0, told.output
    assert told.output.count("+0.00") == 3 and told.output.count("1 of 1") == 3  # a family a task here


def test_the_first_tasks_alone_are_compared_when_learnt(runs: Runs, tmp_path: Path):
    run = find(runs, "tss.mixed.o0.s0")
    found = again(run, tmp_path, ".", backbone=str(tiny_path("bart")), device="cpu", first=2)
    assert [one.task for one in found] == [line["task"] for line in run.lines[:2]] and all(one.same for one in found)


def test_a_difference_is_seen_and_counted_by_family(runs: Runs):
    run = find(runs, "tss.mixed.o0")
    lines = [dict(line) for line in run.lines]
    lines[-1] = {**lines[-1], "row": [lines[-1]["row"][0] + 2.0, *lines[-1]["row"][1:]]}
    found = compared(run, lines)
    assert [one.same for one in found] == [False, True, True]
    assert [apart(part) for part in by_family(found).values()] == pytest.approx([2.0, 0.0, 0.0])
    lines[1] = {**lines[1], "curve": []}  # another way to the same score
    assert [one.same for one in compared(run, lines)] == [False, False, True]


def test_other_tasks_or_names_are_refused(runs: Runs, tmp_path: Path):
    with pytest.raises(TssError, match=r"no cell 'tss.mixd.o0' among 2; did you mean 'tss.mixed.o0'"):
        find(runs, "tss.mixd.o0")
    run = find(runs, "tss.mixed.o0")
    changed = replace(run, header={**run.header, "backbone_hash": "0" * 64})
    with pytest.raises(TssError, match="with other backbone than those found here"):
        again(changed, tmp_path, ".", backbone=str(tiny_path("bart")), device="cpu", first=1)


def test_options_that_a_method_has_no_longer_are_named_and_left_out(runs: Runs, tmp_path: Path):
    run = find(runs, "tss.mixed.o0")
    assert gone(run) == []
    older = replace(run, header={**run.header, "config": {**run.header["config"], "favour": 0.5}})
    assert gone(older) == ["favour=0.5"]
    found = again(older, tmp_path, ".", backbone=str(tiny_path("bart")), device="cpu", first=1)
    assert all(one.same for one in found)
