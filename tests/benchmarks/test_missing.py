"""What a grid lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tss.bench.collect import Run

FOLDER = Path(__file__).parents[2] / "benchmarks"


def run(cell: str, done: int = 2, took: float = 10.0) -> Run:
    method, sequence, *_ = cell.split(".")
    header = {"cell": cell, "method": method, "sequence": sequence, "tasks": ["a", "b"]}
    return Run(header, [{"task": "a", "facts": {"seconds": took}}] * done)


def test_what_was_not_run_to_its_end_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    from missing import table

    names = ("asc", "ccd", "ner", "sum", "drg", "heterogeneous")
    runs = [run(f"tss.{name}.o{order}.s0") for name in names for order in range(5)]
    assert table(runs, ["tss"]) == ["0 cells; 0 s of training where it can be told"]
    runs[1] = run("tss.asc.o1.s0", done=1, took=15.0)  # cut after its first task
    told = table([one for one in runs if one.header["cell"] != "tss.ner.o4.s0"], ["tss"])
    assert told[0] == "tss: 39 s for asc 1; ner 4" and told[1].startswith("2 cells; 39 s")
    assert table([], ["tss"])[0].startswith("tss: ? s for asc 0, 1, 2, 3, 4; ")


def test_a_sequence_that_a_method_cannot_learn_whole_is_not_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    from missing import table

    told = table([], ["lamol", "ewc"])
    assert [line.split(":")[0] for line in told[:2]] == ["lamol", "ewc"] and told[2].startswith("50 cells")
    assert "heterogeneous" not in told[0] and "ner" not in told[0]
    assert "heterogeneous" in told[1] and "ner" in told[1]
