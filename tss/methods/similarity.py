"""Would an earlier task's sub-network serve the new task? CAT's similarity test, by inner trainings.

v_k    dev score of a new readout trained on the new task over the frozen features that earlier task k's mask gives;
v_ref  dev score of a fresh adapter and readout trained on the new task;  task k is similar iff v_k > v_ref.
A readout is the kind's head; generation has none, so there it is a linear map (at first the identity) before the frozen
LM head, and the score is minus the dev loss. All inner trainings begin with the same readout and see the same batches.
"""

from __future__ import annotations

from copy import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tss.backbones.backbone import Backbone, Pass
from tss.methods.hat import Hat
from tss.methods.method import Group, Method, Train
from tss.tasks.batches import Batch
from tss.tasks.lesson import Lesson

AT_ONCE = 256  # inputs


class Turn(nn.Module):
    """x + W x, at first x itself: what is learnt where a kind has no head."""

    def __init__(self, width: int):
        super().__init__()
        self.change = nn.Parameter(torch.zeros(width, width))

    def forward(self, states: Tensor) -> Tensor:
        return states + F.linear(states.to(self.change.dtype), self.change).to(states.dtype)


class Remembering:
    """A backbone that computes the states of a lesson's inputs once, dropout off, and gives them again ever after."""

    def __init__(self, lesson: Lesson):
        self._backbone: Backbone = lesson.backbone
        self._lesson = lesson
        self._places: dict[tuple[int, ...], int] = {}  # where the states of an input stand, by its ids
        self._states = torch.empty(0)  # [inputs, longest, d]

    def __getattr__(self, name: str):
        return getattr(self._backbone, name)

    @torch.no_grad()
    def states(self, ids: Tensor, mask: Tensor, added: Pass) -> Tensor:
        if not self._places:
            self._remember(added)
        rows = zip(ids.tolist(), mask.sum(dim=1).tolist(), strict=True)
        places = torch.tensor([self._places[tuple(row[:n])] for row, n in rows], device=ids.device)
        return self._states[:, : ids.shape[1]].index_select(0, places)

    def _remember(self, added: Pass) -> None:
        """Many inputs at a time: launching takes longer than computing, and there is no gradient to keep room for."""
        lesson, model = self._lesson, self._backbone.model
        training = model.training
        model.eval()
        rows = [*lesson.train.rows, *lesson.valid.rows]
        longest = max(len(row.ids) for row in rows)
        for batch in lesson.batches(rows, AT_ONCE):
            found = self._backbone.states(batch.ids, batch.mask, added)
            if not len(self._states):
                self._states = found.new_zeros(len(rows), longest, found.shape[2])
            self._states[list(batch.numbers), : found.shape[1]] = found * batch.mask[..., None]
        self._places = {tuple(row.ids): i for i, row in enumerate(rows)}
        model.train(training)


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


class OverRemembered(Probe):
    steady = False  # looking states up is nothing that a GPU can record


def readout_of(lesson: Lesson, remember: bool = False) -> Lesson:
    """The lesson with a new readout; `remember`: over states that are computed once, where the readout is a head."""
    fresh = copy(lesson)
    fresh.seed_key = f"{lesson.seed_key}/probe"
    fresh.head = lesson.kind.head(lesson.backbone.width, fresh.seed_key)
    if not any(True for _ in fresh.head.parameters()):
        fresh.head = Turn(lesson.backbone.width)
    elif remember:
        fresh.backbone = Remembering(lesson)
    fresh.head.to(lesson.backbone.device)
    return fresh


def reference_score(owner: Hat, lesson: Lesson, train: Train) -> float:
    """v_ref."""
    layers, readout = owner.layers, readout_of(lesson)
    fresh = layers.near_identity(f"reference/{lesson.seed_key}"), torch.zeros(layers.units), torch.ones(layers.units)
    return train([readout], Probe(owner, fresh, readout, owner.config.adapter_lr)).dev


def transfer_score(owner: Hat, mask: Tensor, lesson: Lesson, train: Train, epochs: int = 0) -> float:
    """v_k of the sub-network with this mask; epochs: so few, over states computed once, or 0 for a whole training."""
    readout, adapter = readout_of(lesson, remember=epochs > 0), (owner.weights, owner.biases, mask)
    if not epochs:
        return train([readout], Probe(owner, adapter, readout)).dev
    kind = OverRemembered if isinstance(readout.backbone, Remembering) else Probe
    return train([readout], kind(owner, adapter, readout), epochs=epochs, min_steps=0).dev


def dev_score(lesson: Lesson, added: Pass) -> tuple[float, float]:
    """Dev score (minus the loss where that decides) and, for ties, minus the dev loss."""

    def forward(lesson: Lesson, number: int, batch: Batch) -> tuple[Tensor, Tensor]:
        logits = lesson.logits(batch, added)
        return logits, lesson.kind.loss(logits, batch)

    score, loss = lesson.develop(lesson.valid, list(lesson.batches(lesson.valid.rows, 64)), forward)
    return -loss if score is None else score, -loss
