"""Crafted attacks with links and other odd files, and with an index that lies under a right checksum."""

from __future__ import annotations

import codecs
import os
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from torture.attacks import SECRET, attack, index_of, put_index

# The encodings `json.loads` guesses from the first bytes of a file: bytes of a character, lowest first, and mark.
ENCODINGS = {
    "utf-8-sig": (1, True, codecs.BOM_UTF8),
    "utf-16": (2, True, codecs.BOM_UTF16_LE),
    "utf-16-le": (2, True, b""),
    "utf-16-be": (2, False, b""),
    "utf-32": (4, True, codecs.BOM_UTF32_LE),
    "utf-32-le": (4, True, b""),
    "utf-32-be": (4, False, b""),
}


def _link(root: Path, make: Callable[[Path], None]) -> str:
    file = root / index_of(root).entry("d").file
    size = file.stat().st_size
    (root.parent / SECRET).write_bytes(file.read_bytes()[:size])
    file.unlink()
    make(file)
    return "d"


@attack
def symbolic_link_to_the_very_content(root: Path) -> str:
    return _link(root, lambda file: file.symlink_to(root.parent / SECRET))


@attack
def hard_link_to_the_very_content(root: Path) -> str:
    return _link(root, lambda file: os.link(root.parent / SECRET, file))


@attack
def fifo(root: Path) -> str:
    return _link(root, os.mkfifo)


@attack
def device(root: Path) -> str:
    return _link(root, lambda file: file.symlink_to("/dev/zero"))


@attack
def socket_file(root: Path) -> str:
    def make(file: Path) -> None:
        place = os.getcwd()
        os.chdir(file.parent)  # the name of a socket must be short
        socket.socket(socket.AF_UNIX).bind(file.name)
        os.chdir(place)

    return _link(root, make)


@attack
def folder_instead_of_a_file(root: Path) -> str:
    return _link(root, os.mkdir)


@attack
def folder_of_tasks_elsewhere(root: Path) -> str:
    (root / "tasks").rename(root.parent / "elsewhere")
    (root / "tasks").symlink_to(root.parent / "elsewhere")
    return "all"


@attack
def index_elsewhere(root: Path) -> str:
    (root / "index.json").rename(root.parent / "index.json")
    (root / "index.json").symlink_to(root.parent / "index.json")
    return "open"


@attack
def lock_elsewhere(root: Path) -> str:
    (root / "lock").unlink()
    (root / "lock").symlink_to(root.parent / SECRET)
    return "write"


@attack
def lock_as_a_fifo(root: Path) -> str:
    (root / "lock").unlink()
    os.mkfifo(root / "lock")
    return "write"


def _with_entry(root: Path, **changed: Any) -> str:
    index = index_of(root)
    tasks = [*index.tasks[:-1], replace(index.tasks[-1], **changed)]
    put_index(root, replace(index, tasks=tuple(tasks)))
    return "open"


@attack
def path_out_of_the_store(root: Path) -> str:
    return _with_entry(root, file="tasks/../../secret")


@attack
def absolute_path(root: Path) -> str:
    return _with_entry(root, file="/etc/passwd")


@attack
def shared_path_out_of_the_store(root: Path) -> str:
    index = index_of(root)
    put_index(root, replace(index, shared={**(index.shared or {}), "file": "shared/../../secret"}))
    return "open"


@attack
def own_parent(root: Path) -> str:
    index = index_of(root)
    return _with_entry(root, parent=index.tasks[-1].file, depth=1)


@attack
def chain_too_deep(root: Path) -> str:
    return _with_entry(root, depth=9, parent=index_of(root).tasks[0].file)


@attack
def number_used_twice(root: Path) -> str:
    return _with_entry(root, id=1)


@attack
def sizes_that_are_no_numbers(root: Path) -> str:
    return _with_entry(root, bytes=float("nan"))


@attack
def name_that_is_a_list(root: Path) -> str:
    return _with_entry(root, name=["a"])


@attack
def withdrawn_maybe(root: Path) -> str:
    index = index_of(root)
    tasks = (*index.tasks[:-1], replace(index.tasks[-1], withdrawn="maybe"))  # type: ignore[arg-type]
    put_index(root, replace(index, format=2, tasks=tasks))
    return "open"


@attack
def index_of_deep_json(root: Path) -> str:
    (root / "index.json").write_bytes(b'{"checksum":"' + b"0" * 64 + b'","a":' + b"[" * 1_000_000)
    return "open"


@attack
def index_of_400_megabytes(root: Path) -> str:
    with open(root / "index.json", "r+b") as file:
        file.truncate(400 << 20)
    return "open"


def _index_in(encoding: str) -> None:
    width, lowest_first, mark = ENCODINGS[encoding]

    def spoil(root: Path) -> str:
        file = root / "index.json"
        blank = bytes(width - 1)
        letters = [bytes([one]) for one in file.read_bytes()]  # by hand: the reader is the first to need the codec
        file.write_bytes(mark + b"".join(one + blank if lowest_first else blank + one for one in letters))
        return "open"

    spoil.__name__ = f"index_in_{encoding}"
    attack(spoil)


for _encoding in ENCODINGS:
    _index_in(_encoding)
