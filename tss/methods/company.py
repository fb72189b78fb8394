"""Who should answer beside a new task: stored tasks that know its labels, if that makes its dev loss smaller.

    P(y | x) = mean over the task and its company of P_i(y | x),  each with its own sub-network and head

Relatives have seen other texts with the same labels, and their mistakes differ. Nothing is trained for it and nothing
that is stored changes. Each one asked costs a forward pass.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tss.backbones.backbone import Pass
from tss.methods.method import Remembered
from tss.tasks.lesson import Lesson, Member, in_company

ASKED = 200  # dev rows that decide


def guest(lesson: Lesson, stored: Remembered, added: Pass) -> Member | None:
    """A stored task as one that could be asked; None if it does not know all of the lesson's labels."""
    kind = lesson.kind
    if not set(kind.labels) <= set(stored.labels):
        return None
    head = type(kind)(stored.labels, kind.lengths, kind.metric, kind.reading).head(lesson.backbone.width, "")
    head.load_state_dict(stored.head)
    return Member.of(kind.labels, head.to(lesson.backbone.device).eval(), lambda: added, stored.labels)


@torch.no_grad()
def invited(lesson: Lesson, own: Pass, guests: Sequence[Member], most: int) -> list[int]:
    """Numbers of the `most` guests with the smallest dev loss; none if the mean with them is no better than alone."""
    lesson.backbone.model.eval()
    lesson.head.eval()
    batches = list(lesson.batches(lesson.valid.first(ASKED).rows, 64))
    shares = [lesson.kind.weight(batch) for batch in batches]

    def loss(each: Sequence[Tensor]) -> float:
        parts = zip(each, batches, shares, strict=True)
        return sum(float(lesson.kind.loss(logits, batch)) * share for logits, batch, share in parts) / sum(shares)

    alone = [lesson.kind.logits(lesson.backbone, lesson.head, batch, own) for batch in batches]
    theirs = [[lesson.asked(member, batch) for batch in batches] for member in guests]
    nearest = sorted(range(len(guests)), key=lambda i: loss(theirs[i]))[:most]
    together = [in_company(each) for each in zip(alone, *(theirs[i] for i in nearest), strict=True)]
    return nearest if nearest and loss(together) < loss(alone) else []
