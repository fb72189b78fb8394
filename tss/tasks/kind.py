"""A kind of task: how it is encoded, read out, scored and decoded. Knows nothing of methods.

`backbone` arguments are `tss.backbones.Backbone`s; they are passed in, so that tasks import no models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tss import randomness
from tss.errors import ConfigError
from tss.tasks import metrics
from tss.tasks.batches import Batch, Row
from tss.tasks.task import Lengths

HEADS = ("linear", "two-layer")
POOLS = ("auto", "mean", "last", "first")


@dataclass(frozen=True)
class ReadingConfig:
    """How a head reads the backbone."""

    head: str = "linear"  # "two-layer": dropout, Linear(d, d), tanh, dropout, Linear(d, labels)
    pool: str = "auto"  # the backbone's own: mean of decoder states (BART), first token (BERT), last token (GPT)
    asc_pool: str = ""  # another pool for texts with a pair; empty: the same
    ner_shift: int = 0  # 1: read the decoder at the position fed with the word, not the one before it
    head_dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.head not in HEADS:
            raise ConfigError(f"head {self.head!r} is not one of {', '.join(HEADS)}")
        if self.pool not in POOLS or self.asc_pool not in ("", *POOLS):
            raise ConfigError(f"pool and asc_pool are one of {', '.join(POOLS)}, not {self.pool!r}, {self.asc_pool!r}")
        if self.ner_shift not in (0, 1):
            raise ConfigError(f"ner_shift is 0 or 1, not {self.ner_shift}")
        if not 0.0 <= self.head_dropout < 1.0:
            raise ConfigError(f"head_dropout is a share, from 0 to below 1, not {self.head_dropout}")


@dataclass(frozen=True)
class Answer:
    """What a task says about one input. `value`: label | tags | text; `confidence` where the kind has one.

    cut: the input did not fit whole. unfinished: a text that reached its limit before its end.
    """

    value: Any
    confidence: Any = None
    cut: bool = False
    unfinished: bool = False


class Kind:
    """One kind, for one task's labels and lengths."""

    single = False  # one target a row, not a sequence
    by_loss = False  # dev loss, not the metric, chooses the best state

    def __init__(self, labels: Sequence[str], lengths: Lengths, metric: str, reading: ReadingConfig):
        self.labels, self.lengths, self.reading = tuple(labels), lengths, reading
        self.metric = metric or metrics.MAIN[self.name]

    @property
    def name(self) -> str:
        return type(self).__name__.lower()

    def limit(self, backbone) -> int:
        """Tokens of an input, never more than the backbone has positions for."""
        longest = backbone.longest
        return self.lengths.max_input if longest is None else min(self.lengths.max_input, longest)

    def input_row(self, backbone, given: tuple[str, ...]) -> Row:
        """Encode an input without a target."""
        raise NotImplementedError

    def row(self, backbone, given: tuple[str, ...], target: Any) -> Row:
        """Encode an example."""
        raise NotImplementedError

    def head(self, width: int, key: str) -> nn.Module:
        """The task's own head, the same numbers for the same key."""
        return Head(width, len(self.labels), self.reading, key)

    def logits(self, backbone, head: nn.Module, batch: Batch, added) -> Tensor:
        raise NotImplementedError

    def features(self, backbone, states: Tensor, batch: Batch) -> Tensor:
        """What the head reads of the backbone's states [batch, length, d], for kinds that have a head."""
        raise NotImplementedError

    def together(self, backbone) -> Any:
        """Tasks with equal values share a forward pass: "states", or the limits of generation. None: never share."""
        return None

    def shares(self, rows: Sequence[Row]) -> Tensor | None:
        """How often each label is meant, [labels], for kinds that choose one label a row."""
        return None

    def row_losses(self, logits: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy of each row. [batch]"""
        raise NotImplementedError

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Cross-entropy of the batch."""
        return self.row_losses(logits, batch).mean()

    def weight(self, batch: Batch) -> float:
        """How much the batch counts when batches are averaged."""
        return float(len(batch))

    def answers(self, backbone, head: nn.Module, batch: Batch, rows: Sequence[Row], added) -> list[Answer]:
        raise NotImplementedError

    def read(self, logits: Tensor, rows: Sequence[Row]) -> list[Answer]:
        """Answers from logits, for kinds that have them without another pass."""
        raise NotImplementedError

    def spoken(self, backbone, out: Sequence[Sequence[int]], rows: Sequence[Row]) -> list[Answer]:
        """Answers from generated ids, for kinds that generate."""
        raise NotImplementedError

    def told(self, answer: Answer, given: tuple[str, ...]) -> dict[str, Any]:
        """An answer as a user sees it."""
        return {"answer": answer.value, "confidence": answer.confidence, "truncated": answer.cut}

    @staticmethod
    def whole(predicted: Sequence[Any], gold: Sequence[Any]) -> Sequence[Any]:
        """The answers as they are scored: with what a limit of length cut off filled in."""
        return predicted

    def score(self, predicted: Sequence[Any], gold: Sequence[Any]) -> dict[str, float]:
        """Metrics in points, the main one first."""
        return metrics.score(self.name, self.metric, predicted, gold, self.labels)


class Head(nn.Module):
    """Linear, or two layers with tanh; weights N(0, 0.02^2) from our own generator, biases 0."""

    def __init__(self, width: int, labels: int, reading: ReadingConfig, key: str):
        super().__init__()
        self.dropout = nn.Dropout(reading.head_dropout)
        self.inner = nn.Linear(width, width) if reading.head == "two-layer" else None
        self.outer = nn.Linear(width, labels)
        for name, parameter in self.named_parameters():
            values = torch.zeros(parameter.numel())
            if name.endswith("weight"):
                values = randomness.normal(f"head/{key}/{name}", parameter.numel(), 0.02)
            parameter.data.copy_(values.view_as(parameter))

    def forward(self, states: Tensor) -> Tensor:
        states = states.to(self.outer.weight.dtype)
        if self.inner is not None:
            states = torch.tanh(self.inner(self.dropout(states)))
        return self.outer(self.dropout(states))


def kind_of(name: str) -> type[Kind]:
    from tss.tasks.classification import Classification
    from tss.tasks.generation import Generation
    from tss.tasks.tagging import Tagging

    return {"classification": Classification, "tagging": Tagging, "generation": Generation}[name]
