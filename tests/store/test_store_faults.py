"""Every write, fsync, rename made to fail in turn; read-only folders; real processes killed at many points."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import stat
import tempfile
import time
from pathlib import Path

import pytest
import torch
from failing_system import FailingSystem, KillingSystem
from store_samples import assert_same, family, random_gates, record

from tss.errors import StoreError
from tss.store import Store, disk


def change(store: Store) -> None:
    """All that a writer does, one of each."""
    gates = random_gates(160, 1) ^ random_gates(160, 9, 0.05)
    with store.writing():
        store.running.save({"scores": torch.ones(3)}, {"step": 1})
        store.add(record("new", 9, gates), parent="a", shared={"scores": torch.full((6,), 9.0)})


def assert_old_or_new(path: Path, records: dict, expect_new: bool | None = None) -> bool:
    """The store opens with the old or the new tasks, all intact, shared state to match; returns whether new."""
    store = Store.open(path)
    names = store.index().names()
    new = names == tuple("abcde") + ("new",)
    assert new or names == tuple("abcde")
    assert expect_new is None or new == expect_new
    assert store.damage() == {}
    for name, one in records.items():
        assert_same(store.read(name), one)
    assert store.read_shared()["scores"][0].item() == (9.0 if new else 1.0)
    return new


def assert_clean_after_next_writer(path: Path) -> None:
    """The next writer leaves nothing that the index does not name, and can add a task."""
    store = Store.open(path)
    with store.writing():
        store.add(record("after"), shared={"scores": torch.zeros(2)})
    index = store.index()
    found = {f"{folder}/{name}" for folder in ("tasks", "shared", "running") for name in os.listdir(path / folder)}
    assert found == index.files()
    assert set(os.listdir(path)) == {"index.json", "index.backup.json", "lock", "tasks", "shared", "running"}
    assert (path / "index.json").read_bytes() == (path / "index.backup.json").read_bytes()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return family(tmp_path_factory.mktemp("family") / "store", count=160)


@pytest.mark.parametrize("code,stays", [(errno.ENOSPC, True), (errno.EIO, False)])
def test_failure_of_every_call_in_turn(made, tmp_path, monkeypatch, code, stays):
    failures, seen_new = set(), 0
    for fail_at in range(1, 1000):
        path = tmp_path / str(fail_at)
        shutil.copytree(made[0].path, path)
        store = Store.open(path)
        system = FailingSystem(fail_at, code, stays)
        with monkeypatch.context() as patch:
            patch.setattr(disk, "os", system)
            try:
                change(store)
                raised = False
            except StoreError as error:
                raised = True
                assert os.strerror(code) in str(error) and str(path) in str(error)
        if not system.failed:
            assert not raised
            assert_old_or_new(path, made[1], expect_new=True)
            break
        failures.add(system.failed)
        # reported as saved means saved; a failure after the rename of the index may leave the new list
        new = assert_old_or_new(path, made[1], expect_new=None if raised else True)
        seen_new += new
        assert_clean_after_next_writer(path)
    assert failures == {"open", *FailingSystem.COUNTED}
    assert fail_at > 20 and 0 < seen_new < fail_at / 2


def test_failure_of_every_call_of_creation(tmp_path, monkeypatch):
    for fail_at in range(1, 100):
        path = tmp_path / str(fail_at)
        system = FailingSystem(fail_at, errno.ENOSPC, True)
        with monkeypatch.context() as patch:
            patch.setattr(disk, "os", system)
            try:
                Store.open(path, create=True)
            except StoreError as error:
                assert str(path) in str(error)
        if not system.failed:
            break
        assert Store.open(path, create=True).index().tasks == ()
    assert fail_at > 8


def test_full_disk_is_noticed_before_anything_is_written(made, tmp_path, monkeypatch):
    path = tmp_path / "store"
    shutil.copytree(made[0].path, path)
    store = Store.open(path)
    real = os.statvfs(path)
    little = os.statvfs_result([*real[:3], 10, 10, *real[5:]])
    with store.writing():
        monkeypatch.setattr(os, "statvfs", lambda _: little)
        with pytest.raises(StoreError, match=rf"disk space at {path}: [\d,]+ bytes needed, [\d,]+ free"):
            store.add(record("new"))
        monkeypatch.undo()
        assert len(os.listdir(path / "tasks")) == 5
        store.add(record("new"))


def test_read_only_folder():
    """Reads work, writing is refused with the path; as a user whom permissions bind (root becomes nobody)."""
    base = Path(tempfile.mkdtemp(prefix="tss-read-only-"))
    base.chmod(0o755)
    store, records = family(base / "store")
    everything = [base / "store", *(base / "store").rglob("*")]
    for path in everything:
        path.chmod(0o555 if path.is_dir() else 0o444)

    def child() -> None:
        if os.getuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        for name, one in records.items():
            assert_same(Store.open(base / "store").read(name), one)
        with pytest.raises(StoreError, match=rf"cannot write {base}.*Permission denied"), store.writing():
            pass
        with pytest.raises(StoreError, match=rf"cannot make the folder {base}.*Permission denied"):
            Store.open(base / "store" / "inner", create=True)

    try:
        assert in_child(child) == 0
    finally:
        for path in everything:
            path.chmod(path.stat().st_mode | stat.S_IWUSR | stat.S_IXUSR)
        shutil.rmtree(base)


def in_child(work) -> int:
    """Run `work` in a forked process; returns its exit status."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
    return os.waitpid(pid, 0)[1]


def test_killed_at_every_call(made, tmp_path):
    """kill -9 of a real process before each single call to the system, reads of folders included."""
    seen = []
    for kill_at in range(1, 1000):
        path = tmp_path / str(kill_at)
        shutil.copytree(made[0].path, path)

        def child(path=path, kill_at=kill_at) -> None:
            disk.os = KillingSystem(kill_at, 0, False)  # type: ignore[assignment]
            change(Store.open(path))

        status = in_child(child)
        seen.append(assert_old_or_new(path, made[1]))
        assert_clean_after_next_writer(path)  # the dead owner's lock is recovered at once
        shutil.rmtree(path)
        if status == 0:
            break
        assert os.WTERMSIG(status) == signal.SIGKILL
    assert seen == sorted(seen) and len(seen) > 30  # old until one call, new ever after


def test_killed_at_random_moments_of_many_saves(tmp_path):
    """A child adds tasks one after another and says so; whatever it said is there after kill -9."""
    drawn = random.Random(0)
    store = Store.open(tmp_path / "store", create=True)
    told_before = 0
    for _ in range(20):
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            mine = Store.open(tmp_path / "store")
            with mine.writing():
                os.write(writing, b"r")
                while True:
                    number = len(mine.index().tasks)
                    mine.running.save({"x": torch.ones(500)}, {"number": number})
                    mine.add(record(f"t{number}", number), shared={"count": torch.tensor([number + 1.0])})
                    os.write(writing, b".")
        os.close(writing)
        told = -1  # the first byte says that it holds the lock
        for _ in range(drawn.randint(1, 4)):
            told += len(os.read(reading, 1))
        time.sleep(drawn.random() * 0.01)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        while part := os.read(reading, 4096):
            told += part.count(b".")
        os.close(reading)
        index = store.index()
        assert told_before + told <= len(index.tasks) <= told_before + told + 1
        told_before = len(index.tasks)
        assert index.names() == tuple(f"t{number}" for number in range(told_before))
        shared = store.read_shared()
        assert told_before == (int(shared["count"][0]) if shared else 0)
        kept = store.running.load()
        assert store.running.problem is None and (kept is None or kept[1]["number"] == told_before)
    assert told_before > 20 and store.damage() == {}
