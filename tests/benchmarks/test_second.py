"""What a second reading gave, from the lines kept."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


def columns(predicted: list[int]) -> dict:
    return {"labels": ["a", "b"], "predicted": predicted, "gold": [0, 1, 0, 1]}


def test_the_table_counts_tasks_answers_and_means(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    from second import table

    right, half = columns([0, 1, 0, 1]), columns([0, 0, 0, 0])
    lines = [
        {"cell": "x", "task": "asc/a", "beside": ["t"], "alone": half, "together": right},
        {"cell": "x", "task": "asc/b", "beside": [], "alone": right, "together": right},
    ]
    cell, whole, small = table(lines)
    assert cell.startswith("x: 2 tasks, 1 read twice; macro-F1 66.67 alone, 100.00 together (+33.33, ")
    assert cell.endswith("75.0 % right alone, 100.0 % right together")
    assert whole.startswith("all: 2 tasks, 1 read twice; macro-F1 66.67 alone")
    assert small.startswith("small tests: 2 tasks")
