"""Tasks from Hugging Face data sets: a loaded `Dataset` or `DatasetDict`, or one from the hub or a local folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tss.errors import TaskError, nearest
from tss.tasks.example import check_kind
from tss.tasks.rows import FIELDS, Refused
from tss.tasks.task import Lengths, Task

SPLIT_NAMES = {"train": ("train",), "valid": ("validation", "valid", "dev"), "test": ("test",)}


def load_hub_task(
    repo_or_path: str | os.PathLike[str],
    kind: str,
    *,
    name: str | None = None,
    columns: Mapping[str, str] | None = None,
    subset: str | None = None,
    revision: str | None = None,
    **options: Any,
) -> Task:
    """The task in a data set of the hub, or in a local folder of the same layout; needs the extra `hub`.

    name: of the task, else the last part of `repo_or_path`. subset: the data set's configuration. Other options: as
    for `Task.from_dataset`. Raises TaskError if the data set cannot be loaded, or a row cannot be used.
    """
    check_kind(kind)
    try:
        from datasets import load_dataset
    except ImportError:
        raise TaskError("data sets of the hub need the extra 'hub': pip install 'tss[hub]'") from None
    place = os.fspath(repo_or_path)
    try:
        dataset = load_dataset(place, subset, revision=revision)
    except Exception as error:  # the library raises many kinds: no network, no such data set, unreadable files …
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise TaskError(f"cannot load the data set {place!r}: {lines[0][:300]}") from error
    return read_dataset(dataset, name or os.path.basename(place.rstrip("/\\")), kind, columns, **options)


def read_dataset(
    dataset: Any,
    name: str,
    kind: str,
    columns: Mapping[str, str] | None = None,
    *,
    labels: Sequence[str] | None = None,
    lengths: Lengths | Mapping[str, int] | None = None,
    family: str = "",
    metric: str = "",
    repair_tags: bool = False,
    on_error: str = "stop",
) -> Task:
    """The task in a data set; see `Task.from_dataset`. Without `labels`, the class names of the data set are used."""
    check_kind(kind)
    splits = _splits(dataset)
    column = (columns or {}).get(FIELDS[kind][1], FIELDS[kind][1])
    if labels is None:
        labels = _class_names(splits["train"], column)
    refused = Refused(on_error)
    rows = {split: _rows(split, one, column, refused) for split, one in splits.items()}
    return Task.from_rows(
        name,
        kind,
        rows,
        refused,
        labels=labels,
        lengths=lengths,
        family=family,
        metric=metric,
        columns=columns,
        repair_tags=repair_tags,
    )


def _splits(dataset: Any) -> dict[str, Any]:
    if not isinstance(dataset, Mapping):
        return {"train": dataset}
    found = {split: dataset[known] for split, names in SPLIT_NAMES.items() for known in names[::-1] if known in dataset}
    if "train" not in found:
        raise TaskError(f"the data set has no split 'train'{nearest('train', tuple(map(str, dataset)))}")
    return found


def _rows(split: str, dataset: Any, column: str, refused: Refused) -> Iterator[tuple[str, object]]:
    """Rows with class numbers turned into names. A number without a name (often -1: not labelled) is refused."""
    names = _class_names(dataset, column)
    for position, row in enumerate(dataset):
        where = f"{split}[{position}]"
        if names is None or not isinstance(row, Mapping) or column not in row:
            yield where, row
            continue
        try:
            yield where, {**row, column: _named(row[column], names)}
        except TaskError as error:
            refused.add(f"{where}: {error}")


def _class_names(dataset: Any, column: str) -> list[str] | None:
    """The names of a ClassLabel column, or of a column of lists of ClassLabel; None if it is neither."""
    features = getattr(dataset, "features", None) or {}
    feature = features.get(column)
    names = getattr(feature, "names", None) or getattr(getattr(feature, "feature", None), "names", None)
    return list(names) if names else None


def _named(value: Any, names: Sequence[str]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_named(one, names) for one in value]
    if isinstance(value, int):
        if not 0 <= value < len(names):
            raise TaskError(f"class number {value} has no name (-1 means not labelled); leave such rows out")
        return names[value]
    return value
