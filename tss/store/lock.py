"""One writer a store: a lock file that says who writes, on which host, since when, and is touched every few seconds.

The file stays; empty means free. It is looked at and changed only under a brief kernel lock (flock), so two processes
cannot both find it free. On the same host a dead owner is known at once, elsewhere by the age of its last touch.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from tss.errors import LockedError, StoreError
from tss.store import disk

LOCK = "lock"
BEAT = 5.0  # seconds between touches
STALE = 60.0  # seconds without a touch after which an owner on another host counts as dead
_live: set[str] = set()  # tokens of the locks this process holds: one it failed to release must not stop itself
_BRIEF = 30.0  # seconds to wait for the kernel lock, which is held for one write at most


@dataclass(frozen=True)
class Owner:
    """Who writes. `space` tells the processes of containers apart, `began` a process from a later one of its number."""

    pid: int
    host: str
    space: str
    began: str
    since: str
    token: str

    @classmethod
    def this_process(cls) -> Owner:
        began = _process_state(os.getpid())
        since = datetime.now(timezone.utc).isoformat(timespec="seconds")
        return cls(os.getpid(), socket.gethostname(), _space(), began[1] if began else "", since, uuid.uuid4().hex)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"


class Lock:
    """The writer's hold on a store, from `Lock.take` to `release`."""

    def __init__(self, root: Path, owner: Owner):
        self.root = root
        self.owner = owner
        self._released = threading.Event()
        self._touching = threading.Thread(target=self._touch, daemon=True, name="tss-store-lock")
        self._touching.start()

    @classmethod
    def take(cls, root: Path, wait: float = 0.0) -> Lock:
        """Become the writer, waiting at most `wait` seconds. Raises `LockedError` naming the owner."""
        owner = Owner.this_process()
        until = time.monotonic() + wait
        while True:
            with _kernel_lock(root) as file:
                holder = _holder(file)
                if holder is None:
                    with disk.explained("write", root / LOCK):
                        disk.overwrite(file, json.dumps(asdict(owner)).encode())
                    _live.add(owner.token)
                    return cls(root, owner)
            if time.monotonic() >= until:
                raise LockedError(f"{root} is being written by {holder}; wait for it to end, or ask to wait longer")
            time.sleep(min(0.1, max(0.0, until - time.monotonic())))

    @contextlib.contextmanager
    def firmly(self) -> Iterator[None]:
        """A block in which nobody can take the lock over. Raises `LockedError` if somebody did so before."""
        with _kernel_lock(self.root) as file:
            holder = _read_owner(file)
            if holder != self.owner or self.owner.pid != os.getpid():
                now = f"{holder} writes now" if holder else "it is free now"
                raise LockedError(f"this process no longer holds the lock of {self.root} ({now}); nothing was saved")
            yield

    def release(self) -> None:
        """Give the lock up; no effect if somebody took it over, or in a forked child."""
        self._released.set()
        _live.discard(self.owner.token)
        if self.owner.pid != os.getpid():
            return
        with _kernel_lock(self.root) as file:
            if _read_owner(file) == self.owner:
                with disk.explained("release", self.root / LOCK):
                    disk.overwrite(file, b"")

    def _touch(self) -> None:
        while not self._released.wait(BEAT):
            with contextlib.suppress(OSError, StoreError, disk.NotPlain), _kernel_lock(self.root) as file:
                if _read_owner(file) != self.owner:
                    return
                os.utime(file)


@contextlib.contextmanager
def _kernel_lock(root: Path) -> Iterator[int]:
    """The open lock file, with every other process kept out of it for the moment."""
    until = time.monotonic() + _BRIEF
    while True:
        try:
            with disk.explained("write", root / LOCK):
                file = disk.open_plain(root, LOCK, os.O_RDWR | os.O_CREAT)
        except disk.NotPlain as error:
            raise StoreError(f"{root}: {error}; remove it and try again") from None
        try:
            with disk.explained("lock", root / LOCK):
                locked = _locked_and_in_place(root, file)
            if locked:
                yield file
                return
        finally:
            os.close(file)  # gives the kernel lock up too
        if time.monotonic() > until:
            raise LockedError(f"{root / LOCK} is held by another process for more than {_BRIEF:.0f} seconds")
        time.sleep(0.005)


def _locked_and_in_place(root: Path, file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file), os.lstat(root / LOCK))  # a lock file that was deleted locks nothing
    except (BlockingIOError, FileNotFoundError):
        return False


def _read_owner(file: int) -> Owner | None:
    """The owner written in the file, or None; a torn line is from a writer that died while taking the lock."""
    try:
        return Owner(**json.loads(os.pread(file, 4096, 0)))
    except (ValueError, TypeError):
        return None


def _holder(file: int) -> Owner | None:
    """The owner if it is alive as far as can be known, else None."""
    owner = _read_owner(file)
    if owner is None:
        return None
    if (owner.host, owner.space) == (socket.gethostname(), _space()):
        return owner if _alive(owner) else None
    return owner if time.time() - os.fstat(file).st_mtime < STALE else None


def _alive(owner: Owner) -> bool:
    if owner.pid == os.getpid():
        return owner.token in _live
    try:
        os.kill(int(owner.pid), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        pass  # it lives, and belongs to somebody else
    state = _process_state(owner.pid)
    return state is None or (state[0] not in "ZX" and state[1] == owner.began)


def _process_state(pid: int) -> tuple[str, str] | None:
    """(state letter, start in clock ticks since boot), or None where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[0], fields[19]
    except (OSError, IndexError):
        return None


def _space() -> str:
    """The process-number space of this process: two containers may share a host name but not their processes."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
