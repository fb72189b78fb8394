"""Rows of token ids into batches: rows of like length together, padded to the longest among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tss.randomness import shuffler

IGNORED = -100  # target of positions without a label


@dataclass(frozen=True, slots=True)
class Row:
    """One encoded example. `target`: [label] | a label or IGNORED for each id | ids of the target text."""

    ids: list[int]
    target: list[int]
    cut: bool = False  # the text did not fit and was shortened
    places: tuple[int, ...] = ()  # tagging: position of the first sub-word of each word kept


@dataclass(frozen=True)
class Batch:
    """ids, mask [batch, length]; target [batch] | [batch, length] | [batch, m]; numbers: which rows these are."""

    ids: Tensor
    mask: Tensor
    target: Tensor
    numbers: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def to(self, device: torch.device) -> Batch:
        return replace(self, ids=self.ids.to(device), mask=self.mask.to(device), target=self.target.to(device))

    def split(self, parts: int) -> list[Batch]:
        """At most `parts` smaller batches with the same rows."""
        size = -(-len(self) // parts)
        return [
            Batch(
                self.ids[i : i + size], self.mask[i : i + size], self.target[i : i + size], self.numbers[i : i + size]
            )
            for i in range(0, len(self), size)
        ]


def collate(rows: Sequence[Row], numbers: Sequence[int], pad: int, single: bool, length: int = 0) -> Batch:
    """Pad rows to a batch. `single`: one target a row instead of a sequence. `length`: pad at least so far."""
    longest = max(length, max(len(row.ids) for row in rows))
    ids = torch.full((len(rows), longest), pad, dtype=torch.long)
    mask = torch.zeros((len(rows), longest), dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row.ids)] = torch.tensor(row.ids)
        mask[i, : len(row.ids)] = 1
    if single:
        target = torch.tensor([row.target[0] for row in rows])
    else:
        wide = max(len(row.target) for row in rows)
        wide = max(wide, longest) if rows[0].places else wide
        target = torch.full((len(rows), wide), IGNORED, dtype=torch.long)
        for i, row in enumerate(rows):
            target[i, : len(row.target)] = torch.tensor(row.target)
    return Batch(ids, mask, target, tuple(numbers))


def plan(lengths: Sequence[int], size: int, seed: str | None) -> list[list[int]]:
    """Row numbers in batches of `size`, like lengths together.

    With a seed: rows of nearly equal length are mixed and the order of the batches is random; without: fixed order.
    """
    order = list(range(len(lengths)))
    if seed is None:
        order.sort(key=lambda i: (lengths[i], i))
        return [order[i : i + size] for i in range(0, len(order), size)]
    random = shuffler(seed)
    jitter = [length + 2 * random.random() for length in lengths]
    order.sort(key=lambda i: jitter[i])
    # A random short batch, not always the longest texts, when the rows do not divide evenly.
    spare = len(order) % size
    cut = random.randrange(0, len(order) - spare + 1) // size * size if spare else 0
    batches = [order[cut : cut + spare]] if spare else []
    rest = order[:cut] + order[cut + spare :]
    batches += [rest[i : i + size] for i in range(0, len(rest), size)]
    random.shuffle(batches)
    return batches


def endless(lengths: Sequence[int], size: int, seed: str, start: int = 0) -> Iterator[list[int]]:
    """Batches epoch after epoch, beginning at batch number `start` of the whole stream."""
    per_epoch = -(-len(lengths) // size)
    epoch, skip = divmod(start, per_epoch)
    while True:
        yield from plan(lengths, size, f"{seed}/{epoch}")[skip:]
        epoch, skip = epoch + 1, 0
