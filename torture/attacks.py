"""Crafted attacks on the content of a store's files. Each spoils the store in a folder, with right checksums if it can.

An attack returns what must be refused: "open", "write", a task's name, "all" tasks, "import FILE", or "checkpoint"
(which is passed over, not refused). The store is `family` of tests/store/store_samples.py: tasks a to e.
"""

from __future__ import annotations

import hashlib
import json
import pickle  # to make hostile files; the package itself must not import it
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from tss.store import Store, TaskRecord, portable
from tss.store.layout import Index, encode_index, task_file

CANARY = "canary"  # a file beside the store that code in a hostile file would make
SECRET = "secret"  # a file beside the store that must not be read


class Runs:
    """Unpickled, it makes the canary."""

    def __init__(self, path: Path):
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self.path),)


ATTACKS: dict[str, Callable[[Path], str]] = {}


def attack(work: Callable[[Path], str]) -> Callable[[Path], str]:
    ATTACKS[work.__name__.replace("_", " ")] = work
    return work


def index_of(root: Path) -> Index:
    return Store.open(root).index()


def put_index(root: Path, index: Index) -> None:
    (root / "index.json").write_bytes(encode_index(index))


def _put_task(root: Path, name: str, blob: bytes) -> None:
    """Another content for a task, with the checksum to match."""
    index = index_of(root)
    entry = index.entry(name)
    (root / entry.file).unlink()
    sha = hashlib.sha256(blob).hexdigest()
    new = replace(entry, file=task_file(entry.id, sha), sha256=sha, bytes=len(blob))
    (root / new.file).write_bytes(blob)
    put_index(root, replace(index, tasks=tuple(new if one is entry else one for one in index.tasks)))


def _pickled(root: Path) -> bytes:
    return pickle.dumps(Runs(root.parent / CANARY))


def _header(table: dict, data: bytes = b"", length: int | None = None) -> bytes:
    text = json.dumps(table).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def _facts(root: Path, name: str, **changed: Any) -> dict[str, str]:
    entry = index_of(root).entry(name)
    facts = {"id": entry.id, "name": name, "version": 1, "parent": None, "gates": None, "meta": {}}
    facts["summary"] = entry.summary
    return {"tss": json.dumps({**facts, **changed})}


@attack
def pickle_as_a_task(root: Path) -> str:
    _put_task(root, "d", _pickled(root))
    return "d"


@attack
def torch_zip_as_a_task(root: Path) -> str:
    file = root / "made"
    torch.save({"x": Runs(root.parent / CANARY)}, file)
    _put_task(root, "d", file.read_bytes())
    file.unlink()
    return "d"


@attack
def pickle_as_the_index(root: Path) -> str:
    (root / "index.json").write_bytes(_pickled(root))
    return "open"


@attack
def pickle_as_a_checkpoint(root: Path) -> str:
    (root / "running" / f"{index_of(root).next_id}.checkpoint").write_bytes(_pickled(root))
    return "checkpoint"


@attack
def pickle_to_import(root: Path) -> str:
    (root.parent / "file").write_bytes(_pickled(root))
    return "import file"


@attack
def zip_bomb(root: Path) -> str:
    with zipfile.ZipFile(root / "made", "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("x", bytes(50 << 20))
    _put_task(root, "d", (root / "made").read_bytes())
    (root / "made").unlink()
    return "d"


@attack
def header_of_2_to_the_63(root: Path) -> str:
    _put_task(root, "d", _header({}, b"x" * 64, 1 << 63))
    return "d"


@attack
def header_longer_than_the_file(root: Path) -> str:
    _put_task(root, "d", _header({}, b"", 99_000_000))
    return "d"


@attack
def header_of_deep_json(root: Path) -> str:
    _put_task(root, "d", struct.pack("<Q", 200_000) + b"[" * 200_000)
    return "d"


@attack
def shape_of_an_exabyte(root: Path) -> str:
    table = {"gates": {"dtype": "F32", "shape": [1 << 40, 1 << 20], "data_offsets": [0, 8]}}
    _put_task(root, "d", _header({**table, "__metadata__": _facts(root, "d")}, bytes(8)))
    return "d"


@attack
def gates_of_an_exabyte(root: Path) -> str:
    tensors = {"gates": torch.zeros(8, dtype=torch.uint8)}
    _put_task(root, "d", save(tensors, _facts(root, "d", gates=1 << 60)))
    return "d"


@attack
def difference_code_of_many_gates(root: Path) -> str:
    """A child with a tiny code that claims as many gates as memory has not."""
    parent = index_of(root).entry("b").file
    tensors = {"gates.difference": torch.ones(40, dtype=torch.uint8)}
    _put_task(root, "c", save(tensors, _facts(root, "c", gates=1 << 50, parent=parent)))
    return "c"


@attack
def negative_gates(root: Path) -> str:
    _put_task(root, "d", save({"gates": torch.zeros(8, dtype=torch.uint8)}, _facts(root, "d", gates=-5)))
    return "d"


@attack
def overlapping_tensors(root: Path) -> str:
    one = {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}
    _put_task(root, "d", _header({"x": one, "y": one, "__metadata__": _facts(root, "d")}, bytes(8)))
    return "d"


@attack
def hole_between_tensors(root: Path) -> str:
    table = {"x": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}}
    _put_task(root, "d", _header({**table, "__metadata__": _facts(root, "d")}, bytes(64)))
    return "d"


@attack
def nan_weights(root: Path) -> str:
    tensors = {"tensor.head": torch.tensor([1.0, float("nan")])}
    _put_task(root, "e", save(tensors, _facts(root, "e")))
    return "e"


@attack
def infinite_weights_to_import(root: Path) -> str:
    carried = portable.Carried(TaskRecord("x", tensors={"head": torch.ones(3)}), 1, {})
    blob = bytearray(portable.pack(carried))
    blob[-4:] = struct.pack("<f", float("inf"))
    (root.parent / "file").write_bytes(blob)
    return "import file"


@attack
def facts_that_are_a_list(root: Path) -> str:
    _put_task(root, "e", save({"x": torch.ones(1)}, {"tss": "[]"}))
    return "e"


@attack
def no_facts(root: Path) -> str:
    _put_task(root, "e", save({"x": torch.ones(1)}))
    return "e"


@attack
def another_tasks_content(root: Path) -> str:
    _put_task(root, "e", (root / index_of(root).entry("d").file).read_bytes())
    return "e"


@attack
def import_of_a_gigantic_hole(root: Path) -> str:
    with open(root.parent / "file", "wb") as file:
        file.truncate(1 << 35)  # no space is taken
    return "import file"


@attack
def import_that_lies_about_its_checksum(root: Path) -> str:
    blob = bytearray(portable.pack(portable.Carried(TaskRecord("x", tensors={"h": torch.ones(9)}), 1, {})))
    blob[-1] ^= 1
    (root.parent / "file").write_bytes(blob)
    return "import file"
