"""Two grids beside each other."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


def test_only_tasks_of_the_same_cell_are_compared(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    from beside import table

    first = {("tss+.asc.o1.s0", "asc/a"): 70.0, ("tss+.asc.o2.s0", "asc/a"): 60.0, ("tss+.asc.o2.s0", "asc/b"): 1.0}
    second = {("tss+.asc.o1.s0", "asc/a"): 69.0, ("tss+.asc.o2.s0", "asc/a"): 57.0, ("tss.asc.o2.s0", "asc/b"): 9.0}
    assert table(first, second) == ["tss+.asc asc, 2 tasks: 65.00 against 63.00, +2.00 (standard error 1.00), 0 equal"]


def test_the_grid_of_record_is_equal_to_itself(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    from beside import scores, table

    from tss.bench.collect import read_runs

    width = scores(read_runs(FOLDER.parent / "results" / "width" / "plus128.jsonl.xz"))
    assert len(width) == 97 + 2 * 40
    assert all("+0.00" in line for line in table(width, width))


def test_dev_scores_are_those_of_the_kept_state_and_of_the_orders_asked_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    from beside import scores

    from tss.bench.collect import Run, Runs

    line = {
        "task": "asc/a",
        "scores": {"macro_f1": 1.0},
        "curve": [[50, 0.1, 60.0], [100, 0.1, None], [150, 0.1, 55.0]],
    }
    runs = Runs({}, [Run({"cell": f"tss.asc.o{i}.s0", "order": i}, [line]) for i in (0, 3)])
    assert scores(runs, dev=True, orders=[3]) == {("tss.asc.o3.s0", "asc/a"): 60.0}
