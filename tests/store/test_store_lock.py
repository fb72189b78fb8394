"""One writer at a time, named to the others; a dead writer's lock is recovered; readers are never in the way."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time

import pytest
import torch
from store_samples import record

from tss.errors import LockedError, StoreError
from tss.store import Store
from tss.store import lock as lock_module
from tss.store.lock import STALE


@pytest.fixture
def store(tmp_path) -> Store:
    return Store.open(tmp_path / "store", create=True)


def fork_writer(path) -> tuple[int, int]:
    """A process that writes to the store until it is killed: (its number, a pipe that it holds)."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        with Store.open(path).writing():
            os.write(writing, b"r")
            time.sleep(60)
        os._exit(0)
    os.close(writing)
    assert os.read(reading, 1) == b"r"
    return pid, reading


def test_second_writer_is_refused_with_the_owner_named(store):
    pid, pipe = fork_writer(store.path)
    try:
        named = rf"written by process {pid} on {socket.gethostname()} since \d{{4}}-"
        with pytest.raises(LockedError, match=named), store.writing():
            pass
        assert store.index().tasks == () and store.read_shared() == {}  # readers go on
        start = time.monotonic()
        with pytest.raises(LockedError), store.writing(wait=0.3):
            pass
        assert 0.3 <= time.monotonic() - start < 5
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(pipe)
    with store.writing():  # the owner is dead: recovered at once
        store.add(record("t"))


def test_a_dead_owner_that_nobody_has_reaped_is_dead(store):
    pid, pipe = fork_writer(store.path)
    os.kill(pid, signal.SIGKILL)
    os.read(pipe, 1)  # returns when it has ended
    try:
        with store.writing(wait=2):
            pass
    finally:
        os.waitpid(pid, 0)
        os.close(pipe)


def test_waiting_writers_all_get_their_turn(store):
    children = []
    for number in range(6):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                mine = Store.open(store.path)
                for part in range(3):
                    with mine.writing(wait=30):
                        mine.add(record(f"{number}.{part}"), shared={"n": torch.tensor([len(mine.index().tasks) + 1])})
                status = 0
            finally:
                os._exit(status)
        children.append(pid)
    while any(os.waitpid(pid, os.WNOHANG)[0] == 0 for pid in children[:1]):
        index = store.index()  # readers see whole states only
        shared = store.read_shared()
        assert len(index.names()) == len(index.tasks)
        assert not shared or int(shared["n"][0]) >= len(index.tasks)
    assert [os.waitpid(pid, 0)[1] for pid in children[1:]] == [0] * 5
    assert sorted(store.index().names()) == sorted(f"{n}.{p}" for n in range(6) for p in range(3))
    assert [entry.id for entry in store.index().tasks] == list(range(1, 19))
    assert int(store.read_shared()["n"][0]) == 18 and store.damage() == {}


def test_one_process_is_no_exception(store):
    other = Store.open(store.path)
    with store.writing():
        for again in (store, other):
            with pytest.raises(LockedError, match=f"process {os.getpid()} "), again.writing():
                pass
        store.add(record("t"))
    done = []

    def work() -> None:
        with other.writing(wait=5):
            done.append(other.add(record("u")))

    with store.writing():
        thread = threading.Thread(target=work)
        thread.start()
        store.add(record("v"))
    thread.join()
    assert store.index().names() == ("t", "v", "u")


def test_the_lock_is_given_up_after_an_error(store):
    with pytest.raises(RuntimeError), store.writing():
        raise RuntimeError("training failed")
    with store.writing():
        pass


def plant(store: Store, age: float, **fields) -> None:
    """A lock file of another owner, last touched `age` seconds ago."""
    owner = {"pid": 1, "host": "elsewhere", "space": "", "began": "1", "since": "2020-01-01", "token": "x", **fields}
    (store.path / "lock").write_text(json.dumps(owner))
    os.utime(store.path / "lock", (time.time() - age,) * 2)


def test_owner_on_another_host_counts_as_dead_when_its_heart_stops(store):
    plant(store, age=STALE / 2)
    with pytest.raises(LockedError, match="process 1 on elsewhere"), store.writing():
        pass
    plant(store, age=-3600)  # a clock that is ahead
    with pytest.raises(LockedError), store.writing():
        pass
    plant(store, age=STALE + 1)
    with store.writing():
        store.add(record("t"))


def test_a_new_process_with_the_number_of_the_dead_owner(store):
    here = lock_module.Owner.this_process()
    for pid in (os.getpid(), os.getppid()):
        plant(store, age=0, pid=pid, host=here.host, space=here.space, began="1")
        with store.writing():
            pass


@pytest.mark.parametrize("content", [b"", b"{", b"null", b"[]", b'{"pid":3}', b"\xff" * 5000])
def test_a_torn_lock_is_nobodys(store, content):
    (store.path / "lock").write_bytes(content)
    with store.writing():
        pass


def test_heart_beats(store, monkeypatch):
    monkeypatch.setattr(lock_module, "BEAT", 0.02)
    with store.writing():
        os.utime(store.path / "lock", (0, 0))
        until = time.monotonic() + 5
        while (store.path / "lock").stat().st_mtime == 0 and time.monotonic() < until:
            time.sleep(0.01)
        assert (store.path / "lock").stat().st_mtime > 0


def test_a_writer_that_lost_its_lock_saves_nothing(store):
    """As after a long sleep of its machine, when another host took over."""
    with store.writing():
        plant(store, age=0)
        for change in (lambda: store.add(record("t")), lambda: store.running.save({}, {})):
            with pytest.raises(LockedError, match="no longer holds.*process 1 on elsewhere"):
                change()
    assert store.index().tasks == ()
    assert json.loads((store.path / "lock").read_text())["host"] == "elsewhere"  # and leaves the other's lock alone


def test_a_forked_child_does_not_write_or_release_for_its_parent(store):
    with store.writing():
        pid = os.fork()
        if pid == 0:
            try:
                store.add(record("child"))
                os._exit(1)
            except LockedError:
                os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        store.add(record("parent"))
    assert store.index().names() == ("parent",)


def test_processes_that_make_one_store_together(tmp_path):
    children = []
    for number in range(5):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                mine = Store.open(tmp_path / "new" / "store", create=True)
                with mine.writing(wait=20):
                    mine.add(record(f"t{number}"))
                status = 0
            finally:
                os._exit(status)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 5
    assert sorted(Store.open(tmp_path / "new" / "store").index().names()) == [f"t{n}" for n in range(5)]


def test_files_of_other_people_are_left_alone(store):
    for name in (
        "notes.txt",
        "tasks/notes.txt",
        "shared/README",
        "tasks/7-abc.safetensors",
        ".tmp-old",
        "running/.tmp-x",
    ):
        (store.path / name).write_text("x")
    with store.writing():
        pass
    left = {str(path.relative_to(store.path)) for path in store.path.rglob("*") if path.is_file()}
    assert left == {"index.json", "index.backup.json", "lock", "notes.txt", "tasks/notes.txt", "shared/README"}


def test_a_folder_that_vanishes(store, tmp_path):
    store.path.rename(tmp_path / "moved")
    with pytest.raises(StoreError):
        store.index()
    with pytest.raises(StoreError), store.writing():
        pass
