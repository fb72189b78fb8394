"""Who should answer beside a new task: stored tasks that know its labels, if its dev examples say that it helps.

    P(y | x) = P_own(y | x) / 2 + mean over its company of P_i(y | x) / 2,  each with its own sub-network and head

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
    knows = set(lesson.kind.labels) <= set(stored.labels)
    return asked_for(lesson, lesson.kind.labels, stored, added) if knows else None


def asked_for(lesson: Lesson, labels: Sequence[str], stored: Remembered, added: Pass) -> Member:
    """A stored task as one that is asked for some of the labels it knows, with the lesson's inputs."""
    kind = lesson.kind
    head = type(kind)(stored.labels, kind.lengths, kind.metric, kind.reading).head(lesson.backbone.width, "")
    head.load_state_dict(stored.head)
    return Member.of(labels, head.to(lesson.backbone.device).eval(), lambda: added, stored.labels)


@torch.no_grad()
def invited(lesson: Lesson, own: Pass, guests: Sequence[Member], most: int) -> list[int]:
    """Numbers of the `most` guests with the smallest dev loss.

    None if with them the dev loss is not smaller, or the dev score is lower: doubt spread over the labels makes the
    loss of a tagger smaller while it finds less.
    """
    lesson.backbone.model.eval()
    lesson.head.eval()
    split = lesson.valid.first(ASKED)
    batches = list(lesson.batches(split.rows, 64))

    def judged(each: Sequence[Tensor]) -> tuple[float, float]:
        score, loss = lesson.develop(split, batches, lambda _, i, batch: (each[i], lesson.kind.loss(each[i], batch)))
        return loss, -(score or 0.0)

    alone = [lesson.kind.logits(lesson.backbone, lesson.head, batch, own) for batch in batches]
    theirs = [[lesson.asked(member, batch) for batch in batches] for member in guests]
    nearest = sorted(range(len(guests)), key=lambda i: judged(theirs[i])[0])[:most]
    if not nearest:
        return []
    together = [in_company(each) for each in zip(alone, *(theirs[i] for i in nearest), strict=True)]
    (loss, missed), (loss_alone, missed_alone) = judged(together), judged(alone)
    return nearest if loss < loss_alone and missed <= missed_alone else []
