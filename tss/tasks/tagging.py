"""Tagging words with BIO labels. The label of a word stands at its first sub-word; one head a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tss.tasks.batches import IGNORED, Batch, Row
from tss.tasks.kind import Answer, Kind


class Tagging(Kind):
    def input_row(self, backbone, given: tuple[str, ...]) -> Row:
        """Whole words only; what does not fit is left out and the row says so."""
        text = backbone.text
        room = self.limit(backbone) - len(text.opening) - len(text.closing) - self.reading.ner_shift
        ids: list[int] = []
        places: list[int] = []
        cut = False
        for word in given:
            pieces = text.word(word)
            if not ids:
                cut = len(pieces) > max(room, 1)
                pieces = pieces[: max(room, 1)]
            elif len(ids) + len(pieces) > room:
                cut = True
                break
            places.append(len(text.opening) + len(ids))
            ids += pieces
        whole = [*text.opening, *ids, *text.closing]
        return Row(whole, [IGNORED] * len(whole), cut, tuple(places))

    def row(self, backbone, given: tuple[str, ...], target: Sequence[str]) -> Row:
        row = self.input_row(backbone, given)
        labels = list(row.target)
        for place, tag in zip(row.places, target, strict=False):
            labels[place] = self.labels.index(tag)
        return Row(row.ids, labels, row.cut, row.places)

    def logits(self, backbone, head: nn.Module, batch: Batch, added) -> Tensor:
        """[batch, length, labels]"""
        states = backbone.states(batch.ids, batch.mask, added)
        return head(self.features(backbone, states, batch))

    def together(self, backbone) -> str:
        return "states"

    def features(self, backbone, states: Tensor, batch: Batch) -> Tensor:
        """[batch, length, d]"""
        if self.reading.ner_shift and backbone.layout.family == "encoder-decoder":  # others are fed the word itself
            states = torch.cat([states[:, 1:], states[:, -1:]], dim=1)
        return states

    def row_losses(self, logits: Tensor, batch: Batch) -> Tensor:
        """Mean over a sentence's labelled words."""
        each = F.cross_entropy(
            logits.float().flatten(0, 1), batch.target.flatten(), ignore_index=IGNORED, reduction="none"
        )
        labelled = (batch.target != IGNORED).sum(dim=1).clamp(min=1)
        return each.view_as(batch.target).sum(dim=1) / labelled

    def answers(self, backbone, head: nn.Module, batch: Batch, rows: Sequence[Row], added) -> list[Answer]:
        return self.read(self.logits(backbone, head, batch, added), rows)

    def read(self, logits: Tensor, rows: Sequence[Row]) -> list[Answer]:
        chance = logits.float().softmax(dim=-1)
        best = chance.max(dim=-1)
        labels, sure = best.indices.tolist(), best.values.tolist()
        return [
            Answer([self.labels[labels[i][p]] for p in row.places], [round(sure[i][p], 6) for p in row.places], row.cut)
            for i, row in enumerate(rows)
        ]

    def told(self, answer: Answer, given: tuple[str, ...]) -> dict[str, Any]:
        """A tag for every word; those that did not fit are O with confidence 0, and `truncated` says so."""
        missing = len(given) - len(answer.value)
        told = super().told(answer, given)
        return told | {
            "words": list(given),
            "answer": [*answer.value, *["O"] * missing],
            "confidence": [*answer.confidence, *[0.0] * missing],
        }

    @staticmethod
    def whole(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> list[list[str]]:
        """Words that did not fit count as outside any entity, against the full gold tags."""
        return [[*tags, *["O"] * (len(want) - len(tags))] for tags, want in zip(predicted, gold, strict=True)]

    def score(self, predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> dict[str, float]:
        return super().score(self.whole(predicted, gold), [list(want) for want in gold])
