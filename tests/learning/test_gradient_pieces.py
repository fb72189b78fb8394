"""The gradient of a batch: whatever pieces it is computed in, clipped, then masked."""

from __future__ import annotations

import pytest
import torch
from small_lessons import small_lesson, small_method

from tss.learning.loop import Training
from tss.learning.schedule import LearningConfig


@pytest.mark.parametrize("kind", ["classification", "tagging", "generation"])
def test_accumulation_gives_the_gradient_of_the_whole_batch(kind):
    gradients = {}
    for pieces in (1, 3, 5, 50):
        lesson = small_lesson(kind, count=13)
        method = small_method(lesson, "one-adapter")
        method.begin(lesson, None)
        config = LearningConfig(batch_size=13, accumulation=pieces)
        training = Training([lesson], method, config, None, None)
        lesson.backbone.model.eval()  # no dropout: pieces draw it differently
        loss = training._gradients(lesson, lesson.batch(lesson.train.rows))
        gradients[pieces] = [loss, *(p.grad.clone() for p in training.parameters)]
    for pieces in (3, 5, 50):
        for one, many in zip(gradients[1], gradients[pieces], strict=True):
            torch.testing.assert_close(many, one, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", ["classification", "tagging", "generation"])
def test_pieces_of_like_length_give_the_gradient_of_the_whole_batch(kind, monkeypatch: pytest.MonkeyPatch):
    """On a CPU a batch of mixed lengths is computed in pieces: less padding, the same numbers."""
    found = {}
    for by_row in (True, False):
        lesson = small_lesson(kind, count=13)
        method = small_method(lesson, "supsup")
        method.begin(lesson, None)
        monkeypatch.setattr(type(method), "by_row", by_row)
        training = Training([lesson], method, LearningConfig(batch_size=13), None, None)
        lesson.backbone.model.eval()
        whole = lesson.batch(lesson.train.rows)
        monkeypatch.setattr("tss.tasks.batches.PASS_COST", 1)
        assert (len(training._cut(lesson, whole)) > 1) is by_row
        loss = training._gradients(lesson, whole)
        found[by_row] = [loss, *(p.grad.clone() for p in training.parameters)]
    for pieces, one in zip(found[True], found[False], strict=True):
        torch.testing.assert_close(pieces, one, rtol=1e-3, atol=1e-5)


def test_the_unmasked_gradient_is_clipped_then_masked():
    """In `grad` mode the mask comes after the clip: the clip factor does not depend on it."""
    lesson = small_lesson("classification")
    grads = {}
    for importance in (0.0, 0.75):
        method = small_method(lesson, softmask_apply="sgd", score_lr=1.0)
        method.importance = torch.full((method.bank.size,), importance)
        method.begin(lesson, None)
        training = Training([lesson], method, LearningConfig(clip=1e-3, batch_size=12), None, None)
        torch.manual_seed(0)
        training._step(lesson, lesson.batch(lesson.train.rows))
        grads[importance] = [p.grad.clone() for p in training.parameters]
    whole = torch.cat([g.flatten() for g in grads[0.0]]).norm()
    torch.testing.assert_close(whole, torch.tensor(1e-3), rtol=1e-4, atol=1e-9)
    torch.testing.assert_close(grads[0.75][0], 0.25 * grads[0.0][0])
    torch.testing.assert_close(grads[0.75][1], grads[0.0][1])  # heads are not masked
