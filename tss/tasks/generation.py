"""Generation of a text from a text. The LM head is shared and frozen, so a task has no head of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from tss.tasks.batches import IGNORED, Batch, Row
from tss.tasks.kind import Answer, Kind


class Generation(Kind):
    by_loss = True

    def input_row(self, backbone, given: tuple[str, ...]) -> Row:
        ids, cut = backbone.text.source(given[0], self.limit(backbone))
        return Row(ids, [backbone.text.end], cut)

    def limit(self, backbone) -> int:
        """A decoder holds source, separator and target in one window."""
        limit = super().limit(backbone)
        if backbone.layout.family == "decoder" and backbone.longest is not None:
            limit = min(limit, max(backbone.longest - self._room(backbone) - 1, 8))
        return limit

    def _room(self, backbone) -> int:
        """Tokens of a target."""
        longest = backbone.longest
        return self.lengths.max_target if longest is None else min(self.lengths.max_target, longest // 2)

    def row(self, backbone, given: tuple[str, ...], target: str) -> Row:
        row = self.input_row(backbone, given)
        return Row(row.ids, backbone.text.target(target, self._room(backbone)), row.cut)

    def head(self, width: int, key: str) -> nn.Module:
        return nn.Identity()

    def logits(self, backbone, head: nn.Module, batch: Batch, added) -> Tensor:
        """[batch, m, vocabulary]"""
        target = batch.target.masked_fill(batch.target == IGNORED, backbone.text.pad)
        return backbone.target_logits(batch.ids, batch.mask, target, added)

    def _each(self, logits: Tensor, batch: Batch) -> Tensor:
        flat = F.cross_entropy(
            logits.float().flatten(0, 1), batch.target.flatten(), ignore_index=IGNORED, reduction="none"
        )
        return flat.view_as(batch.target)

    def row_losses(self, logits: Tensor, batch: Batch) -> Tensor:
        return self._each(logits, batch).sum(dim=1) / (batch.target != IGNORED).sum(dim=1)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Mean over all target tokens of the batch."""
        return self._each(logits, batch).sum() / (batch.target != IGNORED).sum()

    def weight(self, batch: Batch) -> float:
        return float((batch.target != IGNORED).sum())

    def answers(self, backbone, head: nn.Module, batch: Batch, rows: Sequence[Row], added) -> list[Answer]:
        out = backbone.generate(batch.ids, batch.mask, added, **dict(self.together(backbone)))
        return self.spoken(backbone, out, rows)

    def together(self, backbone) -> tuple[tuple[str, int], ...]:
        lengths = self.lengths
        limits = {"max_tokens": self._room(backbone), "min_tokens": lengths.min_target, "beams": lengths.beams}
        return (*limits.items(), ("no_repeat", lengths.no_repeat))

    def spoken(self, backbone, out: Sequence[Sequence[int]], rows: Sequence[Row]) -> list[Answer]:
        """Answers from generated ids."""
        full = self._room(backbone) - len(backbone.text.target_opening) - 1
        return [
            Answer(backbone.text.decode(ids), None, row.cut, len(ids) >= full)
            for ids, row in zip(out, rows, strict=True)
        ]

    def told(self, answer: Answer, given: tuple[str, ...]) -> dict[str, Any]:
        return super().told(answer, given) | {"unfinished": answer.unfinished}
