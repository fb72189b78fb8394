"""From rows, as they come from lists, files and data sets, to the checked examples of a task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256

from tss.errors import TaskError
from tss.tasks.example import SECOND_FIELDS, Example, as_input, check_labels_known, check_shape, repair_tags

Placed = list[tuple[str, Example]]  # each example with the place it came from, such as `train.jsonl:12`
Examples = tuple[Example, ...]
HELD_OUT = 0.1

FIELDS = {"classification": ("text", "label"), "tagging": ("tokens", "tags"), "generation": ("source", "target")}


class Refused:
    """Rows that cannot be used: an error at once (`stop`), or left out and counted (`skip`)."""

    def __init__(self, on_error: str = "stop"):
        if on_error not in ("stop", "skip"):
            raise TaskError(f"on_error is {on_error!r}; it must be 'stop' or 'skip'")
        self.on_error = on_error
        self.count = 0
        self.first = ""

    def add(self, message: str) -> None:
        if self.on_error == "stop":
            raise TaskError(message)
        self.count += 1
        self.first = self.first or message

    def warnings(self) -> tuple[str, ...]:
        if not self.count:
            return ()
        return (f"{self.count} row{'s were' if self.count > 1 else ' was'} skipped; the first: {self.first}",)


def to_example(kind: str, row: object, *, columns: Mapping[str, str] | None = None, repair: bool = False) -> Example:
    """One row as an example, checked for its kind.

    row: `(input, target)`, a dict with the kind's fields, or an Example. columns: field -> name of its column, where
    the two differ. Raises TaskError that says what is wrong with the row.
    """
    value: object
    target: object
    if isinstance(row, Example):
        value, target = row.input, row.target
    elif isinstance(row, Mapping):
        value, target = _from_mapping(kind, row, columns or {})
    elif isinstance(row, (tuple, list)) and len(row) == 2:
        value, target = row
    else:
        raise TaskError(f"expected ({', '.join(FIELDS[kind])}) or a dict, not {type(row).__name__} {str(row)[:40]!r}")
    example = Example(as_input(kind, value), _target(kind, target, repair))
    check_shape(kind, example)
    return example


def numbered(split: str, rows: Iterable[object]) -> Iterator[tuple[str, object]]:
    """Rows of a list with their places, `train[0]` and so on."""
    for position, row in enumerate(rows):
        yield f"{split}[{position}]", row


def gather(
    kind: str,
    rows: Iterable[tuple[str, object]],
    refused: Refused,
    *,
    columns: Mapping[str, str] | None = None,
    repair: bool = False,
) -> Placed:
    """The usable rows of one split as examples, each with its place; the others go to `refused`."""
    placed = []
    for where, row in rows:
        try:
            placed.append((where, to_example(kind, row, columns=columns, repair=repair)))
        except TaskError as error:
            refused.add(f"{where}: {error}")
    return placed


def labels_of(kind: str, examples: Iterable[Example], named: Sequence[str] = ()) -> tuple[str, ...]:
    """The label set: the named labels or, without them, those of the training examples, sorted.

    Tagging: `O`, then B- and I- of each type, sorted, so that every valid sequence can be told.
    Raises TaskError if a named label of a tagging task is no BIO tag.
    """
    if kind == "generation":
        return ()
    if kind == "classification":
        return tuple(named) or tuple(sorted({str(example.target) for example in examples}))
    for tag in named:
        if tag != "O" and (tag[:2] not in ("B-", "I-") or len(tag) < 3):
            raise TaskError(f"label {tag!r} is no tag; list tags such as O, 'B-{tag}', 'I-{tag}'")
    tags = set(named) or {tag for example in examples for tag in example.target}
    types = {tag[2:] for tag in tags if tag != "O"}
    return ("O", *sorted(f"{prefix}-{type_}" for prefix in "BI" for type_ in types))


def keep_fitting(kind: str, placed: Placed, labels: Sequence[str], pair: bool | None, refused: Refused) -> Placed:
    """The examples whose labels are known and whose number of fields is the task's; the others go to `refused`."""
    known = dict.fromkeys(labels)
    kept = []
    for where, example in placed:
        try:
            check_labels_known(kind, example, known)
            check_pair(kind, example, pair)
            kept.append((where, example))
        except TaskError as error:
            refused.add(f"{where}: {error}")
    return kept


def check_pair(kind: str, example: Example, pair: bool | None) -> None:
    """Raise TaskError unless the example has as many fields as the task's first one."""
    if kind == "classification" and pair is not None and (len(example.input) == 2) != pair:
        has, first = ("one field", "two (text, pair)") if pair else ("two fields", "one (text)")
        raise TaskError(f"this row has {has} but the first training example has {first}; all must have the same")


def hold_out(kind: str, train: Examples) -> tuple[Examples, Examples, str]:
    """A tenth of the training examples, at least one, as validation examples: (train, valid, warning).

    Which ones depends on their number alone, so it is the same everywhere. The last training example of a class is
    never taken; where nothing can be taken, the training examples serve as validation examples too.
    """
    order = sorted(range(len(train)), key=lambda position: sha256(f"valid {position}".encode()).digest())
    left = Counter(example.target for example in train) if kind == "classification" else None
    taken: set[int] = set()
    for position in order if len(train) > 1 else ():
        target = train[position].target
        if len(taken) >= max(1, int(HELD_OUT * len(train))):
            break
        if left is not None:
            if left[target] == 1:
                continue
            left[target] -= 1
        taken.add(position)
    if not taken:
        return train, train, "no validation examples and too few to hold any out: the training examples serve as both"
    valid = tuple(train[position] for position in sorted(taken))
    rest = tuple(one for position, one in enumerate(train) if position not in taken)
    return rest, valid, f"no validation examples: {len(valid)} of {len(train)} training examples are held out for it"


def remarks(kind: str, labels: Sequence[str], splits: Mapping[str, Sequence[Example]]) -> list[str]:
    """What is allowed but worth knowing: one class, one example, duplicates, no test, leaks, unseen labels."""
    train, distinct = splits["train"], set(splits["train"])
    found = []
    if len(train) == 1:
        found.append("there is one training example only")
    if kind == "classification":
        unseen = sorted(set(labels) - {str(example.target) for example in train})
        if len(labels) == 1:
            found.append(f"there is one class only ({labels[0]!r}): every answer will be the same")
        if unseen:
            found.append(f"no training example for label {', '.join(map(repr, unseen[:5]))}")
    if kind == "tagging" and len(labels) == 1:
        found.append("no word has a tag other than O")
    repeated = len(train) - len(distinct)
    if repeated:
        found.append(f"{repeated} training example{'s repeat' if repeated > 1 else ' repeats'} an earlier one")
    empty = sum(not any(part.strip() for part in example.input) for example in train)
    if empty:
        found.append(f"{empty} training example{'s have' if empty > 1 else ' has'} an empty text")
    if not splits["test"]:
        found.append("there are no test examples")
    leaked = sum(example in distinct for example in splits["test"])
    if leaked:
        found.append(f"{leaked} test example{'s are' if leaked > 1 else ' is'} among the training examples")
    return found


def _from_mapping(kind: str, row: Mapping, columns: Mapping[str, str]) -> tuple[object, object]:
    def value(field: str) -> object:
        column = columns.get(field, field)
        if column not in row:
            there = ", ".join(map(repr, list(row)[:10])) or "none"
            raise TaskError(f"no column {column!r} for the {field}; columns here: {there}")
        return row[column]

    first, last = FIELDS[kind]
    if kind != "classification":
        return value(first), value(last)
    seconds = [field for field in SECOND_FIELDS if field in columns or field in row]
    if len(seconds) > 1:
        raise TaskError("both 'pair' and 'aspect' are given; a row has one second field at most")
    return (value(first), *(value(field) for field in seconds)), value(last)


def _target(kind: str, target: object, repair: bool) -> str | tuple[str, ...]:
    if kind == "tagging":
        tags = target.split() if isinstance(target, str) else target
        if not isinstance(tags, (tuple, list)) or not all(isinstance(tag, str) for tag in tags):
            raise TaskError(f"expected a list of tags, not {type(target).__name__} {str(target)[:40]!r}")
        return repair_tags(tuple(tags)) if repair else tuple(tags)
    if kind == "classification" and isinstance(target, int) and not isinstance(target, bool):
        return str(target)
    if not isinstance(target, str):
        what = "a label (text or a whole number)" if kind == "classification" else "the text to produce"
        raise TaskError(f"expected {what}, not {type(target).__name__} {str(target)[:40]!r}")
    return target
