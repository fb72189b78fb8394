"""What a second reading gives, from stores of a grid."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_lessons import small_task
from tiny import tiny_path

from tss.learner import Learner

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import second

    return second


def columns(predicted: list[int]) -> dict:
    return {"labels": ["a", "b"], "predicted": predicted, "gold": [0, 1, 0, 1]}


def test_the_table_counts_tasks_answers_and_means(second):
    lines = [
        {
            "cell": "x",
            "task": "asc/a",
            "beside": ["t"],
            "alone": columns([0, 0, 0, 0]),
            "together": columns([0, 1, 0, 1]),
        },
        {"cell": "x", "task": "asc/b", "beside": [], "alone": columns([0, 1, 0, 1]), "together": columns([0, 1, 0, 1])},
    ]
    cell, family = second.table(lines)
    assert cell.startswith("x: 2 tasks, 1 read twice; macro-F1 66.67 alone, 100.00 together (+33.33, ")
    assert cell.endswith("75.0 % right alone, 100.0 % right together")
    assert family.startswith("asc, all: 2 tasks, 1 read twice; macro-F1 66.67 alone")


def test_alone_is_what_the_task_says_without_the_other(second, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import tss.methods.plus as plus

    monkeypatch.setattr(plus, "helps", lambda lesson, own, member: True)
    config = {"max_steps": 8, "bottleneck": 4, "adapter_std": 0.5, "race_steps": 2, "eval_steps": 4}
    tasks = [small_task("classification", 24, name=f"task {i}", seed=i) for i in range(2)]
    told = {}
    for option in (True, False):
        where = tmp_path / str(option)
        learner = Learner.open(where, str(tiny_path("bart")), "tss+", config={**config, "second": option})
        for task in tasks:
            learner.learn(task)
        told[option] = [second.measured(Learner.open(where), task) for task in tasks]
    assert [one["beside"] for one in told[True]] == [[], ["task 0"]]
    assert [one["alone"] for one in told[True]] == [one["together"] for one in told[False]]
