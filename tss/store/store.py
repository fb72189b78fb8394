"""`Store`: a folder that keeps what was learnt; see `layout` for what is in it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from tss.errors import DamagedError, LockedError, StoreError
from tss.store import content, disk, history, write
from tss.store.layout import (
    FOLDERS,
    FORMAT,
    INDEX,
    INDEX_COPY,
    Index,
    TaskEntry,
    TaskRecord,
    check_identity,
    decode_index,
    encode_index,
    newer_format,
)
from tss.store.lock import LOCK, Lock
from tss.store.read import Reader
from tss.store.running import Running

Found = TypeVar("Found")
_LARGEST_INDEX = 256 << 20  # bytes; 10,000 tasks need about 6 million


@dataclass(frozen=True)
class _Seen:
    """The index as it was read last: what tells a change without reading, a hash of its bytes, and what they say."""

    mark: tuple[int, ...] | None
    digest: bytes
    index: Index


class Store:
    """One store. Any number may read it while one writes; open it with `Store.open`."""

    def __init__(self, root: Path):
        self.path = root
        self.running = Running(root, self.index, self._held)
        self._reader = Reader(root)
        self._lock: Lock | None = None
        self._seen: _Seen | None = None
        self._swept = (0, 0)  # files and bytes that the present writer found left over

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
            mark = disk.mark(self.path, INDEX)
            seen = self._seen
            if seen is not None and mark is not None and seen.mark == mark:
                return seen.index
            raw = disk.read_file(self.path, INDEX, limit=_LARGEST_INDEX)
        except disk.NotPlain as error:
            raise DamagedError(self._how_to_go_back(f"cannot be used: {error}")) from None
        except OSError as error:
            raise StoreError(f"cannot read {self.path / INDEX}: {error.strerror or error}") from None
        digest = hashlib.sha256(raw).digest()
        found = seen.index if seen is not None and seen.digest == digest else self._decoded(raw)
        self._seen = _Seen(mark, digest, found)
        return found

    def _decoded(self, raw: bytes) -> Index:
        try:
            return decode_index(raw)
        except ValueError as error:
            newer = newer_format(raw)  # asked only now: it reads all of the JSON once more
            if newer is not None:
                raise StoreError(
                    f"{self.path} is a store of format {newer[0]}, and this release reads formats up to {FORMAT}; "
                    f"it needs tss {newer[1]}"
                ) from None
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
            self._swept = write.tidy(self.path, index, encode_index(index))
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
        check_identity(index.identity, wanted, self.path)

    def add(
        self,
        record: TaskRecord,
        *,
        parent: str | None = None,
        shared: dict[str, torch.Tensor] | None = None,
        new_version: bool = False,
    ) -> TaskEntry:
        """Keep one task; see `add_all`."""
        return self.add_all([record], parent=parent, shared=shared, new_version=new_version)[0]

    def add_all(
        self,
        records: Sequence[TaskRecord],
        *,
        parent: str | None = None,
        shared: dict[str, torch.Tensor] | None = None,
        new_version: bool = False,
        beside: Sequence[TaskRecord] = (),
    ) -> list[TaskEntry]:
        """Keep tasks, and the shared state that goes with them, in one step: afterwards all are there or none is.

        parent: a task whose gates are alike; the difference is kept where it is smaller. new_version: allow a name that
        exists, and keep the old version. beside: tasks that only answer beside them, out of use from the start; `gc`
        drops them with the last one that asks them. Raises `StoreError`, with the store as it was.
        """
        lock, index = self._held(), self.index()
        before = write.to_differ_from(self._reader, index, parent)
        taken = set(index.names())
        entries: list[TaskEntry] = []
        blobs: dict[str, bytes] = {}
        for record in (*beside, *records):
            asked_only = len(entries) < len(beside)
            if not isinstance(record.name, str) or not record.name:
                raise StoreError(f"a task needs a name, not {record.name!r}")
            if record.name in taken and not new_version and not asked_only:
                raise StoreError(
                    f"{self.path} has a task {record.name!r} already; choose another name or ask for a new version"
                )
            version = index.next_version(record.name) + sum(entry.name == record.name for entry in entries)
            entry, blob = write.encode_task(record, index.next_id + len(entries), version, before)
            taken |= set() if asked_only else {record.name}
            entries.append(replace(entry, withdrawn=asked_only))
            blobs[entry.file] = blob
        new = replace(index, tasks=(*index.tasks, *entries), next_id=index.next_id + len(entries))
        new = replace(new, format=FORMAT) if beside else new  # the first cannot tell what is out of use
        new = write.with_shared(new, shared, blobs)
        write.commit(self.path, lock, index, new, blobs)
        with contextlib.suppress(StoreError):  # the tasks are kept; the next writer sweeps the checkpoint
            disk.remove(self.path, write.checkpoint_file(index))
        return entries[len(beside) :]

    def rollback(self, name: str, version: int | None = None) -> TaskEntry:
        """Use the version of a task before the one in use, or the one asked for; later ones become history.

        Returns the version now in use. Raises `UnknownTaskError`, `StoreError`, with the store as it was.
        """
        self._change(history.rolled_back(self.index(), name, version))
        return self.index().entry(name)

    def remove(self, name: str) -> tuple[TaskEntry, ...]:
        """Take every version of a task out of use; `rollback` to one of them undoes it until `gc`.

        Returns the versions withdrawn. Raises `UnknownTaskError`, `StoreError`, with the store as it was.
        """
        self._change(history.removed(self.index(), name))
        return self.index().versions(name)

    def gc(self) -> history.Collected:
        """Drop what is withdrawn and every file that nobody needs. Readers go on: they look again in the new index.

        Raises `DamagedError`, `StoreError`, with the store as it was.
        """
        lock, index = self._held(), self.index()
        files, size = self._swept[0], self._swept[1]
        before = write.measure(self.path)
        new, blobs = history.collected(self._reader, index)
        stays = {entry.id for entry in new.tasks}
        dropped = tuple((entry.name, entry.version) for entry in index.tasks if entry.id not in stays)
        if dropped:
            write.commit(self.path, lock, index, new, blobs)
        after = write.measure(self.path)
        return history.Collected(dropped, files + before[0] - after[0], size + before[1] - after[1])

    def _change(self, new: Index) -> None:
        write.commit(self.path, self._held(), self.index(), new, {})

    def replace_shared(self, tensors: dict[str, torch.Tensor]) -> None:
        """Replace the shared state alone, in one step. Raises `StoreError`, with the store as it was."""
        lock, index = self._held(), self.index()
        blobs: dict[str, bytes] = {}
        write.commit(self.path, lock, index, write.with_shared(index, tensors, blobs), blobs)

    def read(self, name: str, version: int | None = None, gates: bool = True) -> TaskRecord:
        """What a task keeps, checksums verified; without `gates` those are left out, as decoding them takes longest.

        Raises `UnknownTaskError`; `DamagedError` naming all it concerns.
        """
        return self._looking_again(lambda index: self._reader.task(index, index.entry(name, version), gates))

    def read_shared(self) -> dict[str, torch.Tensor]:
        """The latest shared state, none if there is none. Raises `DamagedError`."""
        return self._looking_again(self._reader.shared)

    def _looking_again(self, read: Callable[[Index], Found]) -> Found:
        """What `read` finds by the index; by the new one where a writer replaced it, and files, meanwhile."""
        while True:
            index = self.index()
            try:
                return read(index)
            except DamagedError:
                if self.index() is index:
                    raise

    def damage(self) -> dict[str, str]:
        """Task name -> reason, for all tasks that cannot be read; the others can. Every file is read."""
        return self._reader.damage(self.index())

    def require_space(self, size: int) -> None:
        """Raise `StoreError`, naming path and bytes, unless so many bytes and a margin are free."""
        disk.require_space(self.path, size)
