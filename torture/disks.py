"""R3: full, read-only, forbidden and failing disks: an error that names the path, the old state, no success told."""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from failing_system import FailingSystem
from shared_checks import open_learner
from tiny import tiny_path
from toy_tasks import toy

from torture.form import Asked, Told, in_child
from tss.errors import StoreError
from tss.store import Store, disk

OLD, NEW = ("toy tagging",), ("toy tagging", "toy pair")


def _learn(store: Path) -> None:
    open_learner(store, tiny_path("bart"), max_steps=4).learn(toy("pair"))


def _outcome(work: Callable[[], None], path: Path) -> str:
    """One of "done", "refused" (a StoreError that names the path), or what else came out."""
    try:
        work()
        return "done"
    except StoreError as error:
        return "refused" if str(path) in str(error) else f"a message without the path: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _state(told: Told, path: Path, where: str) -> tuple[str, ...]:
    try:
        store = Store.open(path)
        told.check(store.damage() == {}, f"{where}: damaged {store.damage()}")
        return store.index().names()
    except StoreError as error:
        told.check(False, f"{where}: the store does not open: {error}")
        return ()


def _every_call(asked: Asked, told: Told, start: Path, code: int, stays: bool) -> int:
    """Fail the k-th changing call of learning a task, for k = 1, 2, ... until no call is left."""
    name = errno.errorcode[code]
    for fail_at in range(1, asked.calls + 1):
        if not asked.in_time():
            told.whole = False
            return fail_at - 1
        where = f"{name} at call {fail_at}"
        path = shutil.copytree(start, asked.folder / "store")
        system = FailingSystem(fail_at, code, stays)
        disk.os = system  # type: ignore[assignment]
        try:
            outcome = _outcome(lambda path=path: _learn(path), path)
        finally:
            disk.os = os
        names = _state(told, path, where)
        told.check(outcome in ("done", "refused"), f"{where}: {outcome}")
        told.check(names in (OLD, NEW), f"{where}: the store lists {names}")
        told.check(outcome != "done" or names == NEW, f"{where}: success was told, but the task is not there")
        shutil.rmtree(path)
        if not system.failed:
            told.check(outcome == "done", f"nothing failed, yet {outcome}")
            return fail_at - 1
    return asked.calls


def _file_size_limit(asked: Asked, told: Told, start: Path) -> int:
    """The kernel itself refuses to let files grow beyond so many bytes."""
    done = 0
    for limit in (0, 1, 100, 1_000, 2_000, 4_000, 8_000):
        path = shutil.copytree(start, asked.folder / "store")

        def child(path: Path = path, limit: int = limit) -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            outcome = _outcome(lambda: _learn(path), path)
            assert outcome == "refused", f"files of at most {limit} bytes: {outcome}"

        told.check(in_child(child) == 0, f"files of at most {limit} bytes: see above")
        told.check(_state(told, path, f"limit {limit}") == OLD, f"limit {limit}: the store changed")
        shutil.rmtree(path)
        done += 1
    return done


@contextmanager
def _small_disk(folder: Path, size: int) -> Iterator[Path | None]:
    """A file system of `size` bytes, or None where this user may not mount one."""
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True)
    try:
        yield folder if made.returncode == 0 else None
    finally:
        if made.returncode == 0:
            subprocess.run(["umount", str(folder)], check=True)


def _full_disk(asked: Asked, told: Told, start: Path) -> int:
    """A real file system, full but for some bytes; first with the space asked for before learning, then without."""
    done, margin = 0, disk.SPACE_MARGIN
    for left in (0, 4096, 3 * 4096, 6 * 4096, 10 * 4096, 16 * 4096):
        for foreseen in (True, False):
            with _small_disk(asked.folder / f"disk {left} {foreseen}", 16 << 20) as mounted:
                if mounted is None:
                    return done
                path = shutil.copytree(start, mounted / "store")
                free = os.statvfs(mounted).f_bavail * os.statvfs(mounted).f_frsize
                (mounted / "filler").write_bytes(bytes(max(0, free - left)))
                if not foreseen:
                    disk.SPACE_MARGIN = -(1 << 40)
                outcome = _outcome(lambda path=path: _learn(path), path)
                disk.SPACE_MARGIN = margin
                where = f"disk with {left} bytes left"
                told.check(outcome == "refused" or (not foreseen and outcome == "done"), f"{where}: {outcome}")
                names = _state(told, path, where)
                told.check(names == (NEW if outcome == "done" else OLD), f"{where}: {outcome}, but it lists {names}")
                done += 1
    return done


def _forbidden(asked: Asked, told: Told, start: Path) -> int:
    """As a user without the right to write: `tss learn` ends with status 2 and one line, and what is there is read."""
    path = shutil.copytree(start, asked.folder / "forbidden")
    for one in [path, *path.rglob("*")]:
        one.chmod(0o555 if one.is_dir() else 0o444)
    backbone = tiny_path("bart")
    for folder in (asked.folder, backbone.parent, backbone):
        folder.chmod(0o755)
    for file in backbone.iterdir():
        file.chmod(0o644)

    def child() -> None:
        if os.getuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        outcome = _outcome(lambda: _learn(path), path)
        assert outcome == "refused", f"without the right to write: {outcome}"
        assert open_learner(path, tiny_path("bart")).verify()[0].status == "equal"
        from typer.testing import CliRunner

        from tss.cli import app

        for arguments in (["gc", str(path)], ["remove", str(path), "toy tagging"]):
            done = CliRunner().invoke(app, arguments)
            assert done.exit_code == 2 and re.search(rf"error: .*{re.escape(str(path))}", done.output), done.output

    told.check(in_child(child) == 0, "without the right to write: see above")
    told.check(_state(told, path, "forbidden") == OLD, "forbidden: the store changed")
    for one in [path, *path.rglob("*")]:
        one.chmod(0o755)
    return 3


def run(asked: Asked) -> Told:
    told = Told("each changing system call of a learning fails in turn; file-size limits; full disks; no permission")
    start = asked.folder / "start"
    open_learner(start, tiny_path("bart"), max_steps=4).learn(toy("tagging"))
    numbers = {}
    numbers["forbidden folder"] = _forbidden(asked, told, start)
    numbers["file-size limits (kernel)"] = _file_size_limit(asked, told, start)
    numbers["full disks (mounted)"] = _full_disk(asked, told, start) or "not allowed to mount here"
    for code, stays in ((errno.ENOSPC, True), (errno.EIO, False), (errno.EROFS, True), (errno.EDQUOT, True)):
        numbers[f"{errno.errorcode[code]} at each call"] = _every_call(asked, told, start, code, stays)
    told.numbers = numbers
    return told
