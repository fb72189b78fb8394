"""Versions taken out of use, put back, and collected. Pure changes of the index; the store commits them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tss.errors import DamagedError, StoreError
from tss.store.layout import FORMAT, Index, TaskEntry
from tss.store.read import Reader
from tss.store.write import Before, encode_task


@dataclass(frozen=True)
class Collected:
    """What `Store.gc` did. tasks: `(name, version)` of each version dropped; files, bytes: fewer than before."""

    tasks: tuple[tuple[str, int], ...]
    files: int
    bytes: int


def rolled_back(index: Index, name: str, version: int | None) -> Index:
    """Use an earlier version again: the one before the version in use, or the one asked for.

    Versions after it are withdrawn. Raises `UnknownTaskError`, `StoreError` if there is nothing to go back to.
    """
    known = index.versions(name)
    if version is None:
        now = index.entry(name)
        before = [entry for entry in known if entry.version < now.version and not entry.withdrawn]
        if not before:
            raise StoreError(f"task {name!r} has no version before {now.version} to go back to; nothing was changed")
        target = before[-1]
    else:
        target = index.entry(name, version)
    wanted = {entry.id: entry.version > target.version for entry in known}
    return _with(index, {**{i: True for i, later in wanted.items() if later}, target.id: False})


def removed(index: Index, name: str) -> Index:
    """Every version of a task withdrawn. Raises `UnknownTaskError` if it is unknown or was removed before."""
    index.entry(name)
    return _with(index, {entry.id: True for entry in index.versions(name)})


def _with(index: Index, withdrawn: dict[int, bool]) -> Index:
    tasks = tuple(replace(entry, withdrawn=withdrawn.get(entry.id, entry.withdrawn)) for entry in index.tasks)
    return replace(index, tasks=tasks, format=FORMAT)


def collected(reader: Reader, index: Index) -> tuple[Index, dict[str, bytes]]:
    """The index without what is withdrawn, and the bytes of the files it needs anew.

    A task that is withdrawn but answers beside another one stays. One kept as the difference from one that goes is kept
    as the difference from the next one before it that stays, or in full. Raises `DamagedError` if such a task cannot be
    read: then nothing can be collected before it is removed or restored.
    """
    tasks, blobs = [], {}
    asked = {one.id for entry in index.tasks if not entry.withdrawn for one in index.company(entry)}
    # by old file: the old entry that gates can be taken from, and the new one that stands for it
    standing: dict[str, tuple[TaskEntry, TaskEntry] | None] = {}
    for entry in index.tasks:  # parents come before their children
        parent = standing[entry.parent] if entry.parent else None
        if entry.withdrawn and entry.id not in asked:
            standing[entry.file] = parent
            continue
        new = entry
        if entry.parent and (parent is None or parent[1].file != entry.parent):
            based, blob = _based_anew(reader, index, entry, parent)
            new = replace(based, withdrawn=entry.withdrawn)
            blobs[new.file] = blob
        tasks.append(new)
        standing[entry.file] = entry, new
    return replace(index, tasks=tuple(tasks)), blobs


def _based_anew(
    reader: Reader, index: Index, entry: TaskEntry, parent: tuple[TaskEntry, TaskEntry] | None
) -> tuple[TaskEntry, bytes]:
    try:
        record = reader.task(index, entry)
        gates = reader.gates(index, parent[0]) if parent else None
    except DamagedError as problem:
        raise DamagedError(f"{problem}; before that, or before they are removed, nothing can be collected") from None
    before = Before(parent[1], gates) if parent and gates is not None else None
    return encode_task(record, entry.id, entry.version, before)
