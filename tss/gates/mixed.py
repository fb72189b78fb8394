"""One batch, many tasks: at every site the rows of each task pass through that task's adapter.

Rows of a task stand together, and tasks with equally many rows stand together, so that at a site all tasks of one size
are one batched matrix product over views: no copy of an input or a weight, no pass over the model for each task.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch
import torch.nn.functional as F
from torch import Tensor

from tss.backbones.adapters import AdapterBank
from tss.backbones.sites import AdapterFunction


def arranged(owners: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Put rows in the order that a mixed batch needs. `owners`: the task of each row.

    Gives the rows' numbers in order, the tasks in order and how many rows each of them has.
    """
    counts: dict[int, int] = {}
    for owner in owners:
        counts[owner] = counts.get(owner, 0) + 1
    tasks = sorted(counts, key=lambda task: (counts[task], task))
    place = {task: i for i, task in enumerate(tasks)}
    order = sorted(range(len(owners)), key=lambda row: (place[owners[row]], row))
    return order, tasks, [counts[task] for task in tasks]


def grouped(bank: AdapterBank, weights: Tensor, biases: Tensor | None, sizes: Sequence[int]) -> list[AdapterFunction]:
    """Adapter functions of a mixed batch: batched products over the tasks present.

    weights [tasks, size], biases [tasks, bias_size] or None; sizes: rows of each task, as `arranged` orders them.
    The functions take x [rows, ..., d], or [rows * beams, ..., d] with the beams of a row together.
    """
    parts = [slice(first, first + tasks) for first, tasks, _ in _blocks(sizes)]
    rows = [rows for _, _, rows in _blocks(sizes)]
    each = [_products(bank, weights[part], None if biases is None else biases[part]) for part in parts]
    return [_site(bank, [block[i] for block in each], rows) for i in range(bank.count)]


def looped(tasks: Sequence[Sequence[AdapterFunction]], sizes: Sequence[int]) -> list[AdapterFunction]:
    """The plain way, which `grouped` is compared with: each task's own function on its own rows."""

    def at(site: int) -> AdapterFunction:
        def adapter(x: Tensor) -> Tensor:
            times = len(x) // sum(sizes)
            parts = x.split([size * times for size in sizes])
            return torch.cat([task[site](part) for task, part in zip(tasks, parts, strict=True)])

        return adapter

    return [at(site) for site in range(len(tasks[0]))]


def _blocks(sizes: Sequence[int]) -> list[tuple[int, int, int]]:
    """(first task, tasks, rows of all of them) for every run of tasks with equally many rows."""
    out, first = [], 0
    for size, run in groupby(sizes):
        tasks = len(list(run))
        out.append((first, tasks, size * tasks))
        first += tasks
    return out


def _products(bank: AdapterBank, weights: Tensor, biases: Tensor | None) -> list[AdapterFunction]:
    """One function a site for tasks with equally many rows: x [tasks * rows, ..., d] -> the same shape."""
    count, narrow, wide = bank.count, bank.bottleneck, bank.width
    tasks = len(weights)
    flat = weights.to(bank.dtype).view(tasks, count, 2, narrow * wide)
    downs = flat[:, :, 0].unflatten(2, (narrow, wide)).transpose(2, 3).unbind(1)  # [tasks, d, b] a site
    ups = flat[:, :, 1].unflatten(2, (wide, narrow)).transpose(2, 3).unbind(1)  # [tasks, b, d] a site
    if biases is None:
        return [_plain(down, up, tasks, wide) for down, up in zip(downs, ups, strict=True)]
    offsets = biases.to(bank.dtype).view(tasks, count, 1, narrow + wide)
    inner, outer = (part.unbind(1) for part in offsets.split([narrow, wide], dim=3))
    return [_shifted(*one, tasks, wide) for one in zip(downs, inner, ups, outer, strict=True)]


def _plain(down: Tensor, up: Tensor, tasks: int, wide: int) -> AdapterFunction:
    def product(x: Tensor) -> Tensor:
        return torch.bmm(F.relu(torch.bmm(x.reshape(tasks, -1, wide), down)), up).view(x.shape)

    return product


def _shifted(down: Tensor, inner: Tensor, up: Tensor, outer: Tensor, tasks: int, wide: int) -> AdapterFunction:
    def product(x: Tensor) -> Tensor:
        y = F.relu(torch.baddbmm(inner, x.reshape(tasks, -1, wide), down))
        return torch.baddbmm(outer, y, up).view(x.shape)

    return product


def _site(bank: AdapterBank, products: list[AdapterFunction], rows: list[int]) -> AdapterFunction:
    def adapter(x: Tensor) -> Tensor:
        if bank.config.own_ln:
            x = F.layer_norm(x, (bank.width,))
        times = len(x) // sum(rows)  # beams of a row stand together
        parts = x.split([count * times for count in rows])
        return torch.cat([product(part) for product, part in zip(products, parts, strict=True)])

    return products[0] if len(products) == 1 and not bank.config.own_ln else adapter
