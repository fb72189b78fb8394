"""Writing: files first, made durable, then the index that names them, in one rename."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from tss.errors import DamagedError, StoreError
from tss.store import content, difference, disk, read
from tss.store.layout import (
    DEEPEST,
    FOLDERS,
    INDEX,
    INDEX_COPY,
    Index,
    TaskEntry,
    TaskRecord,
    encode_index,
    shared_file,
    task_file,
)
from tss.store.lock import Lock

_OURS = re.compile(r"[0-9]+-[0-9a-f]+\.safetensors|[0-9a-f]+\.safetensors|[0-9]+\.checkpoint")


def checkpoint_file(index: Index) -> str:
    """The checkpoint of the task being learnt; once that task has its number, the name is out of use."""
    return f"running/{index.next_id}.checkpoint"


@dataclass(frozen=True)
class Before:
    """A task to keep the difference from. gates: bool [gates]."""

    entry: TaskEntry
    gates: np.ndarray


def to_differ_from(reader: read.Reader, index: Index, parent: str | None) -> Before | None:
    """The task named `parent`, unless it cannot serve: no gates, damaged, or itself at the end of a long chain."""
    if parent is None:
        return None
    entry = index.entry(parent)
    if entry.depth >= DEEPEST:
        return None
    try:
        gates = reader.gates(index, entry)
    except DamagedError:
        return None  # a damaged parent must not make its children unreadable
    return None if gates is None else Before(entry, gates)


def encode_task(record: TaskRecord, id: int, version: int, before: Before | None) -> tuple[TaskEntry, bytes]:
    """The entry and the bytes of a task. Raises `StoreError` naming what cannot be kept."""
    what = f"task {record.name!r}"
    tensors = {read.TENSOR + name: tensor for name, tensor in record.tensors.items()}
    tensors |= {read.PROBE + name: tensor for name, tensor in record.probes.items()}
    gate_bytes, parent = 0, None
    if record.gates is not None:
        stored, parent = _encode_gates(checked_gates(record.gates, what), before)
        gate_bytes = stored.size
        tensors[read.GATES if parent is None else read.DIFFERENCE] = torch.from_numpy(stored)
    facts = {
        "id": id,
        "name": record.name,
        "version": version,
        "parent": parent.file if parent else None,
        "gates": None if record.gates is None else record.gates.numel(),
        "meta": record.meta,
        "summary": record.summary,
    }
    blob = content.encode(tensors, facts, what)
    sha256 = hashlib.sha256(blob).hexdigest()
    entry = TaskEntry(
        id=id,
        name=record.name,
        version=version,
        file=task_file(id, sha256),
        sha256=sha256,
        bytes=len(blob),
        parent=parent.file if parent else None,
        depth=parent.depth + 1 if parent else 0,
        gate_bytes=gate_bytes,
        summary=record.summary,
    )
    return entry, blob


def checked_gates(gates: torch.Tensor, what: str) -> np.ndarray:
    """The gates as bool [gates]. Raises `StoreError` for anything else."""
    if gates.dtype != torch.bool or gates.dim() != 1:
        raise StoreError(f"{what}: gates must be one row of booleans, not {gates.dtype} {tuple(gates.shape)}")
    return gates.detach().cpu().numpy()


def _encode_gates(gates: np.ndarray, before: Before | None) -> tuple[np.ndarray, TaskEntry | None]:
    """Packed gates and no parent, or the difference from the parent's gates and the parent, whichever is smaller."""
    full = difference.pack(gates)
    if before is None or before.entry.depth >= DEEPEST or before.gates.size != gates.size:
        return full, None
    code = np.frombuffer(difference.encode(before.gates ^ gates), np.uint8).copy()
    return (code, before.entry) if code.size < full.size else (full, None)


def encode_shared(tensors: dict[str, torch.Tensor]) -> tuple[dict, bytes]:
    """What the index says of the shared file, and its bytes. Raises `StoreError` naming a bad tensor."""
    blob = content.encode(tensors, {}, "shared state")
    sha256 = hashlib.sha256(blob).hexdigest()
    return {"file": shared_file(sha256), "sha256": sha256, "bytes": len(blob)}, blob


def commit(root: Path, lock: Lock, old: Index, new: Index, blobs: dict[str, bytes]) -> None:
    """Replace the old index by the new one after its new files are safely on disk.

    blobs: file name -> bytes. Raises `StoreError`, `LockedError`; then the index still lists the old tasks (or, if only
    the last fsync failed, the new ones), never something between.
    """
    raw = encode_index(new)
    disk.require_space(root, sum(map(len, blobs.values())) + 2 * len(raw))
    for name, blob in blobs.items():
        disk.write_file(root, name, blob)
    with lock.firmly():
        # the copy first: whatever fails before the rename of the index itself leaves the old list in force
        disk.write_file(root, INDEX_COPY, raw)
        disk.write_file(root, INDEX, raw)
    for name in old.files() - new.files():
        with contextlib.suppress(StoreError):  # the save is done; the next writer sweeps what stays behind
            disk.remove(root, name)


def with_shared(index: Index, shared: dict[str, torch.Tensor] | None, blobs: dict[str, bytes]) -> Index:
    """The index with other shared state, its bytes added to `blobs`; None changes nothing."""
    if shared is None:
        return index
    described, blob = encode_shared(shared)
    blobs[described["file"]] = blob
    return replace(index, shared=described)


def tidy(root: Path, index: Index, raw: bytes) -> tuple[int, int]:
    """Before writing: folders in place, leftovers of killed writers gone, the copy of the index equal to it.

    raw: the bytes of `index.json`. Files that the store does not make are left alone. Returns how many files, and bytes
    in them, were removed. Raises `StoreError`.
    """
    for folder in FOLDERS:
        disk.make_folder(root / folder)
    try:
        same = disk.read_file(root, INDEX_COPY, size=len(raw)) == raw
    except (disk.NotPlain, OSError):
        same = False
    if not same:
        disk.write_file(root, INDEX_COPY, raw)
    named = index.files() | {checkpoint_file(index)}
    found = [name for name in _ours(root) if name not in named]
    size = sum(disk.size(root, name) for name in found)
    for name in found:
        with contextlib.suppress(StoreError):  # a leftover that cannot be removed is in nobody's way
            disk.remove(root, name)
    return len(found), size


def measure(root: Path) -> tuple[int, int]:
    """How many task, shared and unfinished files there are, and the bytes in them. Raises `StoreError`."""
    found = list(_ours(root))
    return len(found), sum(disk.size(root, name) for name in found)


def _ours(root: Path) -> Iterator[str]:
    """The names of the files that the store makes beside index and lock."""
    for folder in ("", *FOLDERS):
        with disk.explained("list", root / folder):
            found = disk.names_in(root, folder)
        for bare in found:
            if bare.startswith(disk.TEMPORARY) or (folder and _OURS.fullmatch(bare)):
                yield f"{folder}/{bare}" if folder else bare
