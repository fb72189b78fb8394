"""Names of tasks. A name is data and never becomes a path, so `../x`, `a/b` and `CON` are fine names."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from tss.errors import TaskError

MAX_NAME_BYTES = 200


def check_name(name: object) -> str:
    """The name in its one accepted form (Unicode NFC), so that two ways to type `é` are one name.

    Upper and lower case stay different: `Shop` and `shop` are two names (see `case_twins`).
    Raises TaskError unless the name is text of 1 to 200 bytes (UTF-8), printable throughout (no control,
    right-to-left or invisible characters), without blanks at its ends.
    """
    if not isinstance(name, str):
        raise TaskError(f"a task's name must be text, not {type(name).__name__}")
    # Composing can only shorten a name by a small factor: anything this long is refused before any work is done on it.
    normal = unicodedata.normalize("NFC", name) if len(name) <= 10 * MAX_NAME_BYTES else name
    if not normal.strip():
        raise TaskError("a task's name is empty; give it at least one visible character")
    if not normal.isprintable():
        bad = next(c for c in normal if not c.isprintable())
        raise TaskError(f"task name {show_name(normal)} holds a character that cannot be shown (U+{ord(bad):04X})")
    if normal != normal.strip():
        raise TaskError(f"task name {show_name(normal)} begins or ends with a blank; remove it")
    if len(normal.encode()) > MAX_NAME_BYTES:
        raise TaskError(
            f"task name {show_name(normal)} is {len(normal.encode())} bytes long; at most {MAX_NAME_BYTES} are allowed"
        )
    return normal


def show_name(name: str) -> str:
    """The name for a message or a terminal: quoted, escaped where it cannot be shown, at most about 60 characters."""
    shown = repr(name if len(name) <= 60 else name[:59] + "…")
    return shown.encode("utf-8", "backslashreplace").decode()


def case_twins(name: str, known: Iterable[str]) -> list[str]:
    """Known names that differ from `name` in upper and lower case alone: easily mistaken, so worth a word."""
    return [other for other in known if other != name and other.casefold() == name.casefold()]
