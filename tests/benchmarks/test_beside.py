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
    assert table(first, second) == ["tss+.asc asc, 2 tasks: 65.00 against 63.00, +2.00 (standard error 1.00)"]


def test_the_grid_of_record_is_equal_to_itself(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    from beside import scores, table

    from tss.bench.collect import read_runs

    width = scores(read_runs(FOLDER.parent / "results" / "width" / "plus128.jsonl.xz"))
    assert len(width) == 97 + 2 * 40
    assert all("+0.00" in line for line in table(width, width))
