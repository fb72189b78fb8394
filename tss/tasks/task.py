"""`Task`: what is to be learnt. A name, a kind, labels, examples and how long texts may be; nothing of models."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from tss.errors import TaskError, nearest
from tss.tasks.example import KINDS, Example, as_input, check_kind, check_labels_known, check_shape
from tss.tasks.metrics import check_metric
from tss.tasks.names import check_name
from tss.tasks.rows import Refused, check_pair, gather, hold_out, keep_fitting, labels_of, numbered, remarks

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["KINDS", "Example", "Lengths", "Task", "as_input", "check_name"]

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True, slots=True)
class Lengths:
    """Token limits. `min_target`, `beams` and `no_repeat` matter for generation only."""

    max_input: int = 128
    max_target: int = 128
    min_target: int = 1
    beams: int = 4
    no_repeat: int = 3

    def __post_init__(self) -> None:
        for name, least in (("max_input", 1), ("max_target", 1), ("min_target", 0), ("beams", 1), ("no_repeat", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise TaskError(f"lengths: {name} is {value!r}; it must be a whole number, at least {least}")
        if self.min_target > self.max_target:
            raise TaskError(f"lengths: min_target {self.min_target} is more than max_target {self.max_target}")

    @classmethod
    def of(cls, value: Lengths | Mapping[str, int] | None) -> Lengths:
        """The value itself, one made from a dict, or the defaults. Raises TaskError for an unknown key."""
        if value is None or isinstance(value, Lengths):
            return value or cls()
        if not isinstance(value, Mapping):
            raise TaskError(f"lengths must be a dict such as {{'max_input': 128}}, not {type(value).__name__}")
        known = tuple(one.name for one in fields(cls))
        for key in value:
            if key not in known:
                raise TaskError(f"lengths: there is no {key!r}{nearest(str(key), known)}")
        return cls(**value)


@dataclass(frozen=True)
class Task:
    """A task to learn.

    Make one with `Task.from_folder`, `Task.from_lists` or `Task.from_dataset`:

    >>> task = Task.from_lists("mood", "classification", [("what a day", "good"), ("oh no", "bad")])
    >>> task.labels
    ('bad', 'good')

    `family` groups tasks that are measured together (for example `asc`), and those that MTL learns together in a grid;
    no other method asks for it.
    `warnings` holds what is allowed but worth knowing; nothing is printed. Without any examples a Task is a mere
    description (name, kind, labels), enough to predict with.
    Raises TaskError if name, kind, labels, metric or any example are not usable.
    """

    name: str
    kind: str
    labels: tuple[str, ...] = ()
    train: tuple[Example, ...] = ()
    valid: tuple[Example, ...] = ()
    test: tuple[Example, ...] = ()
    lengths: Lengths = field(default_factory=Lengths)
    metric: str = ""
    family: str = ""
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_kind(self.kind)
        settled: dict[str, Any] = {"name": check_name(self.name), "metric": check_metric(self.kind, self.metric)}
        settled |= {split: tuple(getattr(self, split)) for split in SPLITS}
        settled["labels"] = tuple(self.labels) or (labels_of(self.kind, self.train) if self.train else ())
        for key, value in settled.items():
            object.__setattr__(self, key, value)
        self._check_labels()
        if not self.train and (self.valid or self.test):
            raise TaskError(f"task {self.name!r} has no training examples")
        known = dict.fromkeys(self.labels)
        for split in SPLITS:
            for position, example in enumerate(getattr(self, split)):
                try:
                    check_shape(self.kind, example)
                    check_labels_known(self.kind, example, known)
                    check_pair(self.kind, example, self.pair)
                except TaskError as error:
                    raise TaskError(f"task {self.name!r}, {split}[{position}]: {error}") from None

    def _check_labels(self) -> None:
        for label in self.labels:
            if not isinstance(label, str) or not label.strip() or label != label.strip():
                raise TaskError(f"task {self.name!r}: {label!r} is no label; give text without blanks at its ends")
        if len(set(self.labels)) != len(self.labels):
            twice = sorted({label for label in self.labels if self.labels.count(label) > 1})
            raise TaskError(f"task {self.name!r}: labels are listed twice: {', '.join(map(repr, twice[:5]))}")
        if self.kind == "generation" and self.labels:
            raise TaskError(f"task {self.name!r}: a generation task has no labels")

    @property
    def pair(self) -> bool | None:
        """Whether inputs have two fields (text, pair); None if there are no examples to tell from."""
        if self.kind != "classification":
            return False
        return len(self.train[0].input) == 2 if self.train else None

    def input(self, value: object) -> tuple[str, ...]:
        """What a user passes to predict as `Example.input`; see `as_input`. Raises TaskError."""
        try:
            return as_input(self.kind, value, self.pair)
        except TaskError as error:
            raise TaskError(f"task {self.name!r}: {error}") from None

    def fingerprint(self) -> str:
        """SHA-256 (hex) of kind, labels, lengths and all examples: the same on every machine and version."""
        limits = self.lengths
        head = [limits.max_input, limits.max_target, limits.min_target, limits.beams, limits.no_repeat]
        digest = sha256(json.dumps([self.kind, self.labels, head]).encode())
        for split in SPLITS:
            digest.update(f"\n{split}".encode())
            for example in getattr(self, split):
                digest.update(b"\n" + json.dumps([example.input, example.target]).encode())
        return digest.hexdigest()

    @classmethod
    def from_folder(cls, path: str | Path, *, on_error: str = "stop") -> Task:
        """The task in a folder: `task.json` beside train, valid and test as JSONL or CSV.

        on_error: `stop` at the first row that cannot be used, or `skip` such rows and count them in `warnings`.
        Raises TaskError with file and row.
        """
        from tss.data.folder import read_folder

        return read_folder(path, on_error=on_error)

    @classmethod
    def from_dataset(
        cls, dataset: Any, name: str, kind: str, columns: Mapping[str, str] | None = None, **options: Any
    ) -> Task:
        """The task in a Hugging Face `DatasetDict` (train, validation or valid, test) or a single `Dataset` (train).

        columns: field (text, pair, label; tokens, tags; source, target) -> the data set's column, where they differ.
        options: as for `from_lists`. Class numbers become their names. Raises TaskError with split and row.
        """
        from tss.data.hub import read_dataset

        return read_dataset(dataset, name, kind, columns, **options)

    @classmethod
    def from_lists(
        cls,
        name: str,
        kind: str,
        train: Iterable[object],
        valid: Iterable[object] | None = None,
        test: Iterable[object] | None = None,
        *,
        labels: Sequence[str] | None = None,
        lengths: Lengths | Mapping[str, int] | None = None,
        family: str = "",
        metric: str = "",
        repair_tags: bool = False,
    ) -> Task:
        """The task in Python lists of rows.

        classification: `("text", "label")` or `(("text", "pair"), "label")`; tagging: `(words, tags)`; generation:
        `("source", "target")`; or dicts with keys text, pair, label; tokens, tags; source, target.
        labels: all labels, where the training examples do not show them all. Without `valid` a tenth of the training
        examples (at least one) is held out for it. repair_tags: turn an I- that continues nothing into B-.
        Raises TaskError with split and row.
        """
        given = {"train": train, "valid": valid or (), "test": test or ()}
        rows = {split: numbered(split, given[split]) for split in SPLITS}
        return cls.from_rows(
            name,
            kind,
            rows,
            Refused(),
            labels=labels,
            lengths=lengths,
            family=family,
            metric=metric,
            repair_tags=repair_tags,
        )

    @classmethod
    def from_rows(
        cls,
        name: str,
        kind: str,
        rows: Mapping[str, Iterable[tuple[str, object]]],
        refused: Refused,
        *,
        labels: Sequence[str] | None = None,
        lengths: Lengths | Mapping[str, int] | None = None,
        family: str = "",
        metric: str = "",
        columns: Mapping[str, str] | None = None,
        repair_tags: bool = False,
    ) -> Task:
        """For readers of files and data sets: the task in `(place, row)` pairs, a stream for each split."""
        check_kind(kind)
        placed = {s: gather(kind, rows.get(s, ()), refused, columns=columns, repair=repair_tags) for s in SPLITS}
        if not placed["train"]:
            raise TaskError(" ".join((f"task {check_name(name)!r} has no training examples.", *refused.warnings())))
        if isinstance(labels, str):
            raise TaskError(f"labels must be a list of texts, not the text {labels!r}")
        known = labels_of(kind, (one for _, one in placed["train"]), [str(label) for label in labels or ()])
        pair = len(placed["train"][0][1].input) == 2 if kind == "classification" else None
        placed = {s: keep_fitting(kind, placed[s], known, pair, refused) for s in SPLITS}
        examples = {s: tuple(one for _, one in placed[s]) for s in SPLITS}
        notes = [*refused.warnings(), *remarks(kind, known, examples)]
        if not examples["valid"]:
            examples["train"], examples["valid"], note = hold_out(kind, examples["train"])
            notes.append(note)
        limits = Lengths.of(lengths)
        return cls(name, kind, known, lengths=limits, metric=metric, family=family, warnings=tuple(notes), **examples)
