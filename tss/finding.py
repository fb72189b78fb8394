"""Which task an input is for, when nobody says so."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tss.errors import DamagedError, StoreError, TaskError
from tss.learning.about import MEAN, SPREAD, distances, features
from tss.learning.resident import sound
from tss.results import Guess
from tss.store import Store, TaskEntry
from tss.tasks.example import as_input
from tss.tasks.kind import Kind, ReadingConfig
from tss.tasks.task import Lengths

if TYPE_CHECKING:
    from tss.backbones.backbone import Backbone
    from tss.methods.method import Method


@dataclass(frozen=True)
class _Known:
    """What a stored task takes and is about. `form`: tasks with equal ones read an input alike."""

    name: str
    kind: Kind
    pair: bool
    form: Hashable
    mean: Tensor
    spread: Tensor


class Finding:
    """The part of `Learner` that finds the task of an input."""

    store: Store
    _seen: Mapping[str, _Known | None] = MappingProxyType({})  # by file of the store; None: says nothing

    if TYPE_CHECKING:

        @property
        def backbone(self) -> Backbone: ...
        @property
        def method(self) -> Method: ...

    def which(self, inputs: Sequence[Any], most: int = 3) -> list[list[Guess]]:
        """For each input the `most` tasks that learnt on the most similar ones, nearest first.

        inputs: as `predict` takes them; only tasks that can take an input are thought of. A distance of about 1 is
        that of an input like those the task was learnt on. Raises TaskError with the number of an input that no task
        takes, StoreError if no task of the store says what it is about (those learnt by older versions do not).
        """
        if isinstance(inputs, (str, bytes, dict)) or not hasattr(inputs, "__len__"):
            raise TaskError(f"which takes a list of inputs, not one {type(inputs).__name__}: put it into a list")
        if most < 1:
            raise TaskError(f"most must be at least 1, not {most}")
        known = self._about()
        if not known:
            raise StoreError(f"{self.store.path} has no task that says what its inputs are about; learn one first")
        spread = torch.stack([one.spread for one in known]).mean(dim=0)
        far = torch.full((len(inputs), len(known)), float("inf"))
        for form in dict.fromkeys(one.form for one in known):
            self._measure(form, known, inputs, spread, far)
        for i, row in enumerate(far, 1):
            if len(inputs) and not bool(row.isfinite().any()):
                raise TaskError(f"input {i}: no task of the store takes it; it is a {type(inputs[i - 1]).__name__}")
        best = far.sort(dim=1, stable=True)
        return [
            [Guess(known[t].name, round(d, 4)) for d, t in zip(ds, ts, strict=True) if d < float("inf")][:most]
            for ds, ts in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]

    def _measure(self, form: Hashable, known: list[_Known], inputs: Sequence[Any], spread: Tensor, far: Tensor) -> None:
        """Fill in how far the inputs that tasks of this form take are from each of them."""
        tasks = [i for i, one in enumerate(known) if one.form == form]
        first = known[tasks[0]]
        rows, numbers = [], []
        for i, value in enumerate(inputs):
            try:
                given = as_input(first.kind.name, value, first.pair)
            except TaskError:
                continue
            rows.append(first.kind.input_row(self.backbone, given))
            numbers.append(i)
        if rows:
            means = torch.stack([known[i].mean for i in tasks])
            far[torch.tensor(numbers)[:, None], torch.tensor(tasks)] = distances(
                features(self.backbone, rows), means, spread
            )

    def _about(self) -> list[_Known]:
        """The newest version of each task that says what it is about."""
        index, before, now = self.store.index(), self._seen, {}
        for entry in (index.entry(name) for name in index.names()):
            with suppress(DamagedError):  # `tss verify` tells; the others can be found without it
                now[entry.file] = before[entry.file] if entry.file in before else self._read(entry)
        self._seen = now
        return [found for found in now.values() if found is not None]

    def _read(self, entry: TaskEntry) -> _Known | None:
        record = self.store.read(entry.name, entry.version, gates=False)
        mean, spread, meta = record.tensors.get(MEAN), record.tensors.get(SPREAD), record.meta
        if mean is None or spread is None or mean.shape != (self.backbone.width,) or spread.shape != mean.shape:
            return None
        with sound(entry.name):
            kind = self.method.kinds[meta["kind"]](
                meta["labels"], Lengths(**meta["lengths"]), meta["metric"], ReadingConfig(**meta["reading"])
            )
            form = kind.name, meta["pair"], kind.limit(self.backbone)
            return _Known(entry.name, kind, meta["pair"], form, mean.float(), spread.float())
