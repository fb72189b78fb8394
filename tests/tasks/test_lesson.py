"""A lesson: rows, head and batches of a task on one backbone, answers in their order, dev score and loss."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from small_lessons import small_lesson, small_task
from tiny import tiny_loaded

from tss.backbones.backbone import Pass
from tss.tasks.kind import ReadingConfig
from tss.tasks.lesson import Lesson, Split

KINDS = ("classification", "tagging", "generation")


@pytest.mark.parametrize("kind", KINDS)
def test_every_example_is_a_row(kind):
    task, lesson = small_task(kind), small_lesson(kind)
    for split in ("train", "valid", "test"):
        examples, encoded = getattr(task, split), getattr(lesson, split)
        assert len(encoded) == len(examples)
        assert encoded.gold == [example.target for example in examples]
        assert encoded.lengths() == [len(row.ids) for row in encoded.rows]


def test_the_seed_key_holds_name_and_seed_not_position():
    backbone = tiny_loaded("bart")
    one, same, other = (
        Lesson.of(small_task("classification", name=name), backbone, ReadingConfig(), seed)
        for name, seed in (("a", 0), ("a", 0), ("a", 1))
    )
    assert one.seed_key == "0/a"
    assert torch.equal(one.head.outer.weight, same.head.outer.weight)
    assert not torch.equal(one.head.outer.weight, other.head.outer.weight)


@pytest.mark.parametrize("kind", KINDS)
def test_answers_come_in_the_order_of_the_rows(kind):
    lesson = small_lesson(kind, count=14)
    with torch.no_grad():
        for p in lesson.head.parameters():
            p.copy_(torch.randn(p.shape))
    rows = lesson.train.rows
    together = lesson.answers(rows, Pass(), size=5)
    alone = [lesson.answers([row], Pass())[0] for row in rows]
    assert [a.value for a in together] == [a.value for a in alone]
    if kind == "classification":
        assert [a.confidence for a in together] == pytest.approx([a.confidence for a in alone], abs=1e-4)
    assert len({str((a.value, a.confidence)) for a in alone}) > 3


@pytest.mark.parametrize("kind", KINDS)
def test_develop_agrees_with_evaluate_and_loss(kind):
    lesson = small_lesson(kind)

    def forward(lesson, number, batch):
        logits = lesson.logits(batch, Pass())
        return logits, lesson.kind.loss(logits, batch)

    score, loss = lesson.develop(lesson.valid, list(lesson.batches(lesson.valid.rows, 4)), forward)
    whole = lesson.batch(lesson.valid.rows)
    assert loss == pytest.approx(lesson.loss(whole, Pass()).item(), rel=1e-4)
    if kind == "generation":
        assert score is None
    else:
        scores, answers = lesson.evaluate(lesson.valid, Pass())
        assert score == next(iter(scores.values()))
        assert len(answers) == len(lesson.valid)


def test_first_takes_rows_and_gold_together():
    lesson = small_lesson("classification")
    some = lesson.train.first(5)
    assert some.rows == lesson.train.rows[:5] and some.gold == lesson.train.gold[:5]
    assert lesson.train.first(500) is lesson.train
    assert [lesson.train.rows.index(row) for row in lesson.train.spread(5).rows] == [0, 3, 6, 9]
    assert lesson.train.spread(12) is lesson.train and len(lesson.train.spread(11)) == 6


def test_batches_cover_all_rows_once_in_a_fixed_order():
    lesson = small_lesson("classification", count=13)
    numbers = [batch.numbers for batch in lesson.batches(lesson.train.rows, 4)]
    assert sorted(n for group in numbers for n in group) == list(range(13))
    assert numbers == [batch.numbers for batch in lesson.batches(lesson.train.rows, 4)]
    assert list(lesson.batches([], 4)) == []


def test_padding_to_a_fixed_shape():
    lesson = small_lesson("tagging")
    batch = lesson.batch(lesson.train.rows, [3, 1], length=32)
    assert batch.ids.shape == batch.target.shape == (2, 32) and batch.numbers == (3, 1)


def test_balanced_losses_ask_more_for_rare_labels_and_answers_do_not_change():
    lesson = small_lesson("classification", count=12)
    labels = len(lesson.kind.labels)
    rows = [replace(row, target=[0 if i else 1]) for i, row in enumerate(lesson.train.rows)]  # one of label 1, no other
    lesson.train = Split(rows, lesson.train.gold)
    batch, added = lesson.batch(rows), Pass()
    plain, logits, before = lesson.row_losses(batch, added), lesson.logits(batch, added), lesson.answers(rows, added)
    lesson.balance(0.5)
    counts = torch.ones(labels) + torch.eye(labels)[0] * (len(rows) - 1) + torch.eye(labels)[1]
    lifted = logits.float() + 0.5 * (counts / counts.sum()).log()
    assert torch.allclose(lesson.loss(batch, added), F.cross_entropy(lifted, batch.target))
    assert torch.allclose(lesson.row_losses(batch, added), F.cross_entropy(lifted, batch.target, reduction="none"))
    assert lesson.row_losses(batch, added)[0] > plain[0] and (lesson.row_losses(batch, added)[1:] < plain[1:]).all()
    assert torch.equal(lesson.logits(batch, added), logits) and lesson.answers(rows, added) == before
    lesson.balance(0.0)
    assert torch.equal(lesson.row_losses(batch, added), plain)


@pytest.mark.parametrize("kind", ["tagging", "generation"])
def test_only_one_label_a_row_is_balanced(kind):
    lesson = small_lesson(kind)
    lesson.balance(1.0)
    assert lesson.lift is None
