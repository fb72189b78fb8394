"""The 40 tasks of the benchmark and the orders in which they are learnt, as facts, and one's own lists of tasks."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tss.data.folder import read_prepared
from tss.data.recipe import SPLITS
from tss.errors import TaskError, nearest
from tss.tasks.task import Lengths, Task

FACTS = Path(__file__).with_name("facts")
FAMILIES = ("asc", "ccd", "ner", "sum", "drg")
SEQUENCES = (*FAMILIES, "heterogeneous")
ORDERS = range(5)
KIND_AND_METRIC = {
    "asc": ("classification", "macro_f1"),
    "ccd": ("classification", "macro_f1"),
    "ner": ("tagging", "entity_f1"),
    "sum": ("generation", "rouge1"),
    "drg": ("generation", "bleu"),
}
MIN_GENERATED = 30  # tokens, as in the paper


@dataclass(frozen=True)
class Settings:
    """What is fixed about a task of the benchmark before any row is read."""

    family: str
    kind: str
    metric: str
    labels: tuple[str, ...]
    lengths: Lengths


@cache
def facts(name: str) -> dict[str, Any]:
    """A file of facts: `tasks` (counts, the paper's counts, labels), `sequences`, `rows`, `deviations`."""
    return json.loads((FACTS / f"{name}.json").read_text(encoding="utf-8"))


def sequence(name: str, order: int = 0) -> list[str]:
    """The task names of a sequence (asc, ccd, ner, sum, drg, heterogeneous) in one of its orders, 0 to 4.

    Raises TaskError for another name or order.
    """
    if name not in SEQUENCES:
        raise TaskError(f"unknown sequence {name!r}{nearest(name, SEQUENCES)}")
    if order not in ORDERS:
        raise TaskError(f"sequence {name!r} has the orders 0 to {ORDERS[-1]}, not {order}")
    known = facts("sequences")
    return list((known["homogeneous"][name] if name in FAMILIES else known["heterogeneous"])[order])


def own_sequence(file: Path | str, order: int = 0) -> list[str]:
    """The lines of a text file, each the name of a task of the benchmark or a task folder (relative to the file).

    Empty lines and lines that begin with # are skipped. Order 0 is as written; order n is shuffled with seed n.
    Raises TaskError if the file is not readable, empty, or names a task twice.
    """
    file = Path(file)
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"cannot read the list of tasks {file}: {error}") from error
    entries = [line for line in lines if line and not line.startswith("#")]
    repeated = sorted({entry for entry in entries if entries.count(entry) > 1})
    if not entries or repeated:
        problem = f"names {', '.join(repeated)} more than once" if repeated else "names no task"
        raise TaskError(f"{file} {problem}; write one task or task folder a line")
    names = [entry if entry in facts("tasks") else str(file.parent / entry) for entry in entries]
    if order:
        random.Random(order).shuffle(names)
    return names


def task_settings(task: str, drg_min_length: int = MIN_GENERATED) -> Settings:
    """Kind, labels, metric and lengths of one of the 40 tasks.

    drg_min_length: the paper generates at least 30 tokens, more than most DRG replies have; never mix two in a table.
    Raises TaskError for an unknown task; the message lists the nearest names.
    """
    known = facts("tasks")
    if task not in known:
        raise TaskError(f"unknown task {task!r}{nearest(task, list(known))}")
    family = task.split("/")[0]
    kind, metric = KIND_AND_METRIC[family]
    lengths = {
        "sum": Lengths(max_input=1024, min_target=MIN_GENERATED),
        "drg": Lengths(min_target=drg_min_length),
    }.get(family, Lengths())
    return Settings(family, kind, metric, tuple(known[task].get("labels", ())), lengths)


def load_task(data: Path | str, task: str, drg_min_length: int = MIN_GENERATED) -> Task:
    """A task of the benchmark from its prepared files `<data>/<family>/<task>/{train,valid,test}.jsonl`.

    Raises TaskError that names file and row if one is missing or not of its family's form.
    """
    settings = task_settings(task, drg_min_length)
    folder = Path(data) / task
    for split in SPLITS:
        if not (folder / f"{split}.jsonl").is_file():
            raise TaskError(f"{task}: no prepared file {folder / f'{split}.jsonl'}; run tss data prepare")
    return read_prepared(
        folder,
        task,
        settings.family,
        kind=settings.kind,
        labels=settings.labels or None,
        lengths=settings.lengths,
        metric=settings.metric,
    )


def load_tasks(names: Iterable[str], data: Path | str, drg_min_length: int = MIN_GENERATED) -> list[Task]:
    """The tasks of a sequence: those of the benchmark from `data`, any other name as a task folder."""
    known = facts("tasks")
    return [load_task(data, n, drg_min_length) if n in known else Task.from_folder(n) for n in names]
