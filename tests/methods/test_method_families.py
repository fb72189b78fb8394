"""TSS, ONE (Adapter) and NCL (Adapter) on every other family of backbones: all kinds in one store, then verified."""

from __future__ import annotations

from pathlib import Path

import pytest
from shared_checks import answers, open_learner
from tiny import ENCODERS, FAMILIES, tiny_path
from toy_tasks import toy

from tss import Learner
from tss.errors import TaskError
from tss.methods import method_class

SHORT = {"max_steps": 3, "eval_steps": 2}


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "bart"])
@pytest.mark.parametrize("method", ["tss", "one-adapter", "ncl-adapter"])
def test_a_family(tmp_path: Path, method: str, family: str):
    learner = open_learner(tmp_path / "store", tiny_path(family), method, **SHORT)
    tasks = [toy("pair"), toy("tagging"), toy("generation")]
    kept = {}
    for task in tasks:
        if task.kind == "generation" and family in ENCODERS:
            with pytest.raises(TaskError, match="encoder and cannot generate"):
                learner.learn(task)
            continue
        learned = learner.learn(task)
        assert learned.steps == SHORT["max_steps"]
        kept[task.name] = answers(learner, task)
    assert [info.name for info in learner.tasks()] == list(kept)

    again = Learner.open(tmp_path / "store", device="cpu")
    found = {check.name: check.status for check in again.verify()}
    *earlier, last = kept
    assert found.pop(last) == "equal"
    assert set(found.values()) == {"changed" if method_class(method).forgets else "equal"}
    if not method_class(method).forgets:
        assert {task.name: answers(again, task) for task in tasks if task.name in kept} == kept
