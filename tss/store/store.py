"""`Store`: a folder that keeps what was learnt; see `layout` for what is in it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tss.errors import DamagedError, LockedError, StoreError
from tss.store import content, disk, write
from tss.store.layout import (
    FOLDERS,
    FORMAT,
    INDEX,
    INDEX_COPY,
    Index,
    TaskEntry,
    TaskRecord,
    decode_index,
    encode_index,
    newer_format,
)
from tss.store.lock import LOCK, Lock
from tss.store.read import Reader
from tss.store.running import Running

_LARGEST_INDEX = 256 << 20  # bytes; 10,000 tasks need about 6 million


class Store:
    """One store. Any number may read it while one writes; open it with `Store.open`."""

    def __init__(self, root: Path):
        self.path = root
        self.running = Running(root, self.index, self._held)
        self._reader = Reader(root)
        self._lock: Lock | None = None
        self._seen: tuple[bytes, Index] | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str], create: bool = False) -> Store:
        """The store in folder `path`; `create` makes one in a new or empty folder.

        Raises `StoreError` if it is not a store, is damaged, or is of a newer format (naming the release needed).
        """
        root = Path(path)
        if "\0" in str(root):
            raise StoreError(f"{str(root)!r} cannot be the name of a folder")
        with disk.explained("open", root):
            is_folder = root.is_dir()
            if not is_folder and os.path.lexists(root):
                raise StoreError(f"{root} is not a folder, so it cannot be a store")
            found = os.listdir(root) if is_folder else []
        store = cls(root)
        if INDEX not in found:
            if INDEX_COPY in found:
                raise DamagedError(store._how_to_go_back("is missing"))
            if not create:
                what = "is not a store: it has no index.json" if is_folder else "does not exist"
                raise StoreError(f"{root} {what}; give the folder of a store, or learn a task to make one")
            store._create()
        store.index()
        return store

    def _create(self) -> None:
        """A store comes into being when its index does; before that the folder is nobody's."""
        with disk.explained("make the folder", self.path.parent):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        disk.make_folder(self.path)
        with disk.explained("list", self.path):
            found = disk.names_in(self.path, "")
        ours = {*FOLDERS, INDEX, LOCK}
        foreign = [name for name in found if name not in ours and not name.startswith(disk.TEMPORARY)]
        if foreign:
            raise StoreError(f"{self.path} is not a store and not empty (it has {foreign[0]!r}); name a new folder")
        lock = Lock.take(self.path, wait=10.0)
        try:
            if not os.path.lexists(self.path / INDEX):  # another process may have made it meanwhile
                for folder in FOLDERS:
                    disk.make_folder(self.path / folder)
                disk.write_file(self.path, INDEX, encode_index(Index()))
        finally:
            lock.release()

    def index(self) -> Index:
        """A snapshot of what the store holds now. Raises `StoreError` if the index is damaged or too new."""
        try:
            raw = disk.read_file(self.path, INDEX, limit=_LARGEST_INDEX)
        except disk.NotPlain as error:
            raise DamagedError(self._how_to_go_back(f"cannot be used: {error}")) from None
        except OSError as error:
            raise StoreError(f"cannot read {self.path / INDEX}: {error.strerror or error}") from None
        if self._seen is None or self._seen[0] != raw:
            self._seen = raw, self._decoded(raw)
        return self._seen[1]

    def _decoded(self, raw: bytes) -> Index:
        newer = newer_format(raw)
        if newer is not None:
            raise StoreError(
                f"{self.path} is a store of format {newer[0]}, and this release reads format {FORMAT}; "
                f"it needs tss {newer[1]}"
            )
        try:
            return decode_index(raw)
        except ValueError as error:
            raise DamagedError(self._how_to_go_back(f"is damaged: {error}")) from None

    def _how_to_go_back(self, problem: str) -> str:
        """The message for a bad index: what the copy of it holds and how to use that."""
        start = f"{self.path / INDEX} {problem}; the task files are untouched"
        try:
            copy = decode_index(disk.read_file(self.path, INDEX_COPY, limit=_LARGEST_INDEX))
        except (disk.NotPlain, OSError, ValueError):
            return f"{start}; restore {INDEX} from a copy of the store"
        return f"{start}; {INDEX_COPY} is intact and lists {len(copy.names())} tasks: copy it over {INDEX} to go on"

    @contextlib.contextmanager
    def writing(self, wait: float = 0.0) -> Iterator[Store]:
        """Be the one writer inside the block, waiting at most `wait` seconds to become it; sweeps leftovers first.

        Raises `LockedError` naming the process that writes, `StoreError` if the folder cannot be written.
        """
        lock = Lock.take(self.path, wait)
        try:
            index = self.index()
            write.tidy(self.path, index, encode_index(index))
            self._lock = lock
            yield self
        finally:
            if self._lock is lock:
                self._lock = None
            lock.release()

    def _held(self) -> Lock:
        if self._lock is None:
            raise LockedError(f"changing {self.path} is possible only inside `with store.writing():`")
        return self._lock

    def identify(self, identity: dict[str, Any]) -> None:
        """Say what the tasks of this store rest on: kept the first time, compared ever after.

        Raises `StoreError` naming each key that differs, with both values.
        """
        wanted = json.loads(content.json_text(identity, "identity"))
        index = self.index()
        if not index.identity:
            with contextlib.nullcontext() if self._lock else self.writing(wait=10.0):
                index = self.index()
                if not index.identity:
                    write.commit(self.path, self._held(), index, replace(index, identity=wanted), {})
                    return
        differing = [key for key in {**index.identity, **wanted} if not _same(key, index.identity, wanted)]
        if differing:
            both = [(key, _shown(key, index.identity), _shown(key, wanted)) for key in differing]
            lines = [f"\n  {key}: {stored} in the store, {asked} asked" for key, stored, asked in both]
            raise StoreError(f"{self.path} was made with other settings:" + "".join(lines))

    def add(
        self,
        record: TaskRecord,
        *,
        parent: str | None = None,
        shared: dict[str, torch.Tensor] | None = None,
        new_version: bool = False,
    ) -> TaskEntry:
        """Keep a task, and the shared state that goes with it, in one step: afterwards both are there or neither.

        parent: a task whose gates are alike; the difference is kept where it is smaller. new_version: allow a name that
        exists, and keep the old version. Raises `StoreError`, with the store as it was.
        """
        lock, index = self._held(), self.index()
        if not isinstance(record.name, str) or not record.name:
            raise StoreError(f"a task needs a name, not {record.name!r}")
        versions = [entry.version for entry in index.tasks if entry.name == record.name]
        if versions and not new_version:
            raise StoreError(
                f"{self.path} has a task {record.name!r} already; choose another name or ask for a new version"
            )
        before = index.entry(parent) if parent is not None else None
        entry, blob = write.encode_task(self._reader, index, record, max(versions, default=0) + 1, before)
        blobs = {entry.file: blob}
        new = write.with_shared(index, shared, blobs)
        new = replace(new, tasks=(*index.tasks, entry), next_id=index.next_id + 1)
        write.commit(self.path, lock, index, new, blobs)
        with contextlib.suppress(StoreError):  # the task is kept; the next writer sweeps its checkpoint
            disk.remove(self.path, write.checkpoint_file(index))
        return entry

    def replace_shared(self, tensors: dict[str, torch.Tensor]) -> None:
        """Replace the shared state alone, in one step. Raises `StoreError`, with the store as it was."""
        lock, index = self._held(), self.index()
        blobs: dict[str, bytes] = {}
        write.commit(self.path, lock, index, write.with_shared(index, tensors, blobs), blobs)

    def read(self, name: str, version: int | None = None) -> TaskRecord:
        """What a task keeps, checksums verified. Raises `UnknownTaskError`; `DamagedError` naming all it concerns."""
        index = self.index()
        return self._reader.task(index, index.entry(name, version))

    def read_shared(self) -> dict[str, torch.Tensor]:
        """The latest shared state, none if there is none. Raises `DamagedError`."""
        while True:
            index = self.index()
            try:
                return self._reader.shared(index)
            except DamagedError:
                if self.index() is index:  # else a writer replaced the file between our two looks
                    raise

    def damage(self) -> dict[str, str]:
        """Task name -> reason, for all tasks that cannot be read; the others can. Every file is read."""
        return self._reader.damage(self.index())

    def require_space(self, size: int) -> None:
        """Raise `StoreError`, naming path and bytes, unless so many bytes and a margin are free."""
        disk.require_space(self.path, size)


def _same(key: str, one: dict[str, Any], other: dict[str, Any]) -> bool:
    return key in one and key in other and one[key] == other[key]


def _shown(key: str, values: dict[str, Any]) -> str:
    return repr(values[key]) if key in values else "not set"
