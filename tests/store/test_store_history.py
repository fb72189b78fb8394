"""Versions: rolled back, removed, brought back, collected; and what readers see meanwhile."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest
import torch
from store_samples import assert_same, family, random_gates, record

from tss.errors import DamagedError, LockedError, StoreError, UnknownTaskError
from tss.store import Store
from tss.store.layout import decode_index, encode_index


@pytest.fixture
def made(tmp_path):
    return family(tmp_path / "store")


@pytest.fixture
def versions(tmp_path):
    """A store with task `t` at version 3 and `u` between its versions."""
    store = Store.open(tmp_path / "store", create=True)
    with store.writing():
        store.add(record("t", 1))
        store.add(record("t", 2), new_version=True)
        store.add(record("u", 9))
        store.add(record("t", 3), new_version=True)
    return store


def test_rollback_goes_back_one_version_at_a_time(versions):
    with versions.writing():
        assert versions.rollback("t").version == 2
        assert_same(versions.read("t"), record("t", 2))
        assert versions.rollback("t").version == 1
        with pytest.raises(StoreError, match="no version before 1"):
            versions.rollback("t")
    again = Store.open(versions.path)
    assert_same(again.read("t"), record("t", 1))
    assert again.index().names() == ("t", "u")
    assert_same(again.read("t", version=3), record("t", 3))  # history


def test_a_withdrawn_version_can_be_brought_back(versions):
    with versions.writing():
        versions.rollback("t", 1)
        assert versions.rollback("t", 3).version == 3
        with pytest.raises(UnknownTaskError, match="no version 7; it has 1, 2, 3"):
            versions.rollback("t", 7)


def test_the_next_version_after_a_rollback_has_a_new_number(versions):
    with versions.writing():
        versions.rollback("t")
        assert versions.add(record("t", 4), new_version=True).version == 4
        assert versions.rollback("t").version == 2  # the withdrawn one is skipped


def test_remove_and_bring_back(versions):
    with versions.writing():
        assert [entry.version for entry in versions.remove("t")] == [1, 2, 3]
        assert versions.index().names() == ("u",)
        for call in (versions.read, versions.remove, versions.rollback):
            with pytest.raises(UnknownTaskError, match="was removed; its last version is 3"):
                call("t")
        with pytest.raises(UnknownTaskError, match="no task 'x'.*'u'"):
            versions.remove("x")
        assert versions.rollback("t", 3).version == 3
        assert versions.remove("t") and versions.add(record("t", 5)).version == 4  # the name is free again


def test_changing_needs_the_lock(versions):
    for change in (lambda: versions.rollback("t"), lambda: versions.remove("t"), versions.gc):
        with pytest.raises(LockedError):
            change()
    assert versions.index().entry("t").version == 3


def test_gc_drops_what_is_withdrawn_and_nothing_else(versions):
    with versions.writing():
        assert versions.gc().tasks == ()
        versions.rollback("t", 1)
        sizes = {entry.version: entry.bytes for entry in versions.index().versions("t")}
        found = versions.gc()
        assert found.tasks == (("t", 2), ("t", 3))
        assert (found.files, found.bytes) == (2, sizes[2] + sizes[3])
        assert versions.gc().tasks == ()
    assert_same(versions.read("t"), record("t", 1))
    assert_same(versions.read("u"), record("u", 9))
    with pytest.raises(UnknownTaskError, match="no version 3"):
        versions.read("t", 3)


def test_gc_counts_what_killed_writers_left(versions):
    (versions.path / "tasks" / ".tmp-9-ab.safetensors").write_bytes(bytes(100))
    (versions.path / "tasks" / "9-ab.safetensors").write_bytes(bytes(50))
    with versions.writing():
        found = versions.gc()
    assert (found.tasks, found.files, found.bytes) == ((), 2, 150)


@pytest.mark.parametrize("gone", ["a", "b", "ab", "c", "ac", "abc", "d", "abcde"])
def test_tasks_kept_as_differences_are_based_anew(made, gone):
    """`b` differs from `a`, `c` from `b`; whichever goes, the rest reads as before."""
    store, records = made
    with store.writing():
        for name in gone:
            store.remove(name)
        store.gc()
    stay = [name for name in "abcde" if name not in gone]
    again = Store.open(store.path)
    assert again.index().names() == tuple(stay) and again.damage() == {}
    for name in stay:
        assert_same(again.read(name), records[name])
    assert set(os.listdir(store.path / "tasks")) == {Path(entry.file).name for entry in again.index().tasks}
    depths = {"a": (0, 1), "b": (0, 1), "ab": (0,), "c": (0, 1), "ac": (0,), "d": (0, 1, 2)}
    chain = [entry.depth for entry in again.index().tasks if entry.name in "abc"]
    assert tuple(chain) == depths.get(gone, ())


def test_a_long_chain_is_based_anew(tmp_path):
    store = Store.open(tmp_path / "store", create=True)
    gates = [random_gates(4000, 0)]
    with store.writing():
        for number in range(20):
            gates.append(gates[-1] ^ random_gates(4000, number, 0.01))
            store.add(record(f"t{number}", number, gates[-1]), parent=f"t{number - 1}" if number else None)
        for number in range(0, 20, 3):
            store.remove(f"t{number}")
        store.gc()
        for number in range(20):
            if number % 3:
                assert torch.equal(store.read(f"t{number}").gates, gates[number + 1])
    assert decode_index((store.path / "index.json").read_bytes()) == store.index()


def test_a_damaged_task_stops_gc_only_where_it_is_needed(made):
    store, records = made
    file = store.path / store.index().entry("b").file
    file.write_bytes(file.read_bytes()[:-1])
    with store.writing():
        store.remove("a")
        with pytest.raises(DamagedError, match="nothing can be collected"):
            store.gc()
        assert store.index().names() == tuple("bcde")
        store.remove("b")
        with pytest.raises(DamagedError):  # c cannot be read without b
            store.gc()
        store.remove("c")
        assert len(store.gc().tasks) == 3
    assert_same(store.read("d"), records["d"])


def test_readers_go_on_while_versions_come_and_go(made):
    """No reader sees a missing file, whatever is removed, based anew or collected under it."""
    store, records = made
    trouble: list[BaseException] = []
    reads = [0]
    done = threading.Event()

    def read() -> None:
        mine = Store.open(store.path)
        while not done.is_set():
            try:
                assert_same(mine.read("c"), records["c"])
                reads[0] += 1
            except BaseException as error:
                trouble.append(error)
                return

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    with store.writing():
        for turn in range(15):
            store.add(record(f"x{turn}", turn, store.read("c").gates), parent="c")
            store.remove("b" if turn % 2 else "a")
            store.gc()
            store.add(records["b" if turn % 2 else "a"])
            store.add(records["c"], parent="b", new_version=True)
            store.rollback("c")
            store.remove(f"x{turn}")
    done.set()
    for reader in readers:
        reader.join()
    assert trouble == [] and reads[0] > 15


def test_format_1_without_history_and_2_with_it(made):
    store, _ = made
    raw = (store.path / "index.json").read_bytes()
    assert b'"format":1,' in raw and b"withdrawn" not in raw
    with store.writing():
        store.remove("e")
    raw = (store.path / "index.json").read_bytes()
    assert b'"format":2,' in raw and encode_index(decode_index(raw)) == raw


def test_a_store_written_before_there_was_history(tmp_path):
    """Format 1 as the code wrote it then: opened, read, changed; its index is written back byte for byte."""
    before = Path(__file__).parent / "format_1" / "store"
    path = tmp_path / "store"
    shutil.copytree(before, path)
    store = Store.open(path)
    raw = (path / "index.json").read_bytes()
    assert encode_index(store.index()) == raw and store.damage() == {}
    assert [(entry.name, entry.version, entry.depth) for entry in store.index().tasks] == [
        ("toy pair", 1, 0), ("toy tagging", 1, 1), ("toy generation", 1, 2), ("toy pair", 2, 3)]  # fmt: skip
    gates = {name: store.read(name).gates for name in store.index().names()}
    with store.writing():
        assert store.rollback("toy pair").version == 1
        assert store.rollback("toy pair", 2).version == 2
        store.remove("toy tagging")
        assert store.gc().tasks == (("toy tagging", 1),)
    for name in ("toy pair", "toy generation"):
        assert torch.equal(Store.open(path).read(name).gates, gates[name])


def test_tasks_learnt_together_are_added_in_one_step(tmp_path, monkeypatch):
    store = Store.open(tmp_path / "store", create=True)
    records = [record(f"t{number}", number) for number in range(4)]
    with store.writing():
        with pytest.raises(StoreError, match="already"):
            store.add_all([*records, records[0]], shared={"x": torch.ones(1)})
        assert store.index().tasks == () and store.read_shared() == {}
        assert [entry.id for entry in store.add_all(records, shared={"x": torch.ones(1)})] == [1, 2, 3, 4]
        twice = store.add_all([records[0], records[0]], new_version=True)
        assert [entry.version for entry in twice] == [2, 3]
    assert Store.open(store.path).damage() == {}
