"""Reading: every byte is compared with its SHA-256 in the index before it is used."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tss.errors import DamagedError
from tss.store import content, difference, disk
from tss.store.layout import DEEPEST, Index, TaskEntry, TaskRecord

GATES, DIFFERENCE, TENSOR, PROBE = "gates", "gates.difference", "tensor.", "probe."
_REMEMBERED = 2 * (DEEPEST + 1)  # tasks: two whole chains


class _Bad(Exception):
    """A file is not what the index says; `file` is its name, the message the reason."""

    def __init__(self, file: str, reason: str):
        super().__init__(reason)
        self.file = file


@dataclass(frozen=True)
class _Content:
    tensors: dict[str, torch.Tensor]
    facts: dict[str, Any]


class Reader:
    """Reads the files of one store; keeps the gates it decoded last, as a chain of differences asks for them again.

    Every file a task rests on is read and compared with its checksum each time, remembered gates or not.
    """

    def __init__(self, root: Path):
        self.root = root
        self._decoded: dict[str, np.ndarray] = {}  # sha256 of the file -> packed gates, oldest first
        self._remembering = threading.Lock()

    def task(self, index: Index, entry: TaskEntry, with_gates: bool = True) -> TaskRecord:
        """The record of one task. Raises `DamagedError` naming every task that needs the bad file."""
        try:
            found = _task_content(self.root, entry)
            gates = self._gates(index, entry, found) if with_gates else None
        except _Bad as bad:
            raise _damaged(self.root, index, bad) from None
        return TaskRecord(
            name=entry.name,
            meta=found.facts["meta"],
            gates=None if gates is None else torch.from_numpy(gates),
            tensors=named(found.tensors, TENSOR),
            probes=named(found.tensors, PROBE),
            summary=entry.summary,
        )

    def gates(self, index: Index, entry: TaskEntry) -> np.ndarray | None:
        """The gates of one task alone, bool [gates]. Raises `DamagedError`."""
        try:
            return self._gates(index, entry, _task_content(self.root, entry))
        except _Bad as bad:
            raise _damaged(self.root, index, bad) from None

    def shared(self, index: Index) -> dict[str, torch.Tensor]:
        """The shared tensors, none if nothing was shared yet. Raises `DamagedError`."""
        if index.shared is None:
            return {}
        try:
            return _content(self.root, **index.shared).tensors
        except _Bad as bad:
            raise DamagedError(f"the shared state of {self.root} cannot be used: {bad}") from None

    def damage(self, index: Index) -> dict[str, str]:
        """Task name -> reason, for every task whose file, or a file it differs from, is damaged.

        An older version goes by `name (version n)`. Each file is read once.
        """
        reasons: dict[str, str] = {}  # by file
        found = {}
        for entry in index.tasks:  # parents come before their children
            if entry.parent in reasons:
                reasons[entry.file] = reasons[entry.parent]
            else:
                try:
                    _task_content(self.root, entry)
                except _Bad as bad:
                    reasons[entry.file] = str(bad)
            reason = reasons.get(entry.file) or _missed(index, entry, reasons)
            if reason:
                newest = index.in_use(entry)
                found[entry.name if newest else f"{entry.name} (version {entry.version})"] = reason
        return found

    def _gates(self, index: Index, entry: TaskEntry, found: _Content) -> np.ndarray | None:
        """Full gates with every difference applied; at most `DEEPEST` of them, which the index guarantees."""
        if found.facts.get("gates") is None:
            return None
        chain = [(entry, found)]
        while chain[-1][0].parent is not None:
            parent = index.by_file[chain[-1][0].parent]
            chain.append((parent, _task_content(self.root, parent)))
        gates = None
        for one, inside in reversed(chain):
            remembered = self._decoded.get(one.sha256)
            if remembered is None:
                gates = _apply(one, inside, gates)
                self._remember(one, gates)
            else:
                gates = difference.unpack(remembered, inside.facts["gates"])
        return gates

    def _remember(self, entry: TaskEntry, gates: np.ndarray) -> None:
        with self._remembering:
            self._decoded[entry.sha256] = difference.pack(gates)
            while len(self._decoded) > _REMEMBERED:
                self._decoded.pop(next(iter(self._decoded)))


def _missed(index: Index, entry: TaskEntry, reasons: dict[str, str]) -> str:
    """Why a task cannot answer though its own file is whole: one that answers beside it is damaged."""
    try:
        lost = [one for one in index.company(entry) if one.file in reasons]
    except DamagedError as problem:
        return str(problem)
    return f"{lost[0].name!r}, which answers beside it, is damaged: {reasons[lost[0].file]}" if lost else ""


def _apply(entry: TaskEntry, found: _Content, before: np.ndarray | None) -> np.ndarray:
    """The gates in one file, given those of its parent, if it has one. Raises `_Bad`."""
    try:
        count = found.facts["gates"]
        if before is None:
            return difference.unpack(found.tensors[GATES].numpy(), count)
        if before.size != count:
            raise ValueError(f"it has {count} gates, the task it differs from {before.size}")
        return before ^ difference.decode(found.tensors[DIFFERENCE].numpy().tobytes(), count)
    except (KeyError, ValueError, TypeError) as error:
        raise _Bad(entry.file, f"the gates in {entry.file} cannot be read: {error}") from None


def _damaged(root: Path, index: Index, bad: _Bad) -> DamagedError:
    names = tuple(dict.fromkeys(entry.name for entry in index.dependants(bad.file)))
    listed = ", ".join(repr(name) for name in names)
    return DamagedError(
        f"a file of {root} is damaged: {bad}; it is needed by {listed}; "
        "restore the file from a copy of the store, or learn these again; all other tasks can be used",
        names,
    )


def _content(root: Path, file: str, sha256: str, bytes: int) -> _Content:
    try:
        blob = disk.read_file(root, file, size=bytes)
        if hashlib.sha256(blob).hexdigest() != sha256:
            raise ValueError(f"{file} has another checksum than the index")
        tensors, facts = content.decode(blob)
    except OSError as error:
        raise _Bad(file, f"{file} cannot be read: {error.strerror or error}") from None
    except disk.NotPlain as error:
        raise _Bad(file, str(error)) from None
    except ValueError as error:
        raise _Bad(file, f"{file}: {error}") from None
    bad = content.first_not_finite(tensors)
    if bad is not None:
        raise _Bad(file, f"{file}: tensor {bad!r} holds NaN or infinity")
    return _Content(tensors, facts)


def _task_content(root: Path, entry: TaskEntry) -> _Content:
    found = _content(root, entry.file, entry.sha256, entry.bytes)
    facts = found.facts
    if (facts.get("name"), facts.get("version")) != (entry.name, entry.version):
        raise _Bad(entry.file, f"{entry.file} holds another task than the index says")
    same = facts.get("parent") == entry.parent and facts.get("summary") == entry.summary
    if not isinstance(facts.get("meta"), dict) or not same:
        raise _Bad(entry.file, f"{entry.file} lacks or has a wrong field")
    return found


def named(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """The tensors whose names begin with the prefix, without it."""
    return {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}
