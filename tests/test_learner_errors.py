"""A user's mistakes: each is a clear error that says what to do, and the store is as it was."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from shared_checks import open_learner
from tiny import tiny_backbone, tiny_path
from toy_tasks import inputs, toy

from tss import Learner, Task
from tss.errors import ConfigError, StoreError, TaskError, UnknownTaskError

KINDS = ("pair", "tagging", "generation")


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A TSS store of three tasks whose gates are kept as differences: scores move so little that few gates flip."""
    path = tmp_path_factory.mktemp("learnt") / "store"
    learner = open_learner(path, tiny_path("bart"), max_steps=4, score_lr=1e-4)
    for kind in KINDS:
        learner.learn(toy(kind))
    assert [entry.depth for entry in learner.store.index().tasks] == [0, 1, 2]
    return path


@pytest.fixture
def store(learnt: Path, tmp_path: Path) -> Path:
    return Path(copytree(learnt, tmp_path / "store"))


@pytest.fixture(scope="module")
def learner(learnt: Path) -> Learner:
    return Learner.open(learnt, device="cpu")


def index_of(store: Path) -> bytes:
    return (store / "index.json").read_bytes()


def never(progress: Any) -> None:
    raise AssertionError("a step was made")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"backbone": "bart-nano"}, "backbone"),
        ({"method": "supsup"}, "method"),
        ({"preset": "paper"}, "preset"),
        ({"seed": 1}, "seed"),
        ({"config": {"bottleneck": 8}}, "bottleneck"),
        ({"config": {"adapter_seed": 5}}, "adapter_seed"),
        ({"config": {"adapter_sites": "houlsby"}}, "adapter_sites"),
        ({"config": {"score_lr": 0.5}}, "score_lr"),
        ({"config": {"softmask_apply": "grad"}}, "softmask_apply"),
        ({"config": {"precision": "bfloat16"}}, "precision"),
    ],
)
def test_a_store_keeps_what_it_was_made_with(store: Path, changed: dict[str, Any], named: str):
    before = index_of(store)
    with pytest.raises(StoreError, match=f"made with {named}") as problem:
        Learner.open(store, device="cpu", **changed)
    assert str(store) in str(problem.value) and index_of(store) == before


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"method": "tsss"}, "did you mean 'tss'"),
        ({"preset": "papers"}, "did you mean 'paper'"),
        ({"device": "abacus"}, "abacus"),
        ({"config": {"max_step": 3}}, "did you mean 'max_steps'"),
        ({"config": {"adapter_lr": 1.0}}, "no option 'adapter_lr' for the method tss"),
        ({"config": {"max_steps": "many"}}, "max_steps takes a int"),
        ({"config": {"score_lr": "nan"}}, "score_lr"),
        ({"config": {"score_lr": 1e39}}, "score_lr"),
        ({"config": {"threshold": "eq"}}, "threshold 'eq' is not one of"),
        ({"config": {"batch_size": 0}}, "batch_size must be at least 1"),
        ({"config": {"checkpoint_steps": 0}}, "checkpoint_steps must be at least 1"),
        ({"config": {"max_steps": -1}}, "max_steps"),
    ],
)
def test_bad_options_are_refused_before_anything_is_made(tmp_path: Path, given: dict[str, Any], message: str):
    with pytest.raises(ConfigError, match=re.escape(message)):
        Learner.open(tmp_path / "store", **{"device": "cpu", **given})
    assert not (tmp_path / "store").exists()


def test_options_are_checked_against_the_method_of_the_store(tmp_path: Path):
    """The method need not be repeated to give an option that only it has."""
    open_learner(tmp_path / "store", tiny_path("bart"), "one-adapter", max_steps=2).learn(toy("pair"))
    again = Learner.open(tmp_path / "store", device="cpu", config={"adapter_lr": 1e-2})
    assert again.config.method.adapter_lr == 1e-2


def test_open_without_create(tmp_path: Path):
    with pytest.raises(StoreError, match="does not exist"):
        Learner.open(tmp_path / "none", create=False)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("keep me")
    with pytest.raises(StoreError, match="not a store and not empty"):
        Learner.open(tmp_path / "mine")
    assert os.listdir(tmp_path / "mine") == ["letter.txt"]


@pytest.mark.parametrize("changed", ["weights", "tokenizer"])
def test_another_backbone_is_refused_before_any_answer(tmp_path: Path, changed: str):
    folder = tiny_backbone(tmp_path, "bart")
    open_learner(tmp_path / "store", folder, max_steps=2).learn(toy("pair"))
    if changed == "weights":
        from transformers import AutoModelForSeq2SeqLM

        model = AutoModelForSeq2SeqLM.from_pretrained(folder)
        model.model.encoder.layers[0].fc1.bias.data[0] += 1e-3
        model.save_pretrained(folder)
    else:
        described = json.loads((folder / "tokenizer.json").read_text())
        described["pre_tokenizer"]["add_prefix_space"] = True
        (folder / "tokenizer.json").write_text(json.dumps(described))
    before = index_of(tmp_path / "store")
    again = Learner.open(tmp_path / "store", device="cpu")
    for refused in (
        lambda: again.predict("toy pair", inputs(toy("pair"))),
        lambda: again.learn(toy("tagging"), progress=never),
        lambda: again.verify(),
        lambda: again.plan(toy("tagging")),
    ):
        with pytest.raises(StoreError, match="backbone_hash"):
            refused()
    assert index_of(tmp_path / "store") == before and [info.name for info in again.tasks()] == ["toy pair"]


def test_an_unknown_task_lists_the_nearest_names(learner: Learner):
    for ask in (
        lambda: learner.predict("toy pear", ["x"]),
        lambda: learner.verify(["toy pear"]),
        lambda: learner.evaluate(toy("pair", name="toy pear")),
        lambda: learner.predict(["toy pair", "toy pear"], [("a", "b"), "x"]),
    ):
        with pytest.raises(UnknownTaskError, match="'toy pear'; did you mean .*'toy pair'"):
            ask()


def test_a_label_that_was_never_learnt(learner: Learner):
    rows = [(("the film", "good"), "yes"), (("the film", "poor"), "perhaps")]
    task = Task.from_lists("toy pair", "classification", rows, rows, rows)
    with pytest.raises(TaskError, match=r"task 'toy pair', example 2: label 'perhaps' is not among") as problem:
        learner.evaluate(task)
    assert "'no', 'yes'" in str(problem.value)
    words = Task.from_lists("toy tagging", "tagging", [(["John"], ["B-Y"])])
    with pytest.raises(TaskError, match=r"example 1: tag 'B-Y'"):
        learner.evaluate(words)


@pytest.mark.parametrize(
    ("task", "given", "message"),
    [
        ("toy pair", "one text", "list of inputs"),
        ("toy pair", [("a", "b"), "no second field"], "input 2: expected two fields"),
        ("toy pair", [("a", "b", "c")], "input 1"),
        ("toy pair", [("a", 5)], "not text"),
        ("toy tagging", [["a", ""]], "word 2 is empty"),
        ("toy tagging", [[]], "no words"),
        ("toy generation", [("a", "b")], "expected a source text"),
        (["toy pair", "toy pair"], [("a", "b")], "2 task names for 1 inputs"),
    ],
)
def test_an_input_that_cannot_be_used(learner: Learner, task: Any, given: Any, message: str):
    with pytest.raises(TaskError, match=message):
        learner.predict(task, given)


def test_a_task_of_another_kind_cannot_be_evaluated(learner: Learner):
    for kind, name in (("tagging", "toy pair"), ("pair", "toy tagging"), ("classification", "toy generation")):
        with pytest.raises(TaskError, match=name):
            learner.evaluate(toy(kind), name=name)
    with pytest.raises(TaskError):
        learner.evaluate(Task("toy pair", "classification", labels=("no", "yes")))  # a description has no examples


def test_learning_a_known_task_again(store: Path):
    before = index_of(store)
    with pytest.raises(StoreError, match="has a task 'toy pair' already.*new version"):
        Learner.open(store, device="cpu").learn(toy("pair"), progress=never)
    assert index_of(store) == before


def test_a_task_without_validation_examples(tmp_path: Path):
    """Made by hand, past the readers that hold some out."""
    full = toy("pair")
    bare = Task(full.name, full.kind, full.labels, full.train)
    learner = open_learner(tmp_path / "store", tiny_path("bart"), max_steps=2)
    assert all(0.0 <= score <= 100.0 for score in learner.learn(bare).scores.values())


def test_joint_and_single_learning_are_not_mixed_up(tmp_path: Path):
    with pytest.raises(TaskError, match="use learn$"):
        open_learner(tmp_path / "one", tiny_path("bart")).learn_together([toy("pair")])
    joint = open_learner(tmp_path / "all", tiny_path("bart"), "mtl-adapter", max_steps=2)
    with pytest.raises(TaskError, match="use learn_together"):
        joint.learn(toy("pair"))
    joint.learn_together([toy("pair"), toy("tagging")])
    before = index_of(tmp_path / "all")
    with pytest.raises((TaskError, StoreError), match="together"):
        joint.learn_together([toy("generation")])  # its training would change the answers of the first group
    assert index_of(tmp_path / "all") == before
