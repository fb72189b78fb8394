"""Writing: files first, made durable, then the index that names them, in one rename."""

from __future__ import annotations

import contextlib
import hashlib
import re
from dataclasses import replace
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


def encode_task(
    reader: read.Reader, index: Index, record: TaskRecord, version: int, parent: TaskEntry | None
) -> tuple[TaskEntry, bytes]:
    """The entry and the bytes of a new task. Raises `StoreError` naming what cannot be kept."""
    what = f"task {record.name!r}"
    tensors = {read.TENSOR + name: tensor for name, tensor in record.tensors.items()}
    tensors |= {read.PROBE + name: tensor for name, tensor in record.probes.items()}
    gate_bytes = 0
    if record.gates is None:
        parent = None
    else:
        stored, parent = _encode_gates(reader, index, _checked_gates(record.gates, what), parent)
        gate_bytes = stored.size
        tensors[read.GATES if parent is None else read.DIFFERENCE] = torch.from_numpy(stored)
    facts = {
        "id": index.next_id,
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
        id=index.next_id,
        name=record.name,
        version=version,
        file=task_file(index.next_id, sha256),
        sha256=sha256,
        bytes=len(blob),
        parent=parent.file if parent else None,
        depth=parent.depth + 1 if parent else 0,
        gate_bytes=gate_bytes,
        summary=record.summary,
    )
    return entry, blob


def _checked_gates(gates: torch.Tensor, what: str) -> np.ndarray:
    if gates.dtype != torch.bool or gates.dim() != 1:
        raise StoreError(f"{what}: gates must be one row of booleans, not {gates.dtype} {tuple(gates.shape)}")
    return gates.detach().cpu().numpy()


def _encode_gates(
    reader: read.Reader, index: Index, gates: np.ndarray, parent: TaskEntry | None
) -> tuple[np.ndarray, TaskEntry | None]:
    """Packed gates and no parent, or the difference from the parent's gates and the parent, whichever is smaller."""
    full = difference.pack(gates)
    if parent is None or parent.depth >= DEEPEST:
        return full, None
    try:
        before = reader.gates(index, parent)
    except DamagedError:
        return full, None  # a damaged parent must not make its children unreadable
    if before is None or before.size != gates.size:
        return full, None
    code = np.frombuffer(difference.encode(before ^ gates), np.uint8).copy()
    return (code, parent) if code.size < full.size else (full, None)


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


def tidy(root: Path, index: Index, raw: bytes) -> None:
    """Before writing: folders in place, leftovers of killed writers gone, the copy of the index equal to it.

    raw: the bytes of `index.json`. Files that the store does not make are left alone. Raises `StoreError`.
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
    for folder in ("", *FOLDERS):
        with disk.explained("list", root / folder):
            found = disk.names_in(root, folder)
        for bare in found:
            name = f"{folder}/{bare}" if folder else bare
            ours = bare.startswith(disk.TEMPORARY) or (folder and _OURS.fullmatch(bare))
            if ours and name not in named:
                with contextlib.suppress(StoreError):  # a leftover that cannot be removed is in nobody's way
                    disk.remove(root, name)
