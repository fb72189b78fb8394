"""What is added is read back exactly; names, versions, identity, shared state and checkpoints."""

from __future__ import annotations

import math
import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from store_samples import assert_same, family, random_gates, record

from tss.errors import LockedError, StoreError, UnknownTaskError
from tss.store import Store, TaskRecord
from tss.store.layout import INDEX, Index, decode_index, encode_index


def test_round_trip_in_a_second_process_view(tmp_path):
    _, records = family(tmp_path / "store")
    store = Store.open(tmp_path / "store")
    assert store.index().names() == tuple("abcde")
    for name, one in records.items():
        assert_same(store.read(name), one)
        light = store.read(name, gates=False)
        assert light.gates is None and light.meta == one.meta and light.tensors.keys() == one.tensors.keys()
    assert torch.equal(store.read_shared()["scores"], torch.ones(6))
    assert store.damage() == {}
    entry = store.index().entry("d")
    assert entry.gate_bytes == 50 and entry.summary == records["d"].summary
    assert (tmp_path / "store" / entry.file).stat().st_size == entry.bytes


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.bool]
)
def test_every_dtype_and_shape_comes_back(tmp_path, dtype):
    whole = torch.arange(12).reshape(3, 4).to(dtype)
    tensors = {"scalar": whole[0, 1], "empty": whole[:0], "turned": whole.T, "slice": whole[:, 1], "whole": whole}
    store = Store.open(tmp_path / "store", create=True)
    with store.writing():
        store.add(TaskRecord("t", tensors=tensors))
    found = store.read("t").tensors
    for name, tensor in tensors.items():
        assert found[name].dtype == dtype and torch.equal(found[name], tensor)


def test_equal_content_gives_equal_bytes(tmp_path):
    shas = []
    for place in ("one", "two"):
        store, _ = family(tmp_path / place)
        shas.append([entry.sha256 for entry in store.index().tasks] + [store.index().shared["sha256"]])
    assert shas[0] == shas[1]


@settings(max_examples=25, deadline=None)
@given(names=st.lists(st.text(min_size=1, max_size=60), min_size=1, max_size=4, unique=True))
def test_names_are_data_and_never_paths(tmp_path_factory, names):
    path = tmp_path_factory.mktemp("names")
    store = Store.open(path / "store", create=True)
    with store.writing():
        for name in names:
            store.add(TaskRecord(name, meta={"name": name}))
    again = Store.open(path / "store")
    assert again.index().names() == tuple(names)
    assert [again.read(name).meta["name"] for name in names] == names
    assert os.listdir(path) == ["store"]
    expected = {"index.json", "index.backup.json", "lock", "tasks", "shared", "running"}
    assert set(os.listdir(path / "store")) == expected


@pytest.mark.parametrize("name", ["../x", "a/b", "/etc/passwd", "CON", "\0", ".", "\u202eabc", "é", "é", "x" * 10_000])
def test_hard_names(tmp_path, name):
    store = Store.open(tmp_path / "store", create=True)
    with store.writing():
        store.add(TaskRecord(name))
    assert store.read(name).name == name
    assert len(os.listdir(tmp_path / "store" / "tasks")) == 1


@pytest.mark.parametrize("name", ["", None, 3])
def test_no_name_is_refused(tmp_path, name):
    store = Store.open(tmp_path / "store", create=True)
    with store.writing(), pytest.raises(StoreError, match="needs a name"):
        store.add(TaskRecord(name))


def test_duplicate_is_refused_and_a_new_version_keeps_the_old(tmp_path):
    store, records = family(tmp_path / "store")
    with store.writing():
        with pytest.raises(StoreError, match="'b' already"):
            store.add(record("b", 9))
        entry = store.add(record("b", 9), new_version=True)
    assert (entry.version, entry.id) == (2, 6)
    assert store.read("b").meta["seed"] == 9
    assert_same(store.read("b", version=1), records["b"])
    assert_same(store.read("c"), records["c"])
    assert store.index().names() == tuple("abcde")
    with pytest.raises(UnknownTaskError, match="it has 1, 2"):
        store.read("b", version=3)


def test_unknown_task_lists_the_nearest(tmp_path):
    store = Store.open(tmp_path / "store", create=True)
    with pytest.raises(UnknownTaskError, match="none yet"):
        store.read("reviews")
    with store.writing():
        store.add(record("reviews"))
        with pytest.raises(UnknownTaskError, match="did you mean 'reviews'"):
            store.add(record("other"), parent="review")
    with pytest.raises(UnknownTaskError, match="did you mean 'reviews'"):
        store.read("reveiws")


def test_identity_is_kept_once_and_compared_ever_after(tmp_path):
    store = Store.open(tmp_path / "store", create=True)
    store.identify({"backbone": "abc", "sizes": (1, 2), "seed": 1})
    again = Store.open(tmp_path / "store")
    again.identify({"seed": 1, "backbone": "abc", "sizes": [1, 2]})
    with pytest.raises(StoreError) as caught:
        again.identify({"backbone": "xyz", "sizes": [1, 2], "method": "tss"})
    message = str(caught.value)
    assert "backbone: 'abc' in the store, 'xyz' asked" in message
    assert "method: not set in the store, 'tss' asked" in message
    assert "seed: 1 in the store, not set asked" in message
    assert "sizes" not in message


def test_shared_state_alone(tmp_path):
    store, _ = family(tmp_path / "store")
    before = store.index()
    with store.writing():
        store.replace_shared({"prompts": torch.arange(3.0)})
    assert store.index().tasks == before.tasks
    assert torch.equal(store.read_shared()["prompts"], torch.arange(3.0))
    assert len(os.listdir(store.path / "shared")) == 1
    assert Store.open(tmp_path / "empty", create=True).read_shared() == {}


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_not_finite_is_refused_by_name(tmp_path, value):
    store = Store.open(tmp_path / "store", create=True)
    bad = torch.tensor([1.0, value])
    with store.writing():
        with pytest.raises(StoreError, match="'tensor.head' holds NaN"):
            store.add(TaskRecord("t", tensors={"head": bad}))
        with pytest.raises(StoreError, match="'probe.outputs' holds NaN"):
            store.add(TaskRecord("t", probes={"outputs": bad.bfloat16()}))
        with pytest.raises(StoreError, match="'scores' holds NaN"):
            store.add(TaskRecord("t"), shared={"scores": bad})
        with pytest.raises(StoreError, match=r"\['meta'\]\['scores'\]\[0\] is"):
            store.add(TaskRecord("t", meta={"scores": [value]}))
    assert store.index().tasks == ()


@pytest.mark.parametrize("meta", [{1: "a"}, {"a": {1, 2}}, {"a": torch.ones(1)}, {"a": b"bytes"}])
def test_facts_that_json_cannot_hold_are_refused(tmp_path, meta):
    store = Store.open(tmp_path / "store", create=True)
    with store.writing(), pytest.raises(StoreError, match="task 't'"):
        store.add(TaskRecord("t", meta=meta))


@pytest.mark.parametrize("gates", [torch.ones(3), torch.ones(2, 2, dtype=torch.bool)])
def test_gates_of_another_kind_are_refused(tmp_path, gates):
    store = Store.open(tmp_path / "store", create=True)
    with store.writing(), pytest.raises(StoreError, match="one row of booleans"):
        store.add(TaskRecord("t", gates=gates))


def test_changes_need_the_lock(tmp_path):
    store = Store.open(tmp_path / "store", create=True)
    for change in (
        lambda: store.add(record("t")),
        lambda: store.replace_shared({}),
        lambda: store.running.save({}, {}),
        lambda: store.running.clear(),
    ):
        with pytest.raises(LockedError, match="store.writing"):
            change()


def test_checkpoint_round_trip_damage_and_end(tmp_path):
    store = Store.open(tmp_path / "store", create=True)
    tensors = {"scores": torch.tensor([1.0, math.nan]), "rng": torch.arange(5, dtype=torch.uint8)}
    with store.writing():
        store.running.save({}, {"step": 1})
        store.running.save(tensors, {"step": 2, "best": math.inf})
    found, meta = Store.open(tmp_path / "store").running.load()
    assert meta == {"step": 2, "best": math.inf}
    assert found["scores"].numpy().tobytes() == tensors["scores"].numpy().tobytes()
    (file,) = (store.path / "running").iterdir()
    good = file.read_bytes()
    for place in range(0, len(good), 7):
        file.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        assert store.running.load() is None and "damaged" in store.running.problem
    file.write_bytes(good[:-1])
    assert store.running.load() is None and "damaged" in store.running.problem
    file.write_bytes(good)
    assert store.running.load() is not None and store.running.problem is None
    with store.writing():
        assert store.running.load() is not None
        store.running.clear()
        assert store.running.load() is None and store.running.problem is None
        store.running.save(tensors, {"step": 3})
        store.add(record("t"))
        assert store.running.load() is None
    assert list((store.path / "running").iterdir()) == []


def test_a_checkpoint_of_a_task_that_was_added_meanwhile_is_not_used(tmp_path):
    store = Store.open(tmp_path / "store", create=True)
    with store.writing():
        store.running.save({}, {"step": 1})
        (file,) = (store.path / "running").iterdir()
        old = file.read_bytes()
        store.add(record("t"))
    file.write_bytes(old)  # as if the process was killed right after the index was replaced
    assert store.running.load() is None
    with store.writing():
        pass
    assert not file.exists()


def test_what_is_not_a_store_is_refused(tmp_path):
    with pytest.raises(StoreError, match="does not exist"):
        Store.open(tmp_path / "none")
    (tmp_path / "file").write_text("x")
    for create in (False, True):
        with pytest.raises(StoreError, match="not a folder"):
            Store.open(tmp_path / "file", create=create)
    (tmp_path / "other").mkdir()
    with pytest.raises(StoreError, match="no index.json"):
        Store.open(tmp_path / "other")
    (tmp_path / "other" / "thesis.tex").write_text("x")
    with pytest.raises(StoreError, match="thesis.tex"):
        Store.open(tmp_path / "other", create=True)
    assert os.listdir(tmp_path / "other") == ["thesis.tex"]
    with pytest.raises(StoreError, match="cannot be the name"):
        Store.open("a\0b")


def test_create_in_new_deep_and_empty_folders_and_again(tmp_path):
    Store.open(tmp_path / "a" / "b" / "c", create=True)
    (tmp_path / "empty").mkdir()
    store = Store.open(tmp_path / "empty", create=True)
    with store.writing():
        store.add(record("t"))
    assert Store.open(tmp_path / "empty", create=True).index().names() == ("t",)


def test_newer_format_is_refused_with_the_release_needed(tmp_path):
    store, _ = family(tmp_path / "store")
    index = store.index()
    raw = encode_index(Index(3, index.identity, index.tasks, index.shared, index.next_id))
    (store.path / INDEX).write_bytes(raw.replace(b'"needs":"0.1.0"', b'"needs":"3.7.0"'))
    with pytest.raises(StoreError, match=r"format 3.*reads formats up to 2.*needs tss 3\.7\.0"):
        Store.open(store.path)


def test_index_bytes_round_trip(tmp_path):
    index = family(tmp_path / "store")[0].index()
    assert decode_index(encode_index(index)) == index


def test_space_is_asked_for_in_bytes(tmp_path):
    store = Store.open(tmp_path / "store", create=True)
    store.require_space(1)
    with pytest.raises(StoreError, match=r"not enough disk space at .*store: 1,000,000,.* bytes needed"):
        store.require_space(10**18)


def test_gates_of_other_length_than_the_parent_are_kept_full(tmp_path):
    store, _ = family(tmp_path / "store")
    gates = random_gates(64, 7)
    with store.writing():
        entry = store.add(record("f", 6, gates), parent="a")
        other = store.add(record("g", 7, gates), parent="e")
    assert entry.parent is None and other.parent is None
    assert torch.equal(store.read("f").gates, gates)
