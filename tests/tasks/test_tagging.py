"""Tagging: one label a word, at its first sub-word, on every family."""

from __future__ import annotations

import pytest
import torch
from small_lessons import small_lesson
from tiny import ENCODER_DECODERS, FAMILIES, tiny_loaded

from tss.backbones.backbone import Pass
from tss.tasks.batches import IGNORED, Batch
from tss.tasks.kind import Answer, ReadingConfig
from tss.tasks.tagging import Tagging
from tss.tasks.task import Lengths


def tagging(labels: tuple[str, ...], **lengths) -> Tagging:
    return Tagging(labels, Lengths(**lengths), "", ReadingConfig())


@pytest.mark.parametrize("family", FAMILIES)
def test_as_many_labels_as_words(family):
    lesson = small_lesson("tagging", family)
    for row, gold in zip(lesson.train.rows, lesson.train.gold, strict=True):
        labels = [label for label in row.target if label != IGNORED]
        assert len(labels) == len(gold) == len(row.places) and not row.cut
        assert [lesson.kind.labels[label] for label in labels] == list(gold)
        assert [row.target[place] for place in row.places] == labels


@pytest.mark.parametrize("family", FAMILIES)
def test_labels_stand_at_first_sub_words(family):
    backbone = tiny_loaded(family)
    made = tagging(("O", "B-PER"), max_input=40)
    words = ("John", "metropolitan", "</s>", "bank")
    row = made.row(backbone, words, ["B-PER", "O", "O", "O"])
    spelt = [backbone.text.word(word) for word in words]
    assert row.ids == [*backbone.text.opening, *sum(spelt, []), *backbone.text.closing]
    for place, pieces in zip(row.places, spelt, strict=True):
        assert row.ids[place : place + len(pieces)] == pieces


@pytest.mark.parametrize("family", FAMILIES)
def test_a_long_sentence_keeps_whole_words_and_says_so(family):
    backbone = tiny_loaded(family)
    made = tagging(("O", "B-PER"), max_input=16)
    words = ("John", "met", "Anna", "at", "the", "bank") * 5
    row = made.row(backbone, words, ["O"] * len(words))
    assert row.cut and len(row.ids) <= 16
    kept = len(row.places)
    assert 0 < kept < len(words)
    assert sum(label != IGNORED for label in row.target) == kept
    whole = [*backbone.text.opening, *sum((backbone.text.word(w) for w in words[:kept]), []), *backbone.text.closing]
    assert row.ids == whole
    assert len(whole) + len(backbone.text.word(words[kept])) > 16


def test_a_single_word_that_does_not_fit_is_cut_and_flagged():
    backbone = tiny_loaded("bart")
    made = tagging(("O", "B-PER"), max_input=10)
    row = made.row(backbone, ("extraordinarily" * 3,), ["O"])
    assert row.cut and len(row.ids) == 10 and len(row.places) == 1
    assert not made.row(backbone, ("met",), ["O"]).cut


@pytest.mark.parametrize("family", FAMILIES)
def test_decoding_gold_labels_gives_full_marks(family):
    """Logits that say the gold labels, read at the first sub-words, score 100."""
    lesson = small_lesson("tagging", family)
    answers: list[Answer | None] = [None] * len(lesson.train)
    for batch in lesson.batches(lesson.train.rows, 5):
        logits = 9.0 * torch.nn.functional.one_hot(batch.target.clamp(min=0), len(lesson.kind.labels)).float()
        rows = [lesson.train.rows[i] for i in batch.numbers]
        for number, answer in zip(batch.numbers, lesson.kind.read(logits, rows), strict=True):
            answers[number] = answer
    predicted = [answer.value for answer in answers]
    assert predicted == [list(gold) for gold in lesson.train.gold]
    assert next(iter(lesson.kind.score(predicted, lesson.train.gold).values())) == 100.0
    predicted[0] = ["O"] * len(predicted[0])
    assert next(iter(lesson.kind.score(predicted, lesson.train.gold).values())) < 100.0


def test_words_that_did_not_fit_count_as_outside():
    made = tagging(("O", "B-PER", "I-PER"))
    gold = [["B-PER", "I-PER", "O", "B-PER"]]
    full, half = made.score(gold, gold), made.score([["B-PER", "I-PER"]], gold)
    assert next(iter(full.values())) == 100.0
    assert next(iter(half.values())) == pytest.approx(100 * 2 / 3)
    told = made.told(Answer(["B-PER"], [0.9], cut=True), ("John", "met"))
    assert told["answer"] == ["B-PER", "O"] and told["confidence"] == [0.9, 0.0]
    assert told["words"] == ["John", "met"] and told["truncated"]


@pytest.mark.parametrize("family", ["bart", "t5", "bert", "gpt2"])
def test_shift_reads_the_position_fed_with_the_word(family):
    """Only where the decoder is fed the input shifted right; others are fed the word itself anyway."""
    backbone = tiny_loaded(family)
    plain, shifted = (small_lesson("tagging", backbone=backbone, ner_shift=shift) for shift in (0, 1))
    batch = plain.batch(plain.train.rows)
    with torch.no_grad():
        states = backbone.states(batch.ids, batch.mask, Pass())
        at, moved = plain.logits(batch, Pass()), shifted.logits(batch, Pass())
        torch.testing.assert_close(at, plain.head(states))
        if family in ENCODER_DECODERS:
            torch.testing.assert_close(moved[:, :-1], at[:, 1:])
        else:
            torch.testing.assert_close(moved, at)


def test_tagging_loss_is_a_mean_over_words_then_sentences():
    made = tagging(("O", "B-PER"))
    target = torch.tensor([[0, IGNORED, 1], [1, IGNORED, IGNORED]])
    logits = torch.randn(2, 3, 2)
    each = -logits.log_softmax(-1)
    expected = torch.stack([(each[0, 0, 0] + each[0, 2, 1]) / 2, each[1, 0, 1]])
    batch = Batch(torch.zeros(2, 3, dtype=torch.long), torch.ones(2, 3), target, (0, 1))
    torch.testing.assert_close(made.row_losses(logits, batch), expected)
    torch.testing.assert_close(made.loss(logits, batch), expected.mean())
