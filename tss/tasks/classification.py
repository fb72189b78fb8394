"""Classification of a text, or of a pair of texts (text and aspect). One head a task."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tss.tasks.batches import Batch, Row
from tss.tasks.kind import Answer, Kind


class Classification(Kind):
    single = True

    def input_row(self, backbone, given: tuple[str, ...]) -> Row:
        text = backbone.text
        parts = [text.tokens(given[0]), *(text.tokens(" " + part) for part in given[1:])]
        ids, cut = text.wrap(parts, self.limit(backbone))
        return Row(ids, [0], cut)

    def row(self, backbone, given: tuple[str, ...], target: str) -> Row:
        row = self.input_row(backbone, given)
        return Row(row.ids, [self.labels.index(target)], row.cut)

    def logits(self, backbone, head: nn.Module, batch: Batch, added) -> Tensor:
        """[batch, labels]"""
        states = backbone.states(batch.ids, batch.mask, added)
        return head(self.features(backbone, states, batch))

    def together(self, backbone) -> str:
        return "states"

    def features(self, backbone, states: Tensor, batch: Batch) -> Tensor:
        """[batch, length, d] -> [batch, d]"""
        pool = self.reading.pool
        if self.reading.asc_pool:
            # A pair has a second separator: one more than a single text ends with.
            marks = (batch.ids == backbone.text.separator) & (batch.mask == 1)
            if bool((marks.sum(dim=1) > 1).all()):
                pool = self.reading.asc_pool
        pool = backbone.reads if pool == "auto" else pool
        if pool == "first":
            return states[:, 0]
        if pool == "last":
            last = batch.mask.sum(dim=1) - 1
            return states[torch.arange(len(states), device=states.device), last]
        mask = batch.mask.unsqueeze(-1).to(states.dtype)
        return (states * mask).sum(dim=1) / mask.sum(dim=1)

    def shares(self, rows: Sequence[Row]) -> Tensor:
        found = torch.tensor([row.target[0] for row in rows]).bincount(minlength=len(self.labels)) + 1.0
        return found / found.sum()  # a label without an example counts as if it had one, so none has share 0

    def row_losses(self, logits: Tensor, batch: Batch) -> Tensor:
        return F.cross_entropy(logits.float(), batch.target, reduction="none")

    def answers(self, backbone, head: nn.Module, batch: Batch, rows: Sequence[Row], added) -> list[Answer]:
        return self.read(self.logits(backbone, head, batch, added), rows)

    def read(self, logits: Tensor, rows: Sequence[Row]) -> list[Answer]:
        chance = logits.float().softmax(dim=-1)
        best = chance.max(dim=-1)
        return [
            Answer(self.labels[i], round(p, 6), row.cut)
            for i, p, row in zip(best.indices.tolist(), best.values.tolist(), rows, strict=True)
        ]
