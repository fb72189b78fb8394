"""Faults of files, disks, locks and training: each is a clear error, the rest is served, and the store is as it was."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from typing import Any

import pytest
from shared_checks import Interrupted, answers, assert_same_bits, open_learner, state
from tiny import tiny_path
from toy_tasks import inputs, toy

from tss import Learner
from tss.errors import DamagedError, LockedError, StoreError, TrainingError
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


def index_of(store: Path) -> bytes:
    return (store / "index.json").read_bytes()


def flip_last_bit(file: Path) -> None:
    blob = bytearray(file.read_bytes())
    blob[-1] ^= 1
    file.chmod(0o644)
    file.write_bytes(blob)


def never(progress: Any) -> None:
    raise AssertionError("a step was made")


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
