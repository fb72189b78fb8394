"""The checkpoint of the task being learnt: one file, replaced at once, with its own checksum."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tss.store import content, disk
from tss.store.layout import Index
from tss.store.lock import Lock
from tss.store.write import checkpoint_file

_MAGIC = b"tss checkpoint 1\n"


class Running:
    """A checkpoint belongs to the number the next task will get, so it goes out of use when that task is added.

    Save and clear inside `Store.writing()`; load at any time.
    """

    def __init__(self, root: Path, index: Callable[[], Index], lock: Callable[[], Lock]):
        self._root = root
        self._index = index
        self._lock = lock
        self.problem: str | None = None  # why the last `load` found a checkpoint but could not use it

    def save(self, tensors: dict[str, torch.Tensor], meta: dict[str, Any]) -> None:
        """Replace the checkpoint. Values are kept bit by bit, NaN and infinity included. Raises `StoreError`."""
        payload = content.encode(tensors, meta, "checkpoint", finite=False)
        digest = hashlib.sha256(payload).hexdigest().encode("ascii")
        with self._lock().firmly():
            disk.write_file(self._root, checkpoint_file(self._index()), _MAGIC + digest + b"\n" + payload)

    def load(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
        """What was saved last, or None if there is nothing to go on from; then `problem` says why if a file was bad."""
        name = checkpoint_file(self._index())
        self.problem = None
        if name.rpartition("/")[2] not in self._names():
            return None
        try:
            blob = disk.read_file(self._root, name)
            head = len(_MAGIC) + 65
            digest = hashlib.sha256(memoryview(blob)[head:]).hexdigest().encode("ascii")
            if blob[:head] != _MAGIC + digest + b"\n":
                raise ValueError("its checksum does not match its content")
            return content.decode(blob[head:])
        except (disk.NotPlain, OSError, ValueError) as error:
            self.problem = f"the checkpoint {self._root / name} is damaged: {error}"
            return None

    def clear(self) -> None:
        """Remove the checkpoint, if any. Raises `StoreError`."""
        with self._lock().firmly():
            disk.remove(self._root, checkpoint_file(self._index()))

    def _names(self) -> list[str]:
        try:
            return disk.names_in(self._root, "running")
        except OSError:
            return []
