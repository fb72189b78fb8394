"""Every touch of the file system that the store makes, in one place, so that tests can make each of them fail.

Files are opened relative to an opened folder and never through a link. `root` is the store's folder (it may itself be
reached through a link: the user named it); `name` is `file` or `folder/file`, always made by the store.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from tss.errors import StoreError

TEMPORARY = ".tmp-"  # every unfinished file starts with this; the next writer sweeps them
_SETTLED = 2_000_000_000  # nanoseconds after which a file's times tell whether it changed
SPACE_MARGIN = 8 << 20  # bytes left free beyond what a save needs


class NotPlain(Exception):
    """A file is missing or not a plain file of the expected size; the message says which."""


@contextlib.contextmanager
def explained(doing: str, path: Path, size: int | None = None) -> Iterator[None]:
    """Turn an `OSError` inside the block into a `StoreError` that names the path and the bytes needed."""
    try:
        yield
    except OSError as error:
        needed = "" if size is None else f" ({size:,} bytes needed)"
        raise StoreError(
            f"cannot {doing} {path}{needed}: {error.strerror or error}; what was in the store is unharmed"
        ) from error


@contextlib.contextmanager
def opened_folder(root: Path, name: str) -> Iterator[tuple[int, str]]:
    """The descriptor of the folder that holds `name`, and the bare file name in it."""
    folder, _, bare = name.rpartition("/")
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if folder:
            outer = descriptor
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=outer)
            os.close(outer)
        yield descriptor, bare
    finally:
        os.close(descriptor)


def open_plain(root: Path, name: str, flags: int) -> int:
    """Open a regular file without following links and without waiting on a FIFO.

    Raises `NotPlain` for anything but a regular file with one name, `OSError` as the system does.
    """
    with opened_folder(root, name) as (folder, bare):
        # O_NONBLOCK: opening a FIFO that somebody planted must not hang
        descriptor = os.open(bare, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666, dir_fd=folder)
    found = os.fstat(descriptor)
    # a file replaced after it was opened has no name left, so 0 is as good as 1
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(descriptor)
        kind = "has a second name (hard link)" if stat.S_ISREG(found.st_mode) else "is not a regular file"
        raise NotPlain(f"{name} {kind}")
    return descriptor


def read_file(root: Path, name: str, size: int | None = None, limit: int | None = None) -> bytes:
    """All bytes of a plain file; at most its size is allocated.

    size: what the index says; another size is refused before reading. limit: refuse larger files.
    Raises `NotPlain`, saying what is wrong.
    """
    try:
        descriptor = open_plain(root, name, os.O_RDONLY)
    except FileNotFoundError:
        raise NotPlain(f"{name} is missing") from None
    except OSError as error:
        raise NotPlain(f"{name} cannot be opened as a plain file: {error.strerror or error}") from None
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor).st_size
        if size is not None and found != size:
            raise NotPlain(f"{name} has {found:,} bytes instead of {size:,}")
        if limit is not None and found > limit:
            raise NotPlain(f"{name} has {found:,} bytes, more than the {limit:,} it may have")
        try:
            return file.read(found)
        except OSError as error:
            raise NotPlain(f"{name} cannot be read: {error.strerror or error}") from None


def mark(root: Path, name: str) -> tuple[int, ...] | None:
    """Something that changes whenever the file does; None where it has only just changed and so might again unseen.

    A file replaced as `write_file` does it always has another mark; one overwritten in place within the clock's step
    would not, hence the wait. Raises `OSError`.
    """
    found = os.stat(root / name, follow_symlinks=False)
    if time.time_ns() - found.st_ctime_ns < _SETTLED:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def write_file(root: Path, name: str, blob: bytes) -> None:
    """Put a whole file in place at once: temporary file beside it, fsync, rename, fsync of the folder.

    Raises `StoreError` naming the path; then the old file, if any, is still there.
    """
    with explained("write", root / name, len(blob)), opened_folder(root, name) as (folder, bare):
        temporary = TEMPORARY + bare
        try:
            _write_new(folder, temporary, blob)
            os.replace(temporary, bare, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
        os.fsync(folder)


def _write_new(folder: int, name: str, blob: bytes) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)  # what a killed writer left, whatever it is
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=folder)
    try:
        left = memoryview(blob)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def overwrite(descriptor: int, blob: bytes) -> None:
    """Replace the content of a small open file in place (the lock; an empty lock means nobody holds it)."""
    os.ftruncate(descriptor, 0)
    if blob:
        os.pwrite(descriptor, blob, 0)


def make_folder(path: Path) -> None:
    """Make a folder if it is missing, durably. Raises `StoreError` naming the path."""
    with explained("make the folder", path):
        try:
            os.mkdir(path)
        except FileExistsError:
            return
        with opened_folder(path.parent, "") as (parent, _):
            os.fsync(parent)


def names_in(root: Path, folder: str) -> list[str]:
    """The names in a folder of the store (`""` for the store itself), none if the folder is missing."""
    try:
        with opened_folder(root, folder + "/") as (descriptor, _):
            return sorted(os.listdir(descriptor))
    except FileNotFoundError:
        return []


def size(root: Path, name: str) -> int:
    """The bytes of a file, links not followed; 0 if it is gone."""
    try:
        return os.lstat(root / name).st_size
    except OSError:
        return 0


def remove(root: Path, name: str) -> None:
    """Remove a file; one that is gone already is fine. Raises `StoreError` naming the path."""
    gone_is_fine = contextlib.suppress(FileNotFoundError)
    with explained("remove", root / name), gone_is_fine, opened_folder(root, name) as (folder, bare):
        os.unlink(bare, dir_fd=folder)


def require_space(root: Path, size: int) -> None:
    """Raise `StoreError` unless `size` bytes and a margin are free where the store is."""
    with explained("ask for the free space of", root):
        found = os.statvfs(root)
    free = found.f_bavail * found.f_frsize
    if free < size + SPACE_MARGIN:
        raise StoreError(
            f"not enough disk space at {root}: {size + SPACE_MARGIN:,} bytes needed, {free:,} free; "
            "make room and try again, what was in the store is unharmed"
        )
