"""Would an earlier task's sub-network serve the new task? CAT's similarity test, by inner trainings.

v_k    dev score of a new readout trained on the new task over the frozen features that earlier task k's mask gives;
v_ref  dev score of a fresh adapter and readout trained on the new task;  task k is similar iff v_k > v_ref.
A readout is the kind's head; generation has none, so there it is a linear map (at first the identity) before the frozen
LM head, and the score is minus the dev loss. All inner trainings begin with the same readout and see the same batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tss.backbones.backbone import Pass
from tss.methods.hat import Hat
from tss.methods.method import Group, Method, Train
from tss.tasks.batches import Batch, Row
from tss.tasks.lesson import Lesson, Split

AT_ONCE = 256  # inputs


class Turn(nn.Module):
    """x + W x, at first x itself: what is learnt where a kind has no head."""

    def __init__(self, width: int):
        super().__init__()
        self.change = nn.Parameter(torch.zeros(width, width))

    def forward(self, states: Tensor) -> Tensor:
        return states + F.linear(states.to(self.change.dtype), self.change).to(states.dtype)


class Remembered(Lesson):
    """A lesson with a new head over states computed once, dropout off. Its batches bring along where theirs stand.

    A training that looks states up is the same few operations at every step, so that a GPU can record it.
    """

    def __init__(self, lesson: Lesson, added: Pass):
        super().__init__(lesson.backbone, lesson.kind, lesson.name, _key(lesson))
        rows = [*lesson.train.rows, *lesson.valid.rows]
        self.places = {tuple(row.ids): i for i, row in enumerate(rows)}
        self.states = _states(lesson, rows, added)
        splits = (lesson.train, lesson.valid)
        self.train, self.valid = (Split(split.rows, split.gold, self._where(split.rows)) for split in splits)

    def _where(self, rows: Sequence[Row]) -> list[Row]:
        return [Row([self.places[tuple(row.ids)]], [0]) for row in rows]

    def batch(self, rows: Sequence[Row], numbers: Sequence[int] = (), length: int = 0) -> Batch:
        batch = super().batch(rows, numbers, length)
        return replace(batch, beside=super().batch(self._where([rows[i] for i in batch.numbers])))

    def logits(self, batch: Batch, added: Pass) -> Tensor:
        assert batch.beside is not None
        states = self.states[:, : batch.ids.shape[1]].index_select(0, batch.beside.ids[:, 0])
        return self.head(self.kind.features(self.backbone, states, batch))


@torch.no_grad()
def _states(lesson: Lesson, rows: Sequence[Row], added: Pass) -> Tensor:
    """[rows, longest, d], 0 at padding. Many at a time: launching takes longer than computing, without gradients."""
    model = lesson.backbone.model
    training = model.training
    model.eval()
    out = torch.empty(0)
    for batch in lesson.batches(rows, AT_ONCE):
        found = lesson.backbone.states(batch.ids, batch.mask, added)
        if not len(out):
            out = found.new_zeros(len(rows), max(len(row.ids) for row in rows), found.shape[2])
        out[list(batch.numbers), : found.shape[1]] = found * batch.mask[..., None]
    model.train(training)
    return out


class Probe(Method):
    """One inner training: a readout over adapters that are frozen, or (rate above 0) trained with it."""

    label = "CAT (probe)"

    def __init__(self, owner: Hat, adapter: tuple[Tensor, Tensor, Tensor], readout: Lesson, rate: float = 0.0):
        super().__init__(owner.backbone, owner.bank.config, owner.config, owner.seed)
        weights, biases, self.mask = (t.detach().to(self.device) for t in adapter)
        self.weights = nn.Parameter(weights.clone(), requires_grad=rate > 0)
        self.biases = nn.Parameter(biases.clone(), requires_grad=rate > 0)
        self.layers, self.rate = owner.layers, rate
        self.turn = readout.head if isinstance(readout.head, Turn) else None

    def groups(self) -> list[Group]:
        return [Group([self.weights, self.biases], self.rate)] if self.rate else []

    def passing(self, batch: Batch | None = None) -> Pass:
        turn, adapters = self.turn, self.layers.functions(self.weights, self.biases, self.mask)
        return Pass(adapters, reading=None if turn is None else lambda states: turn(states[0]))


def _key(lesson: Lesson) -> str:
    """Of all readouts for a task, so that they begin alike and see the same batches."""
    return f"{lesson.seed_key}/probe"


def readout_of(lesson: Lesson) -> Lesson:
    """The lesson with a new readout."""
    fresh = copy(lesson)
    fresh.seed_key = _key(lesson)
    fresh.head = lesson.kind.head(lesson.backbone.width, fresh.seed_key)
    if not any(True for _ in fresh.head.parameters()):
        fresh.head = Turn(lesson.backbone.width)
    fresh.head.to(lesson.backbone.device)
    return fresh


def reference_score(owner: Hat, lesson: Lesson, train: Train) -> float:
    """v_ref."""
    layers, readout = owner.layers, readout_of(lesson)
    fresh = layers.near_identity(f"reference/{lesson.seed_key}"), torch.zeros(layers.units), torch.ones(layers.units)
    return train([readout], Probe(owner, fresh, readout, owner.config.adapter_lr)).dev


def transfer_score(owner: Hat, mask: Tensor, lesson: Lesson, train: Train, epochs: int = 0) -> float:
    """v_k of the sub-network with this mask; epochs: so few, over states computed once, or 0 for a whole training."""
    readout, changed = readout_of(lesson), {"epochs": epochs, "min_steps": 0} if epochs else {}
    probe = Probe(owner, (owner.weights, owner.biases, mask), readout)
    if epochs and probe.turn is None:
        readout = Remembered(lesson, probe.passing())
    return train([readout], probe, **changed).dev


def dev_score(lesson: Lesson, added: Pass) -> tuple[float, float]:
    """Dev score (minus the loss where that decides) and, for ties, minus the dev loss."""

    def forward(lesson: Lesson, number: int, batch: Batch) -> tuple[Tensor, Tensor]:
        logits = lesson.logits(batch, added)
        return logits, lesson.kind.loss(logits, batch)

    score, loss = lesson.develop(lesson.valid, list(lesson.batches(lesson.valid.rows, 64)), forward)
    return -loss if score is None else score, -loss
