"""Rows laid one after another in fewer, fuller rows: what a forward pass over those needs, and the way back.

Attention stays within each row by a mask, and positions are counted within each row, so that states and gradients are
those of the padded rows but for rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


@dataclass(frozen=True)
class Laid:
    """index [packed rows, places]: which flat index into [rows, width] stands at a place, or -1 for nothing."""

    index: Tensor
    rows: int
    width: int

    @classmethod
    def of(cls, index: Tensor, padded: Tensor) -> Laid:
        return cls(index, *padded.shape[:2])

    @property
    def owner(self) -> Tensor:
        """The row that each place belongs to, or -1. [packed rows, places]"""
        return self.index // self.width

    @property
    def positions(self) -> Tensor:
        return self.index % self.width

    def lay(self, padded: Tensor, nothing: int = 0) -> Tensor:
        """[rows, width, …] -> [packed rows, places, …], `nothing` where nothing stands."""
        return _picked(padded, self.index, nothing)

    def sees(self, other: Laid, dtype: torch.dtype, causal: bool = False) -> Tensor:
        """What is added to attention from here to there, [packed rows, 1, places, places there]: 0 within a row."""
        own, theirs = self.owner.unsqueeze(-1), other.owner.unsqueeze(-2)
        seen = own == theirs
        if causal:
            at = torch.arange(seen.shape[-1], device=seen.device)
            seen = seen & (at <= at[:, None])
        seen = seen | (own < 0)  # a place that sees nothing would not be a number
        mask = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
        return mask.masked_fill(~seen, torch.finfo(dtype).min).unsqueeze(1)

    def put_back(self, states: Tensor) -> Tensor:
        """[packed rows, places, …] -> [rows, width, …], 0 where nothing stood."""
        return _PutBack.apply(states, self.index, self._inverse())

    def _inverse(self) -> Tensor:
        """Flat place of each token, or -1. [rows, width]. By comparing: a scatter is slow where it must repeat."""
        rows = torch.arange(self.rows, device=self.index.device)
        own = self.owner.flatten() == rows[:, None]
        begin, length = own.int().argmax(dim=1, keepdim=True), own.sum(dim=1, keepdim=True)
        columns = torch.arange(self.width, device=self.index.device)
        return torch.where(columns < length, begin + columns, -1)


class _PutBack(torch.autograd.Function):
    """A gather each way: no two places hold the same token, and the sums of an index's own backward are slow."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, index: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        return _picked(states, inverse)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (index,) = ctx.saved_tensors
        return _picked(gradient, index), None, None


def _picked(given: Tensor, index: Tensor, nothing: int = 0) -> Tensor:
    """[a, b, …] by flat index [e, f] -> [e, f, …], `nothing` where that is -1."""
    found = given.flatten(0, 1).index_select(0, index.clamp(min=0).flatten()).unflatten(0, index.shape)
    return found.masked_fill((index < 0).view(*index.shape, *[1] * (found.ndim - 2)), nothing)


class Positions:
    """Learned positions of a model's stacks, which count along a whole packed row if left alone.

    Models that know positions only relative to one another have no such table and need nothing.
    """

    def __init__(self, *stacks: nn.Module):
        self._counted: Tensor | None = None
        for stack in stacks:
            table: Any = getattr(stack, "embed_positions", None)
            if table is not None:
                table.register_forward_pre_hook(self._asked, with_kwargs=True)
                table.register_forward_hook(self._shaped)

    def _asked(self, table: nn.Module, args: tuple, named: dict[str, Any]) -> tuple[tuple, dict[str, Any]] | None:
        # Asked in advance, not corrected after: a packed row may be longer than the table.
        return None if self._counted is None else (args[:1], {"position_ids": self._counted.flatten()})

    def _shaped(self, table: nn.Module, args: tuple, out: Tensor) -> Tensor | None:
        return None if self._counted is None else out.view(*self._counted.shape, -1)

    @contextmanager
    def within(self, laid: Laid) -> Iterator[None]:
        """Inside, they are counted within each row."""
        self._counted = laid.positions
        try:
            yield
        finally:
            self._counted = None
