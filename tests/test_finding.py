"""Which task an input is for, when nobody says so."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from small_lessons import small_task
from tiny import tiny_path
from typer.testing import CliRunner

from tss import Learner, Task
from tss.cli import app
from tss.errors import StoreError, TaskError
from tss.learning import about
from tss.learning.about import MEAN, SPREAD, distances

QUICK = {"max_steps": 2, "bottleneck": 4}
SPORT = ["the team won the match", "a late goal in the cup", "the coach of the team", "they lost the cup match"]
FOOD = ["fresh bread and soup", "the soup was too salty", "bread with salty butter", "a bowl of fresh butter"]


def texts(name: str, inputs: list[str]) -> Task:
    rows = [(text, "ab"[i % 2]) for i, text in enumerate(inputs * 4)]
    return Task.from_lists(name, "classification", rows, rows[:4], rows[:4], lengths={"max_input": 32})


@pytest.fixture(scope="module")
def learner(tmp_path_factory) -> Learner:
    made = Learner.open(tmp_path_factory.mktemp("store"), str(tiny_path("bart")), "supsup", config=QUICK)
    made.learn(texts("sport", SPORT))
    made.learn(texts("food", FOOD))
    made.learn(small_task("tagging", 12, name="tags"))
    return made


def test_inputs_find_the_task_that_learnt_on_their_like(learner):
    found = learner.which([SPORT[1], FOOD[2], "the bread was too salty"], most=1)
    assert [[one.task for one in each] for each in found] == [["sport"], ["food"], ["food"]]
    own = learner.which(SPORT + FOOD, most=1)
    assert sum(each[0].distance for each in own) / 8 < 2  # about 1 for its own


def test_the_nearest_come_first_and_no_more_than_asked_for(learner):
    (found,) = learner.which([FOOD[0]], most=2)
    assert [one.task for one in found][0] == "food" and len(found) == 2
    assert found[0].distance <= found[1].distance
    assert len(learner.which([FOOD[0]], most=9)[0]) == 3  # a text can be tagged too


def test_only_tasks_that_take_the_input_are_thought_of(learner):
    (found,) = learner.which([["the", "team", "won"]], most=9)
    assert [one.task for one in found] == ["tags"]
    with pytest.raises(TaskError, match="input 2: no task of the store takes it; it is a int"):
        learner.which([SPORT[0], 7])


@pytest.mark.parametrize(("bad", "said"), [("one text", "put it into a list"), (3, "put it into a list")])
def test_one_input_is_not_a_list(learner, bad, said):
    with pytest.raises(TaskError, match=said):
        learner.which(bad)


def test_nothing_asked_nothing_found(learner):
    assert learner.which([]) == []
    with pytest.raises(TaskError, match="at least 1"):
        learner.which([SPORT[0]], most=0)


def test_a_new_process_finds_the_same_and_new_tasks_are_seen(learner, tmp_path):
    asked = [SPORT[0], FOOD[0]]
    again = Learner.open(learner.store.path, create=False)
    assert again.which(asked) == learner.which(asked)
    store = Learner.open(tmp_path, str(tiny_path("bart")), "supsup", config=QUICK)
    store.learn(texts("sport", SPORT))
    assert [one.task for one in store.which([FOOD[0]])[0]] == ["sport"]
    store.learn(texts("food", FOOD))
    assert store.which([FOOD[0]])[0][0].task == "food"
    store.remove("food")
    assert [one.task for one in store.which([FOOD[0]])[0]] == ["sport"]


def test_answers_do_not_depend_on_it_and_a_store_without_it_says_so(learner, tmp_path):
    """Tasks of older versions lack the two vectors: they answer as ever and cannot be found."""
    older = Learner.open(tmp_path, str(tiny_path("bart")), "supsup", config=QUICK)
    with older.store.writing(wait=5.0):
        older._identify()
        record = learner.store.read("sport")
        older.store.add(replace(record, tensors={k: v for k, v in record.tensors.items() if "about" not in k}))
    assert older.predict("sport", SPORT) == learner.predict("sport", SPORT)
    with pytest.raises(StoreError, match="no task that says what its inputs are about"):
        older.which([SPORT[0]])


def test_a_damaged_task_does_not_hide_the_others(tmp_path):
    store = Learner.open(tmp_path, str(tiny_path("bart")), "supsup", config=QUICK)
    store.learn(texts("sport", SPORT))
    store.learn(texts("food", FOOD))
    file = tmp_path / store.store.index().entry("food").file
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    again = Learner.open(tmp_path, create=False)
    assert [one.task for one in again.which([FOOD[0]])[0]] == ["sport"]
    file.write_bytes(whole)
    assert again.which([FOOD[0]])[0][0].task == "food"


def test_a_carried_task_can_be_found(learner, tmp_path):
    learner.export("food", tmp_path / "food.task")
    other = Learner.open(tmp_path / "other", str(tiny_path("bart")), "supsup", config=QUICK)
    other.import_(tmp_path / "food.task")
    assert other.which([FOOD[0]])[0][0].task == "food"


def test_features_that_are_no_numbers_are_not_kept(learner, monkeypatch):
    """A task must not be lost for them."""
    rows = [learner.ready("sport").lesson.kind.input_row(learner.backbone, (text,)) for text in SPORT]
    assert set(about.about(learner.backbone, rows)) == {MEAN, SPREAD}
    monkeypatch.setattr(about, "features", lambda backbone, rows: torch.full((len(rows), 4), torch.inf))
    assert about.about(learner.backbone, rows) == {}


def test_what_is_kept_is_two_vectors(learner):
    kept = learner.store.read("sport").tensors
    assert kept[MEAN].shape == kept[SPREAD].shape == (learner.backbone.width,)
    assert learner.backbone.model.training is False


def test_distance_is_in_spreads():
    far = distances(torch.tensor([[1.0, 4.0]]), torch.tensor([[0.0, 0.0], [1.0, 4.0]]), torch.tensor([1.0, 4.0]))
    assert far.tolist() == [[2.5, 0.0]]  # (1/1 + 16/4) / 2
    same = distances(torch.tensor([[1.0]]), torch.tensor([[1.0], [2.0]]), torch.tensor([0.0]))
    assert same[0, 0] == 0 and same[0, 1].isfinite()


def test_the_command(learner):
    run = CliRunner().invoke(app, ["which", str(learner.store.path), FOOD[2], "--most", "1"])
    assert run.exit_code == 0 and run.output.startswith("food ")
    told = CliRunner().invoke(app, ["which", str(learner.store.path), "-", "--json"], input="\n".join(SPORT[:2]))
    found = json.loads(told.output)["tasks"]
    assert [each[0]["task"] for each in found] == ["sport", "sport"] and found[0][0]["distance"] > 0
