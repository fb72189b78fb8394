"""The 40 tasks from the raw public files, or from the hub, to `<out>/<family>/<task>/{train,valid,test}.jsonl`."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tss.data import asc, ccd, drg, ner
from tss.data import sum as summaries
from tss.data.recipe import SPLITS, Row, Splits
from tss.errors import TaskError, nearest

FAMILIES: dict[str, ModuleType] = {"asc": asc, "ccd": ccd, "ner": ner, "sum": summaries, "drg": drg}
Progress = Callable[[str, int, int], None]  # task, how many are done, of how many


@dataclass(frozen=True)
class Prepared:
    """One task that has been written: its name, rows a split, and where it came from."""

    task: str
    rows: dict[str, int]
    source: str


def prepare(
    raw: Path | str, out: Path | str, families: Iterable[str] | None = None, progress: Progress | None = None
) -> list[Prepared]:
    """Prepare the families (all five by default) from the raw files, each task as its recipe says.

    Each file is replaced as a whole, so that a run cut short leaves no half file.
    Raises TaskError that names task and file if a raw file is missing or not of the expected form.
    """
    raw = Path(raw)
    tasks = [(family, task) for family in _chosen(families) for task in FAMILIES[family].TASKS]
    done = []
    for number, (family, task) in enumerate(tasks):
        if progress:
            progress(f"{family}/{task}", number, len(tasks))
        done.append(_write(Path(out), family, task, _from_raw(raw, family, task), str(raw / family)))
    if progress:
        progress("", len(tasks), len(tasks))
    return done


def prepare_from_hub(
    out: Path | str,
    families: Iterable[str] | None = None,
    source: Path | str | None = None,
    progress: Progress | None = None,
) -> list[Prepared]:
    """Prepare what the hub has of the families (see `on_hub`); the other tasks are left as they are in `out`.

    source: as in `from_hub`. Raises TaskError for a family asked for by name of which the hub has nothing.
    """
    chosen = [family for family in _chosen(families) if FAMILIES[family].HUB or families is not None]
    tasks = [(family, task) for family in chosen for task in _hub_tasks(family)]
    done = []
    for number, (family, task) in enumerate(tasks):
        if progress:
            progress(f"{family}/{task}", number, len(tasks))
        splits = _from_hub(family, task, source)
        done.append(_write(Path(out), family, task, splits, FAMILIES[family].HUB[task]))
    if progress:
        progress("", len(tasks), len(tasks))
    return done


def on_hub(family: str) -> tuple[dict[str, str], str]:
    """Which tasks of a family are on the Hugging Face hub (task to repository), and in words what is not."""
    (family,) = _chosen([family])
    return dict(FAMILIES[family].HUB), FAMILIES[family].HUB_MISSING


def not_on_hub() -> dict[str, str]:
    """Families of which the hub lacks tasks, and in words which ones."""
    return {family: missing for family in FAMILIES if (missing := on_hub(family)[1])}


def from_hub(family: str, source: Path | str | None = None) -> Iterator[tuple[str, Splits]]:
    """Each task of a family that the hub has, with its splits.

    source: a local folder that holds copies of the repositories as `<owner>/<name>`; None asks the hub itself.
    Raises TaskError if the family is not there at all, or the rows are not of the expected form.
    """
    for task in _hub_tasks(family):
        yield task, _from_hub(family, task, source)


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """One JSON object a line, without blanks outside strings, put in place at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(text.encode())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def _told_of(task: str, what: str) -> Iterator[None]:
    """Turns what goes wrong inside into a TaskError that names the task."""
    try:
        yield
    except TaskError as error:
        raise TaskError(f"{task}: {error}") from error
    except (LookupError, TypeError, ValueError, AttributeError, SyntaxError, csv.Error) as error:
        problem = f"{type(error).__name__}: {error}"
        raise TaskError(f"{task}: {what} are not of the expected form ({problem}); fetch them again") from error


def _chosen(families: Iterable[str] | None) -> list[str]:
    chosen = list(FAMILIES if families is None else families)
    for family in chosen:
        if family not in FAMILIES:
            raise TaskError(f"unknown family {family!r}{nearest(family, list(FAMILIES))}")
    return list(dict.fromkeys(chosen))


def _from_raw(raw: Path, family: str, task: str) -> Splits:
    if not (raw / family).is_dir():
        raise TaskError(f"no folder {raw / family} with the raw files of the family {family}; is {raw} the raw folder?")
    with _told_of(f"{family}/{task}", f"the raw files in {raw / family}"):
        splits: Splits = FAMILIES[family].prepare(raw / family, task)
    return splits


def _hub_tasks(family: str) -> list[str]:
    repositories, missing = on_hub(family)
    if not repositories:
        raise TaskError(f"{family} cannot be taken from the hub: {missing}; prepare it from the raw files")
    return list(repositories)


def _from_hub(family: str, task: str, source: Path | str | None) -> Splits:
    repository = FAMILIES[family].HUB[task]
    place = str(Path(source) / repository) if source else repository
    if source and not Path(place).is_dir():
        raise TaskError(f"{family}/{task}: no copy of {repository} in {source}; expected the folder {place}")
    with _told_of(f"{family}/{task}", f"the rows of {place}"):
        splits: Splits = FAMILIES[family].from_hub(task, lambda split: _hub_rows(place, split))
    return splits


def _write(out: Path, family: str, task: str, splits: Splits, source: str) -> Prepared:
    for split in SPLITS:
        write_rows(out / family / task / f"{split}.jsonl", splits[split])
    return Prepared(f"{family}/{task}", {split: len(splits[split]) for split in SPLITS}, source)


def _hub_rows(place: str, split: str) -> Iterator[dict[str, Any]]:
    """The rows of one split, class numbers replaced by their names."""
    try:
        import datasets
    except ImportError as error:
        raise TaskError("reading from the hub needs the package datasets: pip install 'tss[hub]'") from error
    try:
        rows = datasets.load_dataset(place, split=split)
    except Exception as error:  # the library raises many kinds: no network, no such repository, gated, no such split
        raise TaskError(f"cannot load {place}, split {split}: {type(error).__name__}: {error}") from error
    names = {}
    for column, feature in rows.features.items():
        inner = getattr(feature, "feature", feature)
        if isinstance(inner, datasets.ClassLabel):
            names[column] = inner.int2str
    for row in rows:
        for column, name in names.items():
            row[column] = name(row[column])
        yield row
