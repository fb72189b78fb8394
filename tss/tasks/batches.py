"""Rows of token ids into batches: rows of like length together, padded to the longest among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tss.randomness import shuffler
from tss.tasks.packing import arrange, indices

IGNORED = -100  # target of positions without a label
PASS_COST = 24  # tokens that one more forward and backward pass costs beside its own; on a small CPU model up to 80


@dataclass(frozen=True, slots=True)
class Row:
    """One encoded example. `target`: [label] | a label or IGNORED for each id | ids of the target text."""

    ids: list[int]
    target: list[int]
    cut: bool = False  # the text did not fit and was shortened
    places: tuple[int, ...] = ()  # tagging: position of the first sub-word of each word kept


@dataclass(frozen=True)
class Batch:
    """ids, mask [batch, length]; target [batch] | [batch, length] | [batch, m]; numbers: which rows these are.

    packing: how the rows fit into fewer, fuller ones, for who can compute those. Of the ids, and of a target that is a
    text of its own: [packed rows, places], the flat index into the padded tensor that stands there, or -1 for nothing.
    beside: the same rows in another form, for a method that learns from both.
    """

    ids: Tensor
    mask: Tensor
    target: Tensor
    numbers: tuple[int, ...]
    packing: tuple[Tensor, ...] = ()
    beside: Batch | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def tensors(self) -> list[Tensor]:
        """All that it holds, in the order of `holding`."""
        own = [self.ids, self.mask, self.target, *self.packing]
        return own if self.beside is None else [*own, *self.beside.tensors()]

    def holding(self, tensors: Sequence[Tensor]) -> Batch:
        """The same with other tensors."""
        count = 3 + len(self.packing)
        ids, mask, target, *packing = tensors[:count]
        beside = None if self.beside is None else self.beside.holding(tensors[count:])
        return Batch(ids, mask, target, self.numbers, tuple(packing), beside)

    def to(self, device: torch.device) -> Batch:
        return self.holding([each.to(device) for each in self.tensors()])

    def split(self, parts: int) -> list[Batch]:
        """At most `parts` smaller batches with the same rows, not packed."""
        size = -(-len(self) // parts)
        whole = replace(self, packing=())
        cuts = [slice(i, i + size) for i in range(0, len(self), size)]
        pieces = [whole.holding([each[cut] for each in whole.tensors()]) for cut in cuts]
        return [replace(piece, numbers=self.numbers[cut]) for piece, cut in zip(pieces, cuts, strict=True)]


def collate(rows: Sequence[Row], numbers: Sequence[int], pad: int, single: bool, length: int = 0) -> Batch:
    """Pad rows to a batch. `single`: one target a row instead of a sequence. `length`: pad at least so far."""
    longest = max(length, max(len(row.ids) for row in rows))
    ids = _padded([row.ids for row in rows], pad, longest)
    lengths = torch.tensor([len(row.ids) for row in rows])
    mask = (torch.arange(longest) < lengths[:, None]).long()
    if single:
        target = torch.tensor([row.target[0] for row in rows])
    else:
        wide = max(len(row.target) for row in rows)
        wide = max(wide, longest) if rows[0].places else wide
        target = _padded([row.target for row in rows], IGNORED, wide)
    return Batch(ids, mask, target, tuple(numbers))


def _padded(lists: Sequence[list[int]], fill: int, width: int) -> Tensor:
    return torch.tensor([[*each, *[fill] * (width - len(each))] for each in lists], dtype=torch.long)


class Table:
    """All rows of a split padded once and kept on the device, so that a batch is a few gathers there.

    beside: another form of each row, texts for a text, which every batch then brings along.
    """

    def __init__(self, rows: Sequence[Row], pad: int, single: bool, device: torch.device, beside: Sequence[Row] = ()):
        self.whole = collate(rows, (), pad, single).to(device)
        self.lengths = [len(row.ids) for row in rows]
        self.targets = [len(row.target) for row in rows]
        self.aligned = bool(rows[0].places)  # a target for each id
        self.single = single
        self.beside = Table(beside, pad, False, device) if beside else None

    def batch(self, numbers: Sequence[int], rounded: bool = False, packed: bool = False) -> Batch:
        """These rows, padded to the longest among them; `rounded`: to the next rung, so that few shapes occur.

        `packed`: padded to the longest of all, which costs nothing where only the packed rows are computed.
        """
        batch = self._packed(numbers) if packed else self._padded(numbers, rounded)
        return batch if self.beside is None else replace(batch, beside=self.beside.batch(numbers, rounded))

    def _padded(self, numbers: Sequence[int], rounded: bool) -> Batch:
        length = self._width([self.lengths[i] for i in numbers], rounded, self.whole.ids)
        index = _on(self.whole.ids.device, numbers)
        ids, mask = (t[:, :length].index_select(0, index) for t in (self.whole.ids, self.whole.mask))
        if self.single:
            return Batch(ids, mask, self.whole.target.index_select(0, index), tuple(numbers))
        wide = self._width([self.targets[i] for i in numbers], rounded, self.whole.target)
        target = self.whole.target[:, : length if self.aligned else wide]
        return Batch(ids, mask, target.index_select(0, index), tuple(numbers))

    def _packed(self, numbers: Sequence[int]) -> Batch:
        whole = self.whole
        index = _on(whole.ids.device, numbers)
        ids, mask, target = (each.index_select(0, index) for each in (whole.ids, whole.mask, whole.target))
        inputs = [self.lengths[i] for i in numbers]
        texts = not (self.single or self.aligned)  # targets that are laid by themselves
        targets = [self.targets[i] if texts else 0 for i in numbers]
        groups, places = arrange(list(zip(inputs, targets, strict=True)))
        laid = [indices(groups, inputs, places[0], ids.shape[1])]
        if texts:
            laid.append(indices(groups, targets, places[1], target.shape[1]))
        packing = tuple(torch.tensor(each).to(ids.device) for each in laid)
        return Batch(ids, mask, target, tuple(numbers), packing)

    def pieces(self, numbers: Sequence[int]) -> list[Batch]:
        """These rows in as many batches of like length as pay, shortest first: the same rows with less padding."""
        pieces = cut([self.lengths[i] for i in numbers], PASS_COST)
        return [self.batch([numbers[i] for i in piece]) for piece in pieces]

    @staticmethod
    def _width(lengths: list[int], rounded: bool, whole: Tensor) -> int:
        longest = max(lengths)
        return min(rung(longest), whole.shape[1]) if rounded else longest


def _on(device: torch.device, numbers: Sequence[int]) -> Tensor:
    """From memory that a GPU reads by itself: an ordinary copy waits until all steps before it are done."""
    index = torch.tensor(numbers)
    return index.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else index.to(device)


def rung(length: int) -> int:
    """The next of 8, 16, 24 … 64, 80, 96 … 128, 160 …: at most an eighth more, or 7."""
    step = max(8, 1 << max((length - 1).bit_length() - 3, 0))
    return -(-length // step) * step


def cut(lengths: Sequence[int], cost: int) -> list[list[int]]:
    """Positions of a batch's rows in pieces, shortest rows first, so that padded tokens + cost * pieces are fewest."""
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    least, begins = [0], [0]  # of the first n rows: what they cost, where their last piece begins
    for n, row in enumerate(order, 1):
        found = min((least[begin] + (n - begin) * lengths[row] + cost, begin) for begin in range(n))
        least.append(found[0])
        begins.append(found[1])
    pieces, end = [], len(order)
    while end:
        pieces.append(order[begins[end] : end])
        end = begins[end]
    return pieces[::-1]


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
