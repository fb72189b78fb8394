"""A task in a folder: `task.json` beside train, valid and test, each as JSONL or as CSV.

    task.json    {"name": "reviews", "kind": "classification"}
                 may also hold labels, lengths, family, metric, columns, repair_tags
    train.jsonl  one example a line, by kind:
                 {"text": "…", "label": "…"}, and with a second field "pair" or "aspect" where inputs have two
                 {"tokens": ["…", "…"], "tags": ["O", "B-x"]}   in CSV both are texts split at blanks
                 {"source": "…", "target": "…"}
    valid, test  the same; optional (`dev` and `validation` are read as valid)

Text is UTF-8, with or without a byte order mark, with any line ends; blank lines do not count.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tss.data.lines import read_csv, read_jsonl
from tss.errors import TaskError, nearest
from tss.tasks.example import SECOND_FIELDS, check_kind
from tss.tasks.metrics import check_metric
from tss.tasks.names import check_name
from tss.tasks.rows import FIELDS, Refused
from tss.tasks.task import SPLITS, Lengths, Task

SPLIT_FILES = {"train": ("train",), "valid": ("valid", "dev", "validation"), "test": ("test",)}
READERS = {".jsonl": read_jsonl, ".csv": read_csv}
KEYS: dict[str, type] = {
    "name": str,
    "kind": str,
    "labels": list,
    "lengths": dict,
    "family": str,
    "metric": str,
    "columns": dict,
    "repair_tags": bool,
}
SMALLEST = '{"name": "my task", "kind": "classification"}'
MAX_DESCRIPTION_BYTES = 10_000_000


def read_folder(path: str | os.PathLike[str], *, on_error: str = "stop") -> Task:
    """The task in the folder; see `Task.from_folder`. Raises TaskError with file and row."""
    folder = _folder(path)
    refused = Refused(on_error)
    described = _description(folder)
    try:
        name, kind = check_name(described.pop("name")), check_kind(described.pop("kind"))
        described["lengths"] = Lengths.of(described.get("lengths"))
        check_metric(kind, described.get("metric", ""))
        _check_columns(kind, described.get("columns", {}))
    except TaskError as error:
        raise TaskError(f"{folder / 'task.json'}: {error}") from None
    return _read_splits(folder, name, kind, refused, **described)


def read_prepared(
    path: str | os.PathLike[str],
    name: str,
    family: str,
    *,
    kind: str,
    labels: Sequence[str] | None = None,
    lengths: Lengths | Mapping[str, int] | None = None,
    metric: str = "",
) -> Task:
    """The task in a folder of the prepared benchmark data: the files without `task.json`, which the caller replaces."""
    options = {"family": family, "labels": labels, "lengths": lengths, "metric": metric}
    return _read_splits(_folder(path), name, check_kind(kind), Refused(), **options)


def write_folder(task: Task, path: str | os.PathLike[str]) -> Path:
    """Write the task as a folder that `read_folder` reads back to an equal task (same fingerprint).

    Raises TaskError if the folder exists and is not empty, or cannot be written.
    """
    folder = Path(path)
    described = {"name": task.name, "kind": task.kind, "labels": list(task.labels), "lengths": asdict(task.lengths)}
    described |= {"family": task.family, "metric": task.metric}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise TaskError(f"{folder} is not empty; give a new folder to write task {task.name!r} to")
        for split in SPLITS:
            if examples := getattr(task, split):
                with open(folder / f"{split}.jsonl", "w", encoding="utf-8", newline="\n") as file:
                    file.writelines(_json(_row(task.kind, example.input, example.target)) for example in examples)
        (folder / "task.json").write_text(_json({key: value for key, value in described.items() if value}), "utf-8")
    except OSError as error:
        raise TaskError(f"cannot write task {task.name!r} to {folder}: {error.strerror or error}") from None
    return folder


def _read_splits(folder: Path, name: str, kind: str, refused: Refused, **options: Any) -> Task:
    files = {split: _split_file(folder, split) for split in SPLITS}
    if files["train"] is None:
        there = ", ".join(sorted(entry.name for entry in folder.iterdir())[:10]) or "nothing"
        raise TaskError(f"{folder} has no train.jsonl or train.csv; there is {there}")
    rows = {split: READERS[file.suffix](file, refused) for split, file in files.items() if file is not None}
    return Task.from_rows(name, kind, rows, refused, **options)


def _split_file(folder: Path, split: str) -> Path | None:
    names = [stem + suffix for stem in SPLIT_FILES[split] for suffix in READERS]
    found = [folder / name for name in names if os.path.lexists(folder / name)]
    if len(found) > 1:
        raise TaskError(f"{folder} has both {found[0].name} and {found[1].name}; remove one")
    if found and not found[0].is_file():
        raise TaskError(f"{found[0]} is not a file")
    return found[0] if found else None


def _folder(path: str | os.PathLike[str]) -> Path:
    folder = Path(path)
    try:
        if folder.is_dir():
            next(folder.iterdir(), None)  # a folder that may not be listed is found out here
            return folder
        is_file = folder.is_file()
    except (OSError, ValueError) as error:
        raise TaskError(f"cannot read the folder {os.fspath(path)!r}: {error}") from None
    if is_file:
        raise TaskError(f"{folder} is a file; give the folder that holds task.json and train.jsonl or train.csv")
    raise TaskError(f"there is no folder {folder}")


def _description(folder: Path) -> dict[str, Any]:
    """What `task.json` says, each key known and of its type. Raises TaskError."""
    file = folder / "task.json"
    if not file.is_file():
        raise TaskError(
            f"{folder} has no task.json; write one there, the smallest is {SMALLEST} (other kinds: tagging, generation)"
        )
    try:
        if file.stat().st_size > MAX_DESCRIPTION_BYTES:
            raise TaskError(f"{file} is larger than {MAX_DESCRIPTION_BYTES:,} bytes; it should only describe the task")
        described = json.loads(file.read_text("utf-8-sig"))
    except OSError as error:
        raise TaskError(f"cannot read {file}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{file} is not JSON in UTF-8: {error}; the smallest is {SMALLEST}") from None
    if not isinstance(described, dict):
        raise TaskError(f"{file} must hold a JSON object; the smallest is {SMALLEST}")
    for key, value in described.items():
        if key not in KEYS:
            raise TaskError(f"{file}: there is no key {key!r}{nearest(key, tuple(KEYS))}")
        if not isinstance(value, KEYS[key]):
            raise TaskError(f"{file}: {key} must be a JSON {_JSON_NAMES[KEYS[key]]}, not {json.dumps(value)[:60]}")
    for key in ("name", "kind"):
        if key not in described:
            raise TaskError(f"{file} does not say the task's {key}; the smallest is {SMALLEST}")
    if not all(isinstance(label, (str, int)) and not isinstance(label, bool) for label in described.get("labels", ())):
        raise TaskError(f"{file}: labels must be texts")
    return described


_JSON_NAMES = {str: "string", list: "list", dict: "object", bool: "true or false"}


def _check_columns(kind: str, columns: Mapping[str, Any]) -> None:
    fields = (*FIELDS[kind], *(SECOND_FIELDS if kind == "classification" else ()))
    for field, column in columns.items():
        if field not in fields:
            raise TaskError(f"columns: a {kind} task has no field {field!r}{nearest(field, fields)}")
        if not isinstance(column, str):
            raise TaskError(f"columns: the column for {field} must be a name, not {json.dumps(column)[:60]}")


def _row(kind: str, value: tuple[str, ...], target: str | tuple[str, ...]) -> dict[str, Any]:
    first, last = FIELDS[kind]
    if kind == "tagging":
        return {first: value, last: target}
    return dict(zip((first, "pair"), value, strict=False)) | {last: target}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"
