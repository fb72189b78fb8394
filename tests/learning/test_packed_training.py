"""The option `packed`: the same training but for rounding, and for those who cannot the same training."""

from __future__ import annotations

import pytest
import torch
from small_lessons import small_lesson, small_method
from tiny import tiny_loaded

from tss.learning.compiled import plain
from tss.learning.loop import Training, train
from tss.learning.parallel import ALONE, Ranks
from tss.learning.schedule import LearningConfig

KINDS = ["classification", "tagging", "generation"]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def lesson_of(kind: str, family: str = "bart", count: int = 26, device: str = "cpu", dropout: bool = False):
    backbone = tiny_loaded(family)
    backbone.model.to(device)
    for module in backbone.model.modules() if not dropout else ():  # packed rows drop others
        for key in ("dropout", "attention_dropout", "activation_dropout"):
            if isinstance(getattr(module, key, None), float):
                setattr(module, key, 0.0)
    return small_lesson(kind, count=count, backbone=backbone)


def learnt(kind: str, name: str = "tss", lesson=None, **options):
    lesson = lesson or lesson_of(kind)
    method = small_method(lesson, name)
    method.begin(lesson, None)
    config = LearningConfig(**{"max_steps": 8, "min_steps": 8, "eval_steps": 4, "batch_size": 8, **options})
    return train([lesson], method, config), [p.detach().clone() for g in method.groups() for p in g.parameters]


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_and_gradients_of_a_batch(kind):
    lesson = lesson_of(kind)
    method = small_method(lesson, "supsup", adapter_std=0.5)
    method.begin(lesson, None)
    table, loss = lesson.table(lesson.train), plain(method)
    trained = [method.scores, *lesson.head.parameters()]
    found = []
    for packed in (False, True):
        value = loss(lesson, table.batch(range(20), packed=packed))
        found.append([value.detach(), *torch.autograd.grad(value, trained)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_packed_training_is_the_plain_one_but_for_rounding(kind):
    (outcome, scores), (packed, moved) = learnt(kind), learnt(kind, packed=True)
    assert [entry[1] for entry in packed.curve] == pytest.approx([entry[1] for entry in outcome.curve], rel=1e-4)
    assert not any(torch.equal(a, b) for a, b in zip(scores, moved, strict=True))  # so it was packed
    torch.testing.assert_close(moved, scores, rtol=1e-2, atol=1e-3)


def test_it_gives_the_same_numbers_every_time():
    first, second = (learnt("generation", packed=True, lesson=lesson_of("generation", dropout=True)) for _ in range(2))
    assert first[0].curve == second[0].curve
    assert all(torch.equal(a, b) for a, b in zip(first[1], second[1], strict=True))


@pytest.mark.parametrize(("name", "family"), [("one-adapter", "bart"), ("tss", "bert")])
def test_who_cannot_ignores_it(name, family):
    """A method whose loss is not a mean over rows, and a backbone that cannot pack: not one bit is another."""
    found = [
        learnt("classification", name, lesson_of("classification", family), packed=packed) for packed in (False, True)
    ]
    assert found[0][0].curve == found[1][0].curve
    assert all(torch.equal(a, b) for a, b in zip(found[0][1], found[1][1], strict=True))


def test_batches_that_are_cut_or_shared_are_not_packed():
    lesson = lesson_of("classification")
    method = small_method(lesson, "tss")
    method.begin(lesson, None)

    def packing(ranks: Ranks = ALONE, **options) -> bool:
        training = Training([lesson], method, LearningConfig(batch_size=8, **options), None, None, ranks)
        return bool(next(training._stream(0))[1].packing)

    assert packing(packed=True)
    assert not packing()
    assert not packing(packed=True, accumulation=2)
    assert not packing(Ranks(0, 2), packed=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_packed_batch_for_which_memory_runs_out_is_cut(kind):
    lesson = lesson_of(kind)
    found = {}
    for packed in (False, True):
        method = small_method(lesson, "supsup", adapter_std=0.5)
        method.begin(lesson, None)
        training = Training([lesson], method, LearningConfig(batch_size=8, packed=packed), None, None)
        lesson.backbone.model.eval()
        _, batch = next(training._stream(0))
        training.pieces = 2
        found[packed] = [training._gradients(lesson, batch), *(p.grad.clone() for p in training.parameters)]
    for one, other in zip(found[False], found[True], strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classification", "generation"])
def test_a_packed_training_can_be_compiled(kind):
    outcome, compiled = learnt(kind)[0], learnt(kind, packed=True, compile=True)[0]
    assert [entry[1] for entry in compiled.curve] == pytest.approx([entry[1] for entry in outcome.curve], rel=1e-4)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("kind", KINDS)
def test_a_packed_training_is_recorded_and_repeats_itself(kind):
    found = []
    for packed in (True, True, False):
        lesson = lesson_of(kind, count=40, device="cuda")
        found.append(learnt(kind, lesson=lesson, packed=packed, max_steps=30, min_steps=30, eval_steps=10))
        assert found[-1][0].troubles == []
    assert found[0][0].curve == found[1][0].curve
    assert all(torch.equal(a, b) for a, b in zip(found[0][1], found[1][1], strict=True))
    losses = [[entry[1] for entry in outcome.curve] for outcome, _ in found]
    assert losses[0] == pytest.approx(losses[2], rel=1e-3, abs=1e-4)
