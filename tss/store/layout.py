"""What the index lists and how `index.json` is written: one line of JSON that begins with its own SHA-256.

    index.json                     and index.backup.json, its copy, for a user whose index.json is damaged
    tasks/<id>-<sha>.safetensors
    shared/<sha>.safetensors
    running/<id>.checkpoint        id: the number the task being learnt will get
    lock

A task exists when the index names it. Names of tasks are data and never become paths.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from tss.errors import DamagedError, StoreError, UnknownTaskError, nearest

FORMAT = 2  # the newest that is read; an index is written in the oldest that can say it: 1 without withdrawn tasks
NEEDS = "0.1.0"  # the first release that reads FORMAT; a reader that is too old shows it to the user
DEEPEST = 7  # differences between a task's gates and the full gates they rest on
COMPANY = "company"  # where a summary lists those who answer beside the task
INDEX = "index.json"
INDEX_COPY = "index.backup.json"
FOLDERS = ("tasks", "shared", "running")
SHA_IN_NAME = 32  # hex digits of the SHA-256 in a file's name

_HEAD = b'{"checksum":"'
_SHA = 64


@dataclass(frozen=True, eq=False)
class TaskRecord:
    """What one task keeps. `meta` and `summary` hold what JSON can hold; the store does not look inside.

    gates: bool [gates] over all adapter weights, or None. tensors: head and whatever a method keeps.
    probes: probe inputs and outputs. summary: small facts, readable from the index alone.
    """

    name: str
    meta: dict[str, Any] = field(default_factory=dict)
    gates: torch.Tensor | None = None
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    probes: dict[str, torch.Tensor] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskEntry:
    """One version of a task. `id` counts up and is never used again; `parent` is the file its gates differ from.

    summary: small facts; under COMPANY the ids of tasks learnt before that answer beside it.
    withdrawn: rolled back or removed; history that answers no more, kept until it is collected.
    """

    id: int
    name: str
    version: int
    file: str
    sha256: str
    bytes: int
    parent: str | None
    depth: int
    gate_bytes: int
    summary: dict[str, Any]
    withdrawn: bool = False

    @cached_property
    def text(self) -> str:
        """All fields but `withdrawn` as JSON, without the closing brace: made once, as every new task writes all."""
        return json.dumps({key: getattr(self, key) for key in _FIELDS[:-1]}, separators=(",", ":"))[:-1]


_FIELDS = [one.name for one in fields(TaskEntry)]  # `withdrawn` last: format 1 has the others


@dataclass(frozen=True)
class Index:
    """A snapshot of the store: tasks in the order they were learnt, every version of each, withdrawn ones too."""

    format: int = 1
    identity: dict[str, Any] = field(default_factory=dict)
    tasks: tuple[TaskEntry, ...] = ()
    shared: dict[str, Any] | None = None
    next_id: int = 1

    @cached_property
    def _by_name(self) -> dict[str, list[TaskEntry]]:
        found: dict[str, list[TaskEntry]] = {}
        for entry in self.tasks:
            found.setdefault(entry.name, []).append(entry)
        return found

    @cached_property
    def _in_use(self) -> dict[str, TaskEntry]:
        return {entry.name: entry for entry in self.tasks if not entry.withdrawn}  # keeps the place of the first

    @cached_property
    def _by_id(self) -> dict[int, TaskEntry]:
        return {entry.id: entry for entry in self.tasks}

    def company(self, entry: TaskEntry) -> tuple[TaskEntry, ...]:
        """The tasks that answer beside one. Raises `DamagedError` if they are not all there."""
        ids = entry.summary.get(COMPANY, [])
        known = self._by_id
        if not isinstance(ids, list) or not all(isinstance(id, int) and id in known and id < entry.id for id in ids):
            raise DamagedError(f"task {entry.name!r} lacks tasks that answer beside it; learn it again", (entry.name,))
        return tuple(known[id] for id in ids)

    def beside(self, entry: TaskEntry) -> tuple[str, ...]:
        """Their names, to be shown; none where they are not all there."""
        try:
            return tuple(one.name for one in self.company(entry))
        except DamagedError:
            return ()

    @cached_property
    def by_file(self) -> dict[str, TaskEntry]:
        """Every version by the name of its file."""
        return {entry.file: entry for entry in self.tasks}

    def names(self) -> tuple[str, ...]:
        """The names of the tasks in use, each once, in the order they were first learnt."""
        return tuple(self._in_use)

    def in_use(self, entry: TaskEntry) -> bool:
        """Whether it is the version that answers for its task."""
        return self._in_use.get(entry.name) is entry

    def versions(self, name: str) -> tuple[TaskEntry, ...]:
        """Every version of a task, oldest first, withdrawn ones too. Raises `UnknownTaskError`."""
        if name not in self._by_name:
            raise UnknownTaskError(f"there is no task {name!r}{nearest(str(name), self.names())}")
        return tuple(self._by_name[name])

    def next_version(self, name: str) -> int:
        """The number that the next version of a task gets; 1 for a new name."""
        return 1 + max((entry.version for entry in self._by_name.get(name, ())), default=0)

    def entry(self, name: str, version: int | None = None) -> TaskEntry:
        """The version of a task in use, or the one asked for. Raises `UnknownTaskError` with the nearest names."""
        if version is None and name in self._in_use:
            return self._in_use[name]
        found = self.versions(name)
        if version is None:
            raise UnknownTaskError(
                f"the task {name!r} was removed; its last version is {found[-1].version}: roll back to it, or learn "
                "the task again"
            )
        for entry in found:
            if entry.version == version:
                return entry
        versions = ", ".join(str(entry.version) for entry in found)
        raise UnknownTaskError(f"task {name!r} has no version {version}; it has {versions}")

    def dependants(self, file: str) -> tuple[TaskEntry, ...]:
        """The tasks that cannot answer without this file: those it is read for, and those that ask one of them."""
        lost = {file}
        found = []
        for entry in self.tasks:  # parents come before their children
            if entry.file in lost or entry.parent in lost:
                lost.add(entry.file)
                found.append(entry)
            elif any(one.file in lost for one in self.company(entry)):
                found.append(entry)
        return tuple(found)

    def files(self) -> set[str]:
        """Every file the index names."""
        return {entry.file for entry in self.tasks} | ({self.shared["file"]} if self.shared else set())


def task_file(id: int, sha256: str) -> str:
    """The name of a task's file, by number and content."""
    return f"tasks/{id}-{sha256[:SHA_IN_NAME]}.safetensors"


def shared_file(sha256: str) -> str:
    """The name of a shared file, by content."""
    return f"shared/{sha256[:SHA_IN_NAME]}.safetensors"


def encode_index(index: Index) -> bytes:
    """The bytes of `index.json`: checksum first, over every byte that follows it."""
    content = {
        "format": index.format,
        "needs": NEEDS,
        "identity": index.identity,
        "next_id": index.next_id,
        "shared": index.shared,
    }
    tasks = ",".join(_text(entry, index.format) for entry in index.tasks)
    text = f'{json.dumps(content, separators=(",", ":"))[1:-1]},"tasks":[{tasks}]}}\n'
    rest = b'",' + text.encode("ascii")
    return _HEAD + hashlib.sha256(rest).hexdigest().encode("ascii") + rest


def _text(entry: TaskEntry, format: int) -> str:
    return entry.text + ("}" if format == 1 else f',"withdrawn":{json.dumps(entry.withdrawn)}}}')


def check_identity(kept: dict[str, Any], wanted: dict[str, Any], where: Path) -> None:
    """Raise `StoreError` naming each key in which the two differ, with both values."""
    keys = {**kept, **wanted}
    differing = [key for key in keys if key not in kept or key not in wanted or kept[key] != wanted[key]]
    if differing:
        both = [(key, *(repr(one[key]) if key in one else "not set" for one in (kept, wanted))) for key in differing]
        lines = [f"\n  {key}: {stored} in the store, {asked} asked" for key, stored, asked in both]
        raise StoreError(f"{where} was made with other settings:" + "".join(lines))


def newer_format(raw: bytes) -> tuple[int, str] | None:
    """`(format, release needed)` if these bytes are an index of a later format, else None."""
    try:
        content = json.loads(raw)
        found = content["format"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(found, int) or found <= FORMAT:
        return None
    return found, str(content.get("needs", "a newer release"))


def decode_index(raw: bytes) -> Index:
    """The index in these bytes. Raises `ValueError` saying what is wrong; never trusts a path or a number unchecked."""
    start = len(_HEAD) + _SHA
    digest = hashlib.sha256(raw[start:]).hexdigest().encode("ascii")
    if raw[: len(_HEAD)] != _HEAD or raw[len(_HEAD) : start] != digest:
        raise ValueError("its checksum does not match its content")
    try:
        content = json.loads(raw)
        index = Index(
            format=content["format"],
            identity=content["identity"],
            tasks=tuple(TaskEntry(**entry) for entry in content["tasks"]),
            shared=content["shared"],
            next_id=content["next_id"],
        )
        _check(index)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it lacks or has a wrong field ({error})") from None
    return index


def _check(index: Index) -> None:
    """Raise `ValueError` unless files are named as the store names them and parents come before children."""
    if index.format not in range(1, FORMAT + 1):
        raise ValueError(f"its format is {index.format!r}")
    if not isinstance(index.identity, dict):
        raise ValueError("its identity is not a table")
    shared = index.shared
    if shared is not None and not (
        _is_sha(shared["sha256"]) and shared["file"] == shared_file(shared["sha256"]) and _counts(shared["bytes"])
    ):
        raise ValueError(f"it names a shared file {shared['file']!r} of another form")
    depths: dict[str | None, int] = {None: -1}
    last = 0
    for entry in index.tasks:
        counted = _counts(entry.id, entry.bytes, entry.gate_bytes, entry.version)
        if not counted or not isinstance(entry.name, str) or not isinstance(entry.summary, dict):
            raise ValueError(f"task {entry.name!r} has a field of the wrong type")
        if type(entry.withdrawn) is not bool or (entry.withdrawn and index.format == 1):
            raise ValueError(f"task {entry.name!r} is neither in use nor withdrawn")
        if not last < entry.id < index.next_id:
            raise ValueError(f"task {entry.name!r} has number {entry.id!r}, which is out of order")
        if not _is_sha(entry.sha256) or entry.file != task_file(entry.id, entry.sha256):
            raise ValueError(f"task {entry.name!r} names a file {entry.file!r} of another form")
        if entry.parent not in depths or entry.depth != depths[entry.parent] + 1 or entry.depth > DEEPEST:
            raise ValueError(f"task {entry.name!r} differs from a task that is not before it")
        depths[entry.file] = entry.depth
        last = entry.id


def _counts(*values: Any) -> bool:
    return all(type(value) is int and value >= 0 for value in values)


def _is_sha(value: Any) -> bool:
    return isinstance(value, str) and len(value) == _SHA and set(value) <= set("0123456789abcdef")
