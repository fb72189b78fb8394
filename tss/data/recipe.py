"""The words that the recipes of all five families share: squeeze, key, clean, draws, and reading of raw files."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tss.errors import TaskError

Row = dict[str, Any]
Splits = dict[str, list[Row]]
SPLITS = ("train", "valid", "test")
T = TypeVar("T")


def squeeze(text: str) -> str:
    """Every run of white space becomes one blank; ends stripped."""
    return " ".join(text.split())


def key(text: str) -> str:
    """Lower-cased letters and digits of the text, only to find equal texts."""
    return "".join(filter(str.isalnum, text.lower()))


def clean(text: str) -> str:
    """The two characters `\\n` and every other backslash become a blank, then squeeze."""
    return squeeze(text.replace("\\n", " ").replace("\\", " "))


def draws(family: str, task: str) -> random.Random:
    """The one generator that serves all shuffles of a task, in the order in which its recipe names them."""
    return random.Random(f"2021/{family}/{task}")


def first_of_each(items: Iterable[T], same: Callable[[T], Hashable]) -> list[T]:
    """The items without repeats; of equal ones the first stays."""
    kept: dict[Hashable, T] = {}
    for item in items:
        kept.setdefault(same(item), item)
    return list(kept.values())


def read_bytes(path: Path) -> bytes:
    """The bytes of a raw file. Raises TaskError that names file, family and task if it is not there."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise TaskError(
            f"raw file not readable: {path} ({error.strerror}); put the public file there under its own name, "
            "or prepare only the families you have"
        ) from error


def read_text(path: Path, errors: str = "strict") -> str:
    try:
        return read_bytes(path).decode("utf-8", errors)
    except UnicodeDecodeError as error:
        raise TaskError(f"raw file is not UTF-8: {path}, byte {error.start}; fetch it again") from error


def read_lines(path: Path, errors: str = "strict") -> list[str]:
    """Lines cut at line feed only (texts hold other line breaks); an empty piece after the last one is no line."""
    lines = read_text(path, errors).split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def read_pairs(source: Path, target: Path) -> list[tuple[str, str]]:
    """Line i of one file with line i of the other. Raises TaskError if one is longer."""
    sources, targets = read_lines(source), read_lines(target)
    if len(sources) != len(targets):
        raise TaskError(f"{source} has {len(sources)} lines but {target} has {len(targets)}; they belong side by side")
    return list(zip(sources, targets, strict=True))


def read_json(path: Path, text: str | None = None, where: str = "") -> Any:
    """The JSON value of a raw file, or of `text` taken from it. Raises TaskError that names file and place."""
    try:
        return json.loads(read_text(path) if text is None else text)
    except json.JSONDecodeError as error:
        place = where or f"line {error.lineno}"
        raise TaskError(f"raw file is not JSON: {path}, {place}: {error.msg}; fetch it again") from error


def renamed(names: Mapping[str, str], label: str, path: Path | str) -> str:
    """`names[label]`. Raises TaskError that names file and label if the label is not known."""
    try:
        return names[label]
    except KeyError:
        raise TaskError(f"{path}: unknown label {label!r}; known: {', '.join(map(repr, sorted(names)))}") from None
