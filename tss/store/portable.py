"""One task as one file that can be carried to another store: safetensors, gates in full, with its own checksum.

Tasks that answer beside it go along: the first one's tensors begin with `beside.0.`, its facts stand in a list.
The SHA-256 in the facts is over the table of tensors, all other facts and every byte of the tensors.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tss.errors import DamagedError, StoreError
from tss.store import content, difference, disk
from tss.store.layout import TaskRecord
from tss.store.read import GATES, PROBE, TENSOR, named
from tss.store.write import checked_gates

_ALONE, _TOGETHER = 1, 2  # formats; a reader that does not know of company must not take the task without it
_LARGEST = 16 << 30  # bytes
_NO_SUM = "0" * 64
_BESIDE = "beside"


@dataclass(frozen=True)
class Carried:
    """A task on its way. identity: what the store it comes from rests on (backbone, adapters, method).

    beside: the tasks that answer beside it, in their order.
    """

    record: TaskRecord
    version: int
    identity: dict[str, Any]
    beside: tuple[TaskRecord, ...] = ()


def pack(carried: Carried) -> bytes:
    """The bytes of the file. Raises `StoreError` naming what cannot be kept."""
    what = f"task {carried.record.name!r}"
    tensors, told = _parts(carried.record)
    facts = {
        "carried": _TOGETHER if carried.beside else _ALONE,
        "sha256": _NO_SUM,
        "version": carried.version,
        "identity": carried.identity,
        **told,
    }
    for i, one in enumerate(carried.beside):
        parts, told = _parts(one)
        tensors |= {f"{_BESIDE}.{i}.{name}": tensor for name, tensor in parts.items()}
        facts.setdefault(_BESIDE, []).append(told)
    digest = _digest(content.encode(tensors, facts, what))
    return content.encode(tensors, {**facts, "sha256": digest}, what)


def unpack(blob: bytes) -> Carried:
    """What `pack` was given. Raises `ValueError` saying what is wrong with the bytes."""
    tensors, facts = content.decode(blob)
    if facts.get("carried") not in (_ALONE, _TOGETHER):
        raise ValueError(f"it is not an exported task of the formats {_ALONE} and {_TOGETHER}")
    if facts.get("sha256") != _digest(blob):
        raise ValueError("its checksum does not match its content")
    bad = content.first_not_finite(tensors)
    if bad is not None:
        raise ValueError(f"tensor {bad!r} holds NaN or infinity")
    others = facts.get(_BESIDE, [])
    _check(facts, {"version": int, "identity": dict})
    _check({_BESIDE: others}, {_BESIDE: list})
    beside = [_record(named(tensors, f"{_BESIDE}.{i}."), told) for i, told in enumerate(others)]
    return Carried(_record(tensors, facts), facts["version"], facts["identity"], tuple(beside))


def _parts(record: TaskRecord) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """A record as tensors and facts."""
    tensors = {TENSOR + name: tensor for name, tensor in record.tensors.items()}
    tensors |= {PROBE + name: tensor for name, tensor in record.probes.items()}
    if record.gates is not None:
        packed = difference.pack(checked_gates(record.gates, f"task {record.name!r}"))
        tensors[GATES] = torch.from_numpy(packed)
    count = None if record.gates is None else record.gates.numel()
    return tensors, {"name": record.name, "gates": count, "meta": record.meta, "summary": record.summary}


def _record(tensors: dict[str, torch.Tensor], facts: Any) -> TaskRecord:
    """What `_parts` took apart. Raises `ValueError`."""
    _check(facts, {"name": str, "meta": dict, "summary": dict})
    try:
        count = facts["gates"]
        gates = None if count is None else torch.from_numpy(difference.unpack(tensors[GATES].numpy(), count))
    except (KeyError, TypeError) as error:
        raise ValueError(f"its gates cannot be read ({error})") from None
    parts = named(tensors, TENSOR), named(tensors, PROBE)
    return TaskRecord(facts["name"], facts["meta"], gates, *parts, facts["summary"])


def _check(facts: Any, shape: dict[str, type]) -> None:
    wrong = [key for key, kind in shape.items() if not isinstance(facts, dict) or not isinstance(facts.get(key), kind)]
    if wrong:
        raise ValueError(f"its {wrong[0]!r} is missing or of the wrong type")


def _digest(blob: bytes) -> str:
    """Over the header as values, not as text, so that another writer of safetensors gives the same.

    Raises `ValueError` if the facts, which only we write, are written otherwise: 1e-05 and 1E-05 are one value, and no
    changed byte may be missed.
    """
    length = int.from_bytes(blob[:8], "little")
    table = json.loads(blob[8 : 8 + length])
    metadata = table.pop("__metadata__")
    facts = content.facts_of(metadata)
    if metadata != content.metadata_of(facts):
        raise ValueError("its facts are not written as they were kept")
    facts["sha256"] = _NO_SUM
    text = json.dumps([table, facts], sort_keys=True, separators=(",", ":"))
    total = hashlib.sha256(text.encode("ascii"))
    total.update(memoryview(blob)[8 + length :])
    return total.hexdigest()


def write(file: str | os.PathLike[str], carried: Carried) -> int:
    """Write a new file, whole or not at all; returns its bytes. Raises `StoreError` if it exists or cannot be made."""
    path = Path(file)
    blob = pack(carried)
    if os.path.lexists(path):
        raise StoreError(f"{path} exists already; name a new file, or remove it first")
    disk.write_file(path.parent, path.name, blob)
    return len(blob)


def read(file: str | os.PathLike[str]) -> Carried:
    """The task in a file. Raises `StoreError` if it cannot be opened, `DamagedError` if it is no intact export."""
    path = Path(file)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO must not make us wait
        with contextlib.closing(os.fdopen(descriptor, "rb")) as opened:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise StoreError(f"{path} is not a regular file; give a file made by tss export")
            if found.st_size > _LARGEST:
                raise StoreError(f"{path} has {found.st_size:,} bytes, more than an exported task may have")
            blob = opened.read(found.st_size)
    except (OSError, ValueError) as error:
        raise StoreError(f"cannot read {str(path)!r}: {getattr(error, 'strerror', None) or error}") from None
    try:
        return unpack(blob)
    except ValueError as error:
        raise DamagedError(f"{path} cannot be imported: {error}; export the task again") from None
