"""Damaged and hostile files: noticed, refused by name for exactly the tasks concerned, and never run or followed."""

from __future__ import annotations

import hashlib
import json
import os
import pickle  # to make a hostile file; the package itself must not import it
import shutil
import struct
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save
from store_samples import assert_same, family

from tss.errors import DamagedError, StoreError
from tss.store import Store, TaskRecord
from tss.store.layout import INDEX, INDEX_COPY, encode_index, task_file

DEPENDANTS = {"a": "abc", "b": "bc", "c": "c", "d": "d", "e": "e"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return family(tmp_path_factory.mktemp("family") / "store", count=160)


@pytest.fixture
def copied(made, tmp_path):
    """A fresh copy of the family: (store, records)."""
    shutil.copytree(made[0].path, tmp_path / "store")
    return Store.open(tmp_path / "store"), made[1]


def assert_refuses(store: Store, records: dict[str, TaskRecord], lost: str) -> None:
    """Exactly the tasks in `lost` are refused, each naming all of them; the others are served unchanged."""
    assert set(store.damage()) == set(lost)
    for name, one in records.items():
        if name in lost:
            with pytest.raises(DamagedError) as caught:
                store.read(name)
            assert name in caught.value.tasks and set(caught.value.tasks) <= set(lost)
            assert repr(name) in str(caught.value)
        else:
            assert_same(store.read(name), one)


@pytest.mark.parametrize("name", DEPENDANTS)
def test_every_flipped_byte_and_every_cut_of_a_task_file(copied, name):
    store, records = copied
    file = store.path / store.index().entry(name).file
    good = file.read_bytes()
    for place in range(len(good)):
        file.write_bytes(good[:place] + bytes([good[place] ^ (1 << place % 8)]) + good[place + 1 :])
        with pytest.raises(DamagedError) as caught:
            store.read(name)
        assert set(caught.value.tasks) == set(DEPENDANTS[name])
    for length in range(0, len(good), 11):
        file.write_bytes(good[:length])
        with pytest.raises(DamagedError, match="bytes instead of"):
            store.read(name)
    assert_refuses(store, records, DEPENDANTS[name])
    file.write_bytes(good + b"\0")
    assert_refuses(store, records, DEPENDANTS[name])
    file.write_bytes(good)
    assert_refuses(store, records, "")


def test_every_flipped_byte_and_every_cut_of_the_index(copied):
    store, _ = copied
    file = store.path / INDEX
    good = file.read_bytes()
    for place in range(len(good)):
        bit = (1, 0x20)[place % 2]  # 0x20 changes only the case of a letter
        file.write_bytes(good[:place] + bytes([good[place] ^ bit]) + good[place + 1 :])
        with pytest.raises(StoreError):
            store.index()
    for length in range(0, len(good), 23):
        file.write_bytes(good[:length])
        with pytest.raises(DamagedError, match=f"{INDEX_COPY} is intact and lists 5 tasks"):
            Store.open(store.path)
    with pytest.raises(DamagedError), store.writing():
        pass
    shutil.copy(store.path / INDEX_COPY, file)  # what the message says
    assert Store.open(store.path).damage() == {}


def test_lost_index_is_not_taken_for_an_empty_folder(copied):
    store, _ = copied
    (store.path / INDEX).unlink()
    for create in (False, True):
        with pytest.raises(DamagedError, match="is missing.*lists 5 tasks"):
            Store.open(store.path, create=create)
    (store.path / INDEX_COPY).write_bytes(b"")
    with pytest.raises(DamagedError, match="restore index.json from a copy"):
        Store.open(store.path, create=True)


def test_swapped_files(copied):
    store, records = copied
    first, second = (store.path / store.index().entry(name).file for name in "bd")
    first.rename(store.path / "aside")
    second.rename(first)
    (store.path / "aside").rename(second)
    assert_refuses(store, records, "bcd")


def test_missing_file(copied):
    store, records = copied
    (store.path / store.index().entry("b").file).unlink()
    assert_refuses(store, records, "bc")


def test_damaged_shared_file_leaves_the_tasks(copied):
    store, records = copied
    file = store.path / store.index().shared["file"]
    good = file.read_bytes()
    for place in range(len(good)):
        file.write_bytes(good[:place] + bytes([good[place] ^ 4]) + good[place + 1 :])
        with pytest.raises(DamagedError, match="shared state"):
            store.read_shared()
    assert_refuses(store, records, "")


def test_a_damaged_parent_gets_no_children(copied):
    store, records = copied
    file = store.path / store.index().entry("b").file
    file.write_bytes(b"x" * file.stat().st_size)
    with store.writing():
        entry = store.add(TaskRecord("f", gates=records["b"].gates), parent="c")
    assert entry.parent is None
    assert torch.equal(store.read("f").gates, records["b"].gates)


def test_old_versions_are_named_as_such(copied):
    store, records = copied
    with store.writing():
        store.add(replace(records["d"], gates=None), new_version=True)
    (store.path / store.index().entry("d", version=1).file).unlink()
    assert set(store.damage()) == {"d (version 1)"}
    assert store.read("d").gates is None


def links(target, file):
    """Ways to put something else where a file of the store was."""
    yield lambda: file.symlink_to(target)
    yield lambda: os.link(target, file)
    yield lambda: os.mkfifo(file)
    yield lambda: file.mkdir()


def test_links_fifos_and_folders_are_refused(copied, tmp_path):
    store, records = copied
    file = store.path / store.index().entry("b").file
    target = tmp_path / "outside"
    shutil.copy(file, target)  # right bytes, but not of the store
    for put in links(target, file):
        file.unlink() if file.exists() else None
        put()
        assert_refuses(store, records, "bc")
        file.rmdir() if file.is_dir() else file.unlink()


def test_index_lock_and_folders_behind_links_are_refused(copied, tmp_path):
    store, records = copied
    for name in (INDEX, "lock"):
        target = tmp_path / f"outside-{name}"
        shutil.move(store.path / name, target)
        for put in links(target, store.path / name):
            put()
            with pytest.raises(StoreError), Store.open(store.path).writing():
                pass
            place = store.path / name
            place.rmdir() if place.is_dir() and not place.is_symlink() else place.unlink()
        shutil.copy(target, store.path / name)
    shutil.move(store.path / "tasks", tmp_path / "elsewhere")
    (store.path / "tasks").symlink_to(tmp_path / "elsewhere")
    assert_refuses(store, records, "abcde")


def hostile_blobs() -> dict[str, bytes]:
    class Runs:
        def __reduce__(self):
            return os.mkdir, ("executed",)

    plain = save({"tensor.head": torch.ones(4)})
    return {
        "pickle": pickle.dumps(Runs()),
        "zip": b"PK\x03\x04" + bytes(200),
        "empty": b"",
        "header longer than the file": struct.pack("<Q", 1 << 62) + b"{}",
        "header of 200 MB": struct.pack("<Q", 200 << 20) + b"{}",
        "huge shape": (lambda h: struct.pack("<Q", len(h)) + h)(
            b'{"x":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}}'
        )
        + bytes(4),
        "deep header": (lambda h: struct.pack("<Q", len(h)) + h)(b'{"a":' * 5000 + b"1" + b"}" * 5000),
        "no facts": plain,
        "wrong facts": save({}, metadata={"tss": "[]"}),
        "facts that are no json": save({}, metadata={"tss": "{"}),
        "another task": save({}, metadata={"tss": '{"name":"z","version":1,"parent":null,"meta":{}}'}),
        "no meta": save({}, metadata={"tss": '{"name":"d","version":1,"parent":null}'}),
        "NaN": save(
            {"tensor.head": torch.tensor([float("nan")])},
            metadata={"tss": '{"name":"d","version":1,"parent":null,"meta":{}}'},
        ),
    }


@pytest.mark.parametrize("kind", hostile_blobs())
def test_hostile_files_with_a_matching_checksum(copied, tmp_path, monkeypatch, kind):
    """Even if somebody rewrites the index to match, the file is refused, and the others are served."""
    store, records = copied
    monkeypatch.chdir(tmp_path)
    blob = hostile_blobs()[kind]
    index = store.index()
    old = index.entry("d")
    sha256 = hashlib.sha256(blob).hexdigest()
    bad = replace(old, file=task_file(old.id, sha256), sha256=sha256, bytes=len(blob))
    (store.path / bad.file).write_bytes(blob)
    tasks = tuple(bad if entry is old else entry for entry in index.tasks)
    (store.path / INDEX).write_bytes(encode_index(replace(index, tasks=tasks)))
    assert_refuses(store, records, "d")
    assert not (tmp_path / "executed").exists()
    if kind == "NaN":
        assert "'tensor.head' holds NaN" in store.damage()["d"]


@pytest.mark.parametrize("gates", [9, -1, "8", 10**15, 8.0])
def test_crafted_gate_counts(copied, gates):
    store, records = copied
    facts = {"name": "d", "version": 1, "parent": None, "meta": {}, "gates": gates, "summary": records["d"].summary}
    blob = save({"gates": torch.zeros(1, dtype=torch.uint8)}, metadata={"tss": json.dumps(facts)})
    index = store.index()
    old = index.entry("d")
    sha256 = hashlib.sha256(blob).hexdigest()
    bad = replace(old, file=task_file(old.id, sha256), sha256=sha256, bytes=len(blob))
    (store.path / bad.file).write_bytes(blob)
    (store.path / INDEX).write_bytes(
        encode_index(replace(index, tasks=tuple(bad if entry is old else entry for entry in index.tasks)))
    )
    with pytest.raises(DamagedError, match="cannot be read"):
        store.read("d")
    assert_same(store.read("a"), records["a"])


def crafted_indexes(index):
    """Indexes with a right checksum and wrong content."""
    first, second, *rest = index.tasks
    swap = lambda entry: replace(index, tasks=(entry, second, *rest))  # noqa: E731
    yield swap(replace(first, file="../../etc/passwd"))
    yield swap(replace(first, file="tasks/../../x.safetensors"))
    yield swap(replace(first, file=task_file(1, "../../../../../../x"), sha256="../../../../../../x"))
    yield swap(replace(first, parent=second.file, depth=2))
    yield swap(replace(first, parent=first.file, depth=1))
    yield swap(replace(first, depth=5))
    yield swap(replace(first, id=2))
    yield swap(replace(first, bytes=-1))
    yield swap(replace(first, bytes="9"))
    yield swap(replace(first, name=3))
    yield replace(index, next_id=2)
    yield replace(index, identity=[])
    yield replace(index, format=0)
    yield replace(index, shared={"file": "shared/../x.safetensors", "sha256": "../x", "bytes": 1})
    yield replace(index, shared={"file": "x"})
    yield replace(index, shared=7)


def test_crafted_indexes_are_refused(copied):
    store, _ = copied
    for crafted in crafted_indexes(store.index()):
        (store.path / INDEX).write_bytes(encode_index(crafted))
        with pytest.raises(StoreError):
            Store.open(store.path)


def test_an_endless_index_is_not_read_into_memory(copied):
    store, _ = copied
    os.truncate(store.path / INDEX, 1 << 40)  # sparse: a terabyte that takes no space
    with pytest.raises(StoreError, match="more than"):
        Store.open(store.path)
