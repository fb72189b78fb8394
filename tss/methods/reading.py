"""A second reading of a classification: another task's frozen sub-network through a head of the task's own.

    P(y | x) = P_own(y | x) / 2 + P_other(y | x) / 2
    head of the other:  min over W, b of  mean cross-entropy(W x + b, y) + |W - W0|^2 / (2 C n),   x standardised

W0: the other task's head where it knows the labels, else 0. The fit is convex: one answer, no rate, no schedule, no dev
set. C, and who the other is, are chosen by the loss on training rows left out; rows that begin alike, as questions
about one text do, are left out together. A relative that has seen many texts reads a small task about as well as its
own sub-network does, and makes other mistakes. Cost: a head kept, and a second forward pass for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tss.backbones.backbone import Pass
from tss.methods.method import Remembered
from tss.tasks.batches import Row
from tss.tasks.lesson import Lesson, Member, in_company

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)  # C
FOLDS = 5
ROWS = 1024  # that a head is fitted on
ALIKE = 8  # first tokens by which rows are of one text
Linear = tuple[Tensor, Tensor]  # weight [labels, width], bias [labels]


def readable(lesson: Lesson) -> bool:
    """Whether a head can be fitted: one label a row, read by one linear layer."""
    return lesson.kind.single and lesson.kind.reading.head == "linear"


def fitted(lesson: Lesson, theirs: Remembered, added: Pass) -> tuple[Member, float]:
    """Another task's sub-network, `added`, with a head fitted to the lesson, and its mean loss on rows left out."""
    rows = lesson.train.rows[:ROWS]
    # A fit is thousands of small products, which a GPU would spend its time launching.
    x, y = features(lesson, rows, added).cpu(), lesson.batch(rows).target.cpu()
    near, fold = known(lesson, theirs, x), folds(rows)

    def left_out(strength: float) -> float:
        total = 0.0
        for held in (fold == i for i in fold.unique()):
            if not held.all():
                weight, bias = regression(x[~held], y[~held], near, strength)
                total += float(F.cross_entropy(F.linear(x[held], weight, bias), y[held], reduction="sum"))
        return total / len(rows)

    losses = {strength: left_out(strength) for strength in STRENGTHS}
    best = min(losses, key=lambda strength: losses[strength])
    weight, bias = regression(x, y, near, best)
    head = {"outer.weight": weight.float(), "outer.bias": bias.float()}
    return Member.fitted(lesson, head, lambda: added), losses[best]


@torch.no_grad()
def helps(lesson: Lesson, own: Pass, other: Member) -> bool:
    """Whether the dev loss is smaller with it. Not the dev score: the task's own state was chosen by that one."""
    lesson.backbone.model.eval()
    lesson.head.eval()
    alone, both = 0.0, 0.0
    for batch in lesson.batches(lesson.valid.rows, 64):
        each = [lesson.kind.logits(lesson.backbone, lesson.head, batch, own), lesson.asked(other, batch)]
        alone += float(lesson.kind.row_losses(each[0], batch).sum())
        both += float(lesson.kind.row_losses(in_company(each), batch).sum())
    return both < alone


@torch.no_grad()
def features(lesson: Lesson, rows: Sequence[Row], added: Pass) -> Tensor:
    """What a head would see of every row, dropout off. [rows, width] float64"""
    lesson.backbone.model.eval()
    found: dict[int, Tensor] = {}
    for batch in lesson.batches(rows, 64):
        states = lesson.kind.logits(lesson.backbone, nn.Identity(), batch, added)
        found |= zip(batch.numbers, states, strict=True)
    return torch.stack([found[i] for i in range(len(rows))]).double()


def known(lesson: Lesson, theirs: Remembered, like: Tensor) -> Linear:
    """The other task's head for the lesson's labels; 0 unless it knows all of them."""
    labels = lesson.kind.labels
    if not set(labels) <= set(theirs.labels):
        return like.new_zeros(len(labels), like.shape[1]), like.new_zeros(len(labels))
    rows = [theirs.labels.index(label) for label in labels]
    return theirs.head["outer.weight"][rows].to(like), theirs.head["outer.bias"][rows].to(like)


def folds(rows: Sequence[Row]) -> Tensor:
    """The fold of every row; rows of one text share theirs."""
    places: dict[tuple[int, ...], int] = {}
    return torch.tensor([places.setdefault(tuple(row.ids[:ALIKE]), len(places)) % FOLDS for row in rows])


def regression(x: Tensor, y: Tensor, near: Linear, strength: float) -> Linear:
    """For features as they come; they are standardised within."""
    mean, spread = x.mean(0), x.std(0).clamp(min=1e-6)
    z = (x - mean) / spread
    first = near[0] * spread
    weight, bias = first.clone().requires_grad_(), (near[1] + near[0] @ mean).requires_grad_()
    solver = torch.optim.LBFGS([weight, bias], max_iter=100, tolerance_grad=1e-6, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        solver.zero_grad()
        apart = (weight - first).square().sum()
        value = F.cross_entropy(F.linear(z, weight, bias), y) + apart / (2 * strength * len(y))
        value.backward()
        return value

    with torch.enable_grad():
        solver.step(loss)
    found = weight.detach() / spread
    return found, bias.detach() - found @ mean
