"""What a grid consists of: cells, each one training from an empty store, and which sequences they serve.

A method whose tasks do not influence each other has one cell a task, shared by every order and sequence; a joint
method has one cell a family; any other method one cell a sequence and order. Tasks of kinds that a method does not
learn are left out of its cells (LAMOL learns no tagging), and a cell of no other task is not run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tss.data.sequences import FAMILIES, KIND_AND_METRIC, ORDERS, SEQUENCES, facts, own_sequence, sequence
from tss.errors import ConfigError
from tss.methods import METHODS, method_class
from tss.tasks.example import KINDS

if TYPE_CHECKING:
    from tss.methods.method import Method


@dataclass(frozen=True)
class Asked:
    """One order of one sequence. tasks: in the order learnt, names of the benchmark's tasks or task folders."""

    sequence: str
    order: int
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """One training. key: its name among files. triangle: all earlier tasks are tested after each task."""

    key: str
    method: str
    seed: int
    tasks: tuple[str, ...]
    sequence: str = ""  # empty: shared by all orders
    order: int = 0
    triangle: bool = False

    @classmethod
    def read(cls, fields: dict[str, Any]) -> Cell:
        return cls(**{**fields, "tasks": tuple(fields["tasks"])})


@dataclass(frozen=True)
class Plan:
    asked: tuple[Asked, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    cells: tuple[Cell, ...]


def make_plan(
    sequences: Sequence[str],
    orders: Sequence[int],
    methods: Sequence[str],
    seeds: Sequence[int],
    first: int = 0,
    triangle: bool = True,
) -> Plan:
    """All cells of methods x sequences x orders x seeds, each once.

    sequences: names (asc, ..., heterogeneous) or text files that list tasks. methods: names, or "all".
    first: only so many tasks of each sequence (0: all). triangle: the first order of a method that forgets has all its
    earlier tasks tested after each task. Raises ConfigError, TaskError for names that do not exist.
    """
    for what, given in (("sequence", sequences), ("order", orders), ("method", methods), ("seed", seeds)):
        if not given:
            raise ConfigError(f"the grid has no {what}; give at least one")
    chosen = tuple(dict.fromkeys(METHODS if "all" in methods else methods))
    asked = tuple(_asked(name, order, first) for name in dict.fromkeys(sequences) for order in dict.fromkeys(orders))
    names = {one.sequence for one in asked}
    if len(names) < len(dict.fromkeys(sequences)):
        raise ConfigError("two lists of tasks have the same file name; rename one")
    return plan_of(asked, chosen, seeds, triangle)


def plan_of(asked: Sequence[Asked], methods: Sequence[str], seeds: Sequence[int], triangle: bool = True) -> Plan:
    """All cells of methods on what is asked for, each once."""
    cells: dict[str, Cell] = {}
    for seed in dict.fromkeys(seeds):
        for method in dict.fromkeys(runs_as(name) for name in methods):
            cells.update((cell.key, cell) for cell in _cells(method, asked, seed, triangle))
    return Plan(tuple(asked), tuple(methods), tuple(dict.fromkeys(seeds)), tuple(cells.values()))


def runs_as(method: str) -> str:
    """One name for all names of the same method ("w/o SM" is SupSup), so that it is run once. Raises ConfigError."""
    method_class(method)
    return min(name for name, place in METHODS.items() if place == METHODS[method])


def _asked(name: str, order: int, first: int) -> Asked:
    if name in SEQUENCES or not Path(name).is_file():
        tasks = sequence(name, order)
    else:
        tasks, name = own_sequence(name, order), _plain(Path(name).stem)
    return Asked(name, order, tuple(tasks[:first] if first else tasks))


def _cells(method: str, asked: Sequence[Asked], seed: int, triangle: bool) -> Iterator[Cell]:
    kind = method_class(method)
    asked = [one for one in (replace(one, tasks=_learnable(kind, one.tasks)) for one in asked) if one.tasks]
    every = tuple(dict.fromkeys(task for one in asked for task in one.tasks))
    if kind.joint:
        for family in dict.fromkeys(map(_family, every)):
            tasks = tuple(sorted(task for task in every if _family(task) == family))
            whole = family in FAMILIES and set(tasks) == set(sequence(family))
            part = "" if whole else "-" + sha256("\n".join(tasks).encode()).hexdigest()[:8]
            yield Cell(f"{method}.{_plain(family)}-together{part}.s{seed}", method, seed, tasks)
    elif kind.order_free:
        for task in every:
            yield Cell(f"{method}.{_plain(task)}.s{seed}", method, seed, (task,))
    else:
        for one in asked:
            key = f"{method}.{one.sequence}.o{one.order}.s{seed}"
            full = triangle and kind.forgets and one.order == ORDERS[0]
            yield Cell(key, method, seed, one.tasks, one.sequence, one.order, full)


def _learnable(method: type[Method], tasks: tuple[str, ...]) -> tuple[str, ...]:
    """The tasks of kinds that the method learns, and those whose kind only reading them will tell."""
    missing = set(KINDS) - set(method.kinds)
    return tuple(task for task in tasks if _kind(task) not in missing) if missing else tasks


def _kind(task: str) -> str:
    return KIND_AND_METRIC[_family(task)][0] if task in facts("tasks") else _told(task, "kind")


def _family(task: str) -> str:
    """What a task of the benchmark or a folder belongs to; folders that do not say form one group."""
    return task.split("/")[0] if task in facts("tasks") else _told(task, "family") or "own"


def _told(task: str, key: str) -> str:
    """What a task folder says of itself; empty if nothing."""
    try:
        return str(json.loads(Path(task, "task.json").read_text(encoding="utf-8"))[key])
    except (OSError, ValueError, KeyError, TypeError):
        return ""  # reading the task will say what is wrong with it


def _plain(text: str) -> str:
    """The text as part of a file name; what had to be changed is told apart by a hash."""
    plain = re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[-60:]
    if text == plain or text in facts("tasks"):
        return plain
    return f"{plain}-{sha256(text.encode()).hexdigest()[:6]}"
