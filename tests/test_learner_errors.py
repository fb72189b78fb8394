"""A user's mistakes and a machine's faults: each is a clear error, and the store is as it was."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from shared_checks import OPTIONS, Interrupted, answers, assert_same_bits, open_learner, state
from tiny import tiny_backbone, tiny_path
from toy_tasks import inputs, toy

from tss import Learner, Task
from tss.errors import (
    ConfigError,
    DamagedError,
    LockedError,
    StoreError,
    TaskError,
    TrainingError,
    TssError,
    UnknownTaskError,
)
from tss.store import Store, disk

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


def flip_last_bit(file: Path) -> None:
    blob = bytearray(file.read_bytes())
    blob[-1] ^= 1
    file.chmod(0o644)
    file.write_bytes(blob)


def never(progress: Any) -> None:
    raise AssertionError("a step was made")


# Settings.
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


# Names, labels and inputs.
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
    for kind, name in (("tagging", "toy pair"), ("pair", "toy tagging"), ("pair", "toy generation")):
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
    try:
        learned = learner.learn(bare)
    except TssError as problem:
        assert "valid" in str(problem) and learner.tasks() == []
    else:
        assert all(0.0 <= score <= 100.0 for score in learned.scores.values())


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


# Faults of files, disks and locks.
@pytest.mark.parametrize("position", [0, 1, 2])
def test_damage_refuses_exactly_the_dependants(store: Path, position: int):
    index = Store.open(store).index()
    flip_last_bit(store / index.tasks[position].file)
    lost = [entry.name for entry in index.tasks[position:]]  # each differs from the one before
    learner = Learner.open(store, device="cpu")
    found = {check.name: check for check in learner.verify()}
    assert [name for name, check in found.items() if check.status == "damaged"] == lost
    assert {check.status for name, check in found.items() if name not in lost} <= {"equal"}
    for kind in KINDS:
        task = toy(kind)
        if task.name not in lost:
            assert answers(learner, task)
            continue
        with pytest.raises(DamagedError) as problem:
            learner.predict(task.name, inputs(task))
        assert list(problem.value.tasks) == lost and all(repr(name) in str(problem.value) for name in lost)


def test_damaged_shared_state_stops_learning_but_not_answering(store: Path):
    flip_last_bit(next((store / "shared").iterdir()))
    before = index_of(store)
    learner = Learner.open(store, device="cpu")
    with pytest.raises(DamagedError, match="shared state"):
        learner.learn(toy("classification"), progress=never)
    assert index_of(store) == before
    assert {check.status for check in Learner.open(store, device="cpu").verify()} == {"equal"}


def test_a_read_only_store_answers_and_refuses_to_learn(store: Path, monkeypatch: pytest.MonkeyPatch):
    real = os.open

    def read_only(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return real(path, flags, *rest, **options)

    learner = Learner.open(store, device="cpu")
    before = index_of(store)
    monkeypatch.setattr(disk.os, "open", read_only)
    with pytest.raises(StoreError, match="Read-only file system"):
        learner.learn(toy("classification"), progress=never)
    assert {check.status for check in learner.verify()} == {"equal"}
    monkeypatch.undo()
    assert index_of(store) == before


def test_a_full_disk_is_noticed_before_the_first_step(store: Path, monkeypatch: pytest.MonkeyPatch):
    before = index_of(store)
    learner = Learner.open(store, device="cpu")
    monkeypatch.setattr(disk.os, "statvfs", lambda path: SimpleNamespace(f_bavail=9, f_frsize=4096))
    with pytest.raises(StoreError, match=r"not enough disk space at .* bytes needed, 36,864 free"):
        learner.learn(toy("classification"), progress=never)
    assert index_of(store) == before


def test_a_disk_that_fills_up_while_learning(store: Path, monkeypatch: pytest.MonkeyPatch):
    def full(folder: int, name: str, blob: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = index_of(store)
    learner = Learner.open(store, device="cpu")
    with monkeypatch.context() as patch:
        patch.setattr(disk, "_write_new", full)
        with pytest.raises(StoreError, match="No space left on device"):
            learner.learn(toy("classification"))
    assert index_of(store) == before
    assert learner.learn(toy("classification")).version == 1


def test_another_process_is_writing(store: Path, monkeypatch: pytest.MonkeyPatch):
    ready, done = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:  # holds the lock until told otherwise; touches nothing of torch
        with Store.open(store).writing():
            os.write(ready[1], b".")
            os.read(done[0], 1)
        os._exit(0)
    try:
        os.read(ready[0], 1)
        learner = Learner.open(store, device="cpu")
        before, writing = index_of(store), learner.store.writing
        monkeypatch.setattr(learner.store, "writing", lambda wait: writing(wait=0.1))  # five seconds are long here
        with pytest.raises(LockedError, match=f"being written by process {child} "):
            learner.learn(toy("classification"), progress=never)
        assert index_of(store) == before and answers(learner, toy("pair"))
    finally:
        os.write(done[1], b".")
        os.waitpid(child, 0)
    assert learner.learn(toy("classification")).version == 1


# Training that goes wrong.
def test_a_loss_that_is_no_number_ends_the_training(store: Path):
    before = index_of(store)
    learner = Learner.open(store, device="cpu", config={"head_lr": 1e30, "max_steps": 20})
    with pytest.raises(TrainingError, match="not a number in 5 steps in a row.*training rows.*smaller learning rate"):
        learner.learn(toy("classification"))
    assert index_of(store) == before and {check.status for check in learner.verify()} == {"equal"}
    assert Learner.open(store, device="cpu").learn(toy("classification")).resumed is False


def test_gates_are_never_made_from_what_is_not_finite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The loss may well be finite: infinite scores open or close gates as others do."""
    learner = open_learner(tmp_path / "store", tiny_path("bart"), max_steps=2)
    monkeypatch.setattr(learner.method, "after_step", lambda: learner.method.scores.data.mul_(float("inf")))
    with pytest.raises(TrainingError, match="not finite after 2 steps"):
        learner.learn(toy("generation"))
    assert learner.tasks() == []


def test_a_failed_first_task_fixes_nothing(tmp_path: Path):
    """Settings are fixed by the first task that is kept, so that a failed attempt can be repeated with others."""
    learner = open_learner(tmp_path / "store", tiny_path("bart"), "one-adapter", adapter_lr=1e30, max_steps=20)
    with pytest.raises(TrainingError):
        learner.learn(toy("pair"))
    again = open_learner(tmp_path / "store", tiny_path("bart"), "one-adapter", max_steps=2)
    assert again.learn(toy("pair")).version == 1


@pytest.mark.parametrize("method", ["tss", "ncl-adapter", "tss-no-sd"])
def test_an_interrupted_training_changes_no_answer(tmp_path: Path, method: str):
    """Neither on disk nor in the learner that was interrupted, which then learns as if nothing had happened."""

    def stop(progress: Any) -> None:
        if progress.step == 2:
            raise Interrupted

    learner = open_learner(tmp_path / "store", tiny_path("bart"), method, checkpoint_steps=100)
    with pytest.raises(Interrupted):
        learner.learn(toy("pair"), progress=stop)
    learner.learn(toy("pair"))
    unbroken = open_learner(tmp_path / "unbroken", tiny_path("bart"), method, checkpoint_steps=100)
    unbroken.learn(toy("pair"))
    assert_same_bits(state(learner, "toy pair"), state(unbroken, "toy pair"))

    learner.learn(toy("tagging"))
    before = [answers(learner, toy(kind)) for kind in ("pair", "tagging")]
    with pytest.raises(Interrupted):
        learner.learn(toy("generation"), progress=stop)
    assert learner.verify(["toy tagging"])[0].status == "equal"
    assert [answers(learner, toy(kind)) for kind in ("pair", "tagging")] == before


def test_a_stale_checkpoint_is_not_used(tmp_path: Path):
    """A checkpoint belongs to the very task, settings and options it was made with."""

    def stop(progress: Any) -> None:
        if progress.step == 4:
            raise Interrupted

    with pytest.raises(Interrupted):
        open_learner(tmp_path / "store", tiny_path("bart")).learn(toy("pair"), progress=stop)
    other = toy("pair", turned=True)  # the same name, other examples
    assert not open_learner(tmp_path / "store", tiny_path("bart")).learn(other).resumed
    assert OPTIONS["checkpoint_steps"] < 4 and torch.get_num_threads() == 1
