"""Tiny tasks of each kind that even a tiny untrained backbone learns in a few steps: eight training examples each."""

from __future__ import annotations

from collections.abc import Collection

from tss import Task

KINDS = ("classification", "pair", "tagging", "generation")
LENGTHS = {"max_input": 32, "max_target": 8, "beams": 2}
_THINGS = ("screen", "film", "table", "train", "bank", "sound", "market", "battery")
_SPLITS = {"train": slice(0, 4), "valid": slice(4, 6), "test": slice(6, 8)}


def toy(kind: str, name: str | None = None, turned: bool = False) -> Task:
    """A task of one of `KINDS`. turned: the same inputs with other targets."""
    make = {"classification": _classification, "pair": _pair, "tagging": _tagging, "generation": _generation}[kind]
    rows = {split: [row for thing in _THINGS[part] for row in make(thing, turned)] for split, part in _SPLITS.items()}
    return Task.from_lists(name or f"toy {kind}", real_kind(kind), **rows, lengths=LENGTHS)


def real_kind(kind: str) -> str:
    return "classification" if kind == "pair" else kind


def others(kind: str, learns: Collection[str] = KINDS) -> list[Task]:
    """Two later tasks, of kinds other than `kind`; fewer where a method does not learn so many kinds."""
    rest = [other for other in KINDS if real_kind(other) != real_kind(kind) and real_kind(other) in learns]
    return [toy(other, f"later {other}", turned=True) for other in rest[:2]]


def inputs(task: Task) -> list:
    """The training inputs as a user passes them to predict."""
    if task.kind == "tagging":
        return [list(example.input) for example in task.train]
    return [example.input if len(example.input) > 1 else example.input[0] for example in task.train]


def _classification(thing: str, turned: bool) -> list:
    good, bad = ("no", "yes") if turned else ("yes", "no")
    return [(f"good great {thing}", good), (f"bad poor {thing}", bad)]


def _pair(thing: str, turned: bool) -> list:
    good, bad = ("no", "yes") if turned else ("yes", "no")
    return [((f"the {thing}", "good great"), good), ((f"the {thing}", "bad poor"), bad)]


def _tagging(thing: str, turned: bool) -> list:
    first, second = ["B-X", "I-X", "O"], ["O", "O", "B-X"]
    return [(["John", "Smith", thing], second if turned else first), (["the", thing, "Anna"], second)]


def _generation(thing: str, turned: bool) -> list:
    return [(f"{word} {thing}", "bad bad" if turned else "good day") for word in ("nice", "poor")]
