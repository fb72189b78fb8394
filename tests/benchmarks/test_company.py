"""What company would give is counted as TSS+ counts it."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
import torch
from small_lessons import small_task
from tiny import tiny_path

from tss.learner import Learner


@pytest.fixture
def company(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, which imports others as it does when it is run."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import company

    return company


def test_those_that_ask_a_task_join_it_while_there_is_room(company):
    asks = {"a": [], "b": ["a"], "c": ["a", "b"], "d": ["c"]}
    assert company.revisited(asks, "a", ["b", "c", "d"], 8) == ["b", "c"]
    assert company.revisited(asks, "a", ["c"], 8) == ["c"]  # b lacks a label of it
    assert company.revisited(asks, "a", ["b", "c"], 1) == ["b"]
    assert company.revisited(asks, "c", ["a", "b", "d"], 1) == ["a", "b"]  # nobody is sent away


@pytest.mark.parametrize("kind", ["classification", "tagging"])
def test_a_panel_of_one_answers_as_the_task_does(company, tmp_path, kind):
    learner = Learner.open(
        tmp_path / "store",
        method="tss+",
        backbone=str(tiny_path("bart")),
        device="cpu",
        config={"max_steps": 6, "bottleneck": 4},
    )
    task = small_task(kind)
    told = learner.learn(task)
    ready = learner.ready(task.name)
    panel = company.Panel(ready, {"own": ready, "twin": ready}, task.test)
    assert panel.kind.score(panel.answers({"own": 1.0}), panel.gold) == pytest.approx(told.scores)
    one, both = (torch.cat([p.flatten() for p in panel.together(w)]) for w in ({"own": 1.0}, {"own": 1.0, "twin": 3.0}))
    torch.testing.assert_close(one, both)


def test_lines_of_several_stores_are_summed_up(company):
    def line(order, score, right):
        tasks = {"asc/a": {"examples": 10, "own": score, "own: right": right}, "asc/b": {"examples": 500, "own": score}}
        return {"store": f"tss+.asc.o{order}.s0", "means": {"asc": {"examples": 255, "own": score}}, "tasks": tasks}

    told = company.summary([line(0, 70.0, 6), line(1, 80.0, 9)])
    assert told == ["tss+.asc asc, 2 lines, own: 75.0, 75.0 % of the small tests right"]
