"""`tss revisit`: tasks of TSS+ answer beside their line, with whatever a store does with two that answer together."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from test_plus import QUICK
from tiny import tiny_path

from tss.errors import DamagedError, StoreError, UnknownTaskError
from tss.learner import Learner
from tss.methods.line import lines_of
from tss.store import portable
from tss.tasks.task import Task

WORDS = ["fine", "fair", "dull", "poor", "warm", "cold", "kind", "rude"]
GOOD = {"fine", "fair", "warm", "kind"}
TEXT = ["a fine day", "a rude book", "a dull meal"]
NAMES = [f"task {i}" for i in range(3)]


def sentiment(name, words=WORDS):
    rows = [(f"a {one} {two}", "good" if one in GOOD else "bad") for one in words for two in ("day", "book", "meal")]
    return Task.from_lists(name, "classification", rows, rows[:8], rows[:8])


def opened(path, **changes):
    config = {**QUICK, "max_steps": 30, "head_lr": 3e-2, **changes}
    return Learner.open(path, method="tss+", backbone=str(tiny_path("bart")), device="cpu", config=config)


def learnt(path, **changes):
    learner = opened(path, **changes)
    for name, words in zip(NAMES, (WORDS, WORDS[2:], WORDS[:6]), strict=True):
        learner.learn(sentiment(name, words))
    return learner


def told(learner, name):
    return learner.predict(name, TEXT, details=True)


def chances_alone(path):
    """What the line, and each task's own sub-network and head, say to the texts."""
    learner = Learner.open(path, device="cpu")
    (line,) = learner.store.index().company(learner.store.index().entry("task 0"))
    parts = [learner._made_ready(learner.store.read(line.name, line.version)), *map(learner.ready, NAMES)]
    chances = []
    for ready in parts:
        ready.lesson.company = ()
        batch = ready.lesson.batch([ready.lesson.kind.input_row(learner.backbone, (one,)) for one in TEXT])
        with torch.no_grad():
            chances.append(ready.lesson.logits(batch, ready.added).softmax(-1))
    return chances


def test_tasks_answer_beside_their_line_and_can_go_back(tmp_path):
    learner = learnt(tmp_path / "store")
    before = {name: told(learner, name) for name in NAMES}
    changed = learner.revisit()
    assert [(info.name, info.version, info.beside) for info in changed] == [
        (name, 2, ("classification line",)) for name in NAMES
    ]
    assert [info.name for info in learner.tasks()] == NAMES  # the line is no task
    line, *own = chances_alone(tmp_path / "store")
    for name, chances in zip(NAMES, own, strict=True):
        for one, expected in zip(told(learner, name), (chances + line) / 2, strict=True):
            assert one["confidence"] == pytest.approx(float(expected.max()), abs=1e-5)
    assert told(learner, "task 0") != before["task 0"]
    mixed = learner.predict(["task 2", "task 0", "task 2"], TEXT, details=True)
    assert [mixed[0], mixed[2]] == [told(learner, "task 2")[0], told(learner, "task 2")[2]]
    assert all(check.status == "equal" for check in learner.verify())
    learner.rollback("task 0")
    assert told(learner, "task 0") == before["task 0"]


def test_the_line_is_the_one_that_the_next_task_would_start_from(tmp_path):
    learner = learnt(tmp_path / "store")
    learner.revisit(["task 1"])
    (line,) = lines_of(learner.store.read_shared())
    (kept,) = learner.store.index().company(learner.store.index().entry("task 1"))
    record = learner.store.read(kept.name, kept.version)
    assert torch.equal(record.gates, line.scores > 0) and line.tasks == tuple(NAMES)
    assert torch.equal(record.tensors["head.outer.weight"], line.head["outer.weight"])


def test_what_stands_beside_its_line_already_stays_until_the_line_moves_on(tmp_path):
    learner = learnt(tmp_path / "store")
    assert [info.name for info in learner.revisit(["task 1", "task 0"])] == ["task 1", "task 0"]
    assert [info.name for info in learner.revisit()] == ["task 2"]
    count = len(learner.store.index().tasks)
    assert learner.revisit() == [] and len(learner.store.index().tasks) == count  # one line for all of them
    learner.learn(sentiment("task 3"))
    assert [(info.name, info.version) for info in learner.revisit()] == [*((name, 3) for name in NAMES), ("task 3", 2)]
    for name in NAMES:
        learner.remove(name)
    assert ("classification line", 1) in learner.gc().tasks  # the second one is asked by task 3
    assert [info.beside for info in learner.tasks()] == [("classification line",)]


def test_later_tasks_learn_as_if_nothing_had_been_revisited(tmp_path):
    found = []
    for folder in ("plain", "revisited"):
        learner = learnt(tmp_path / folder)
        if folder == "revisited":
            learner.revisit()
        learner.learn(sentiment("task 3"))
        found.append((told(learner, "task 3"), learner.store.read("task 3").gates))
    assert found[0][0] == found[1][0] and torch.equal(found[0][1], found[1][1])


def test_without_a_line_there_is_nothing_to_revisit(tmp_path):
    for name, learner in (
        ("plain", learnt(tmp_path / "plain", lined="")),
        ("empty", opened(tmp_path / "empty")),
        ("supsup", Learner.open(tmp_path / "supsup", method="supsup", backbone=str(tiny_path("bart")), config={})),
    ):
        count = learner.store.index().next_id
        assert learner.revisit() == [] and learner.store.index().next_id == count, name
    alone = opened(tmp_path / "alone")
    alone.learn(sentiment("only"))
    assert alone.revisit() == []  # its line is itself


def test_an_unknown_name_changes_nothing(tmp_path):
    learner = learnt(tmp_path / "store")
    with pytest.raises(UnknownTaskError, match="task 0"):
        learner.revisit(["task 1", "tusk 0"])
    assert learner.store.index().next_id == 4


def test_the_line_stays_when_tasks_are_removed_and_collected(tmp_path):
    learner = learnt(tmp_path / "store")
    learner.revisit(["task 2"])
    before = told(learner, "task 2")
    learner.remove("task 0")
    assert ("classification line", 1) not in learner.gc().tasks  # it is still asked
    again = Learner.open(tmp_path / "store", device="cpu")
    assert told(again, "task 2") == before
    assert [info.name for info in again.tasks()] == ["task 1", "task 2"]
    assert all(check.status == "equal" for check in again.verify())
    again.remove("task 1")
    again.remove("task 2")
    assert "classification line" in {name for name, _ in again.gc().tasks}
    assert again.store.index().tasks == ()


def test_damage_of_the_line_is_told_of_those_that_ask_it(tmp_path):
    learner = learnt(tmp_path / "store")
    learner.revisit(["task 1"])
    (line,) = learner.store.index().company(learner.store.index().entry("task 1"))
    (tmp_path / "store" / line.file).write_bytes(b"gone")
    assert "'classification line', which answers beside it" in learner.store.damage()["task 1"]
    with pytest.raises(DamagedError, match="task 1"):
        told(Learner.open(tmp_path / "store", device="cpu"), "task 1")
    assert told(Learner.open(tmp_path / "store", device="cpu"), "task 0")
    learner.rollback("task 1")
    assert told(Learner.open(tmp_path / "store", device="cpu"), "task 1")


def test_a_task_takes_its_line_along(tmp_path):
    """To a new store, where it stays out of use; to one that has it, where it does not come twice; and on again."""
    learner = learnt(tmp_path / "store")
    learner.revisit()
    wanted = {name: told(learner, name) for name in NAMES}
    for name in NAMES[:2]:
        learner.export(name, tmp_path / name)
    other = opened(tmp_path / "other")
    assert other.import_(tmp_path / "task 0").beside == ("classification line",)
    assert [info.name for info in other.tasks()] == ["task 0"] and told(other, "task 0") == wanted["task 0"]
    count = len(other.store.index().tasks)
    other.import_(tmp_path / "task 1")
    assert len(other.store.index().tasks) == count + 1 and told(other, "task 1") == wanted["task 1"]
    assert other.gc().tasks == ()
    other.export("task 1", tmp_path / "again")
    third = opened(tmp_path / "third")
    third.import_(tmp_path / "again", name="classification line")  # the name of what answers beside it
    assert told(third, "classification line") == wanted["task 1"]
    for one in (other, third):
        assert all(check.status == "equal" for check in Learner.open(one.store.path).verify())
    other.remove("task 0")
    other.remove("task 1")
    other.gc()
    assert other.store.index().tasks == ()


def test_an_import_whose_line_is_spoilt_leaves_the_store_as_it_was(tmp_path):
    learner = learnt(tmp_path / "store")
    learner.revisit()
    learner.export("task 1", tmp_path / "good")
    carried = portable.read(tmp_path / "good")
    (one,) = carried.beside
    other = opened(tmp_path / "other")
    for place, bad in enumerate(
        [
            replace(one, gates=~one.gates),
            replace(one, gates=one.gates[:-1]),
            replace(one, tensors={}),
            replace(one, meta={}),
            replace(one, meta={**one.meta, "labels": ["good"]}),
            replace(one, probes={"input.ids": torch.zeros(2)}),
        ]
    ):
        portable.write(tmp_path / f"bad {place}", replace(carried, beside=(bad,)))
        with pytest.raises(StoreError):
            other.import_(tmp_path / f"bad {place}")
        assert not other.store.index().tasks and not other.store.index().identity
    portable.write(tmp_path / "alone", replace(carried, beside=()))
    with pytest.raises(StoreError, match="otherwise"):
        other.import_(tmp_path / "alone")
