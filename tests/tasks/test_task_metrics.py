"""Metrics against values worked out by hand, and defined numbers where there is nothing to score."""

from __future__ import annotations

import logging
import math
import random

import pytest

from tss.errors import TaskError
from tss.tasks.metrics import (
    bleu_score,
    classification_scores,
    parts,
    score,
    split_sentences,
    summary_scores,
    tagging_scores,
)

pytestmark = pytest.mark.filterwarnings("error")


def test_macro_f1_and_accuracy_by_hand():
    gold = ["a", "a", "a", "b"]
    predicted = ["a", "a", "b", "b"]
    # a: precision 1, recall 2/3, F 0.8; b: precision 1/2, recall 1, F 2/3
    result = classification_scores(predicted, gold, ["a", "b"])
    assert result == pytest.approx({"macro_f1": 100 * (0.8 + 2 / 3) / 2, "accuracy": 75})


def test_macro_f1_counts_the_classes_that_occur():
    assert classification_scores(["a", "a"], ["a", "a"], ["a", "b", "c"])["macro_f1"] == 100
    # c is predicted but never right: it counts as 0; a: precision 1, recall 1/2, F 2/3
    assert classification_scores(["a", "c"], ["a", "a"], ["a", "b", "c"])["macro_f1"] == pytest.approx(100 / 3)


def test_entity_f1_by_hand():
    gold = [["B-per", "I-per", "O", "B-loc"], ["O", "B-per"]]
    predicted = [["B-per", "O", "O", "B-loc"], ["B-loc", "B-per"]]
    # right: loc, per of the second; the first per ends too early; one loc too many: precision 2/4, recall 2/3
    expected = {"entity_f1": 100 * 4 / 7, "precision": 50, "recall": 200 / 3}
    assert tagging_scores(predicted, gold) == pytest.approx(expected)
    assert parts("tagging", "", predicted, gold) == [{"tp": 1, "fp": 1, "fn": 1}, {"tp": 1, "fp": 1, "fn": 0}]


def test_only_b_begins_an_entity():
    assert tagging_scores([["I-per", "O"]], [["B-per", "O"]])["entity_f1"] == 0
    assert tagging_scores([["I-per", "O"]], [["O", "O"]])["precision"] == 0
    assert parts("tagging", "", [["I-per", "I-per"]], [["O", "O"]]) == [{"tp": 0, "fp": 0, "fn": 0}]
    assert tagging_scores([["B-per", "B-per"]], [["B-per", "I-per"]])["entity_f1"] == 0


def test_a_right_answer_has_entity_f1_100():
    gold = [["B-x", "I-x", "B-x", "O", "B-y"], ["O"], ["B-y", "I-y"]]
    assert tagging_scores(gold, gold)["entity_f1"] == 100


def test_entity_parts_sum_to_the_score():
    draw = random.Random(0)
    tags = ["O", "B-x", "I-x", "B-y", "I-y"]
    gold, predicted = ([[draw.choice(tags) for _ in range(8)] for _ in range(40)] for _ in range(2))
    rows = parts("tagging", "", predicted, gold)
    tp, fp, fn = (sum(row[key] for row in rows) for key in ("tp", "fp", "fn"))
    assert tp > 0
    assert tagging_scores(predicted, gold)["entity_f1"] == pytest.approx(100 * 2 * tp / (2 * tp + fp + fn))


def test_rouge_by_hand():
    # words: 2 common, precision 2/3, recall 2/4, F 4/7; pairs of words: 1 common, 1/2, 1/3, F 2/5
    result = summary_scores(["the cat sat"], ["the cat ran away"])
    assert result == pytest.approx({"rouge1": 400 / 7, "rouge2": 40, "rougeL": 400 / 7})
    assert summary_scores(["Cats running"], ["cat runs"])["rouge1"] == 100  # stemming


def test_rouge_l_goes_by_sentences():
    gold = "The cat sat. The dog ran."
    swapped = "The dog ran. The cat sat."
    assert summary_scores([swapped], [gold])["rougeL"] == 100  # each sentence has its match, in whatever order
    assert summary_scores(["the dog ran the cat sat"], ["the cat sat the dog ran"])["rougeL"] < 100


def test_rouge_is_the_mean_of_its_parts():
    predicted, gold = ["the cat sat", "no"], ["the cat sat", "yes"]
    rows = parts("generation", "rouge1", predicted, gold)
    assert [row["rouge1"] for row in rows] == [100, 0]
    assert summary_scores(predicted, gold)["rouge1"] == 50


def test_bleu_by_hand():
    # 6 tokens, 5 right; 2-grams 3 of 5, 3-grams 2 of 4, 4-grams 1 of 3; equal length, no penalty
    expected = 100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25
    assert bleu_score(["a b c d x e"], ["a b c d y e"])["bleu"] == pytest.approx(expected)
    # the same n-grams all right, 5 tokens for 6: brevity penalty exp(1 - 6/5)
    assert bleu_score(["a b c d e"], ["a b c d e f"])["bleu"] == pytest.approx(100 * math.exp(1 - 6 / 5))
    assert bleu_score(["A b c d"], ["a b c d"])["bleu"] < 100  # case counts


def test_bleu_parts_sum_to_the_corpus_score():
    from sacrebleu.metrics import BLEU

    predicted = ["the hotel is in the north .", "yes , it is", ""]
    gold = ["the hotel is in the south .", "yes it is", "no"]
    rows = parts("generation", "bleu", predicted, gold)
    summed = {key: sum(row[key] for row in rows) for key in ("sys_len", "ref_len")}
    grams = {key: [sum(row[key][n] for row in rows) for n in range(4)] for key in ("correct", "total")}
    again = BLEU.compute_bleu(**grams, **summed, smooth_method="exp")
    assert again.score == pytest.approx(bleu_score(predicted, gold)["bleu"])


def test_tokenised_text_brings_no_warning(caplog):
    with caplog.at_level(logging.WARNING):
        assert bleu_score(["it is a hotel ."] * 150, ["it is a hotel ."] * 150)["bleu"] == pytest.approx(100)
    assert not caplog.records


@pytest.mark.parametrize(
    ("kind", "metric", "predicted", "gold"),
    [
        ("classification", "", [], []),
        ("tagging", "", [], []),
        ("tagging", "", [["O"]], [["O"]]),
        ("tagging", "", [["O"]], [["B-x"]]),
        ("tagging", "", [["B-x"]], [["O"]]),
        ("generation", "", [], []),
        ("generation", "", [""], ["a"]),
        ("generation", "", [""], [""]),
        ("generation", "bleu", [], []),
        ("generation", "bleu", [""], ["a"]),
        ("generation", "bleu", [""], [""]),
        ("generation", "bleu", ["x"], ["a b c d e"]),
    ],
)
def test_nothing_right_or_nothing_to_score_is_zero(kind, metric, predicted, gold):
    assert set(score(kind, metric, predicted, gold).values()) == {0.0}
    assert len(parts(kind, metric, predicted, gold)) == len(gold)


def test_one_class_is_defined():
    assert score("classification", "", ["a"], ["a"], ["a"]) == {"macro_f1": 100, "accuracy": 100}


def test_the_main_metric_comes_first():
    assert list(score("classification", "accuracy", ["a"], ["a"])) == ["accuracy", "macro_f1"]
    assert list(score("tagging", "", [["B-x"]], [["B-x"]])) == ["entity_f1", "precision", "recall"]
    assert list(score("generation", "rougeL", ["a"], ["a"])) == ["rougeL", "rouge1", "rouge2"]
    assert list(score("generation", "bleu", ["a"], ["a"])) == ["bleu"]


def test_misuse_is_refused():
    with pytest.raises(TaskError, match="1 predictions for 2 examples"):
        score("classification", "", ["a"], ["a", "b"])
    with pytest.raises(TaskError, match="sentence 1 has 2 tags but 1 were predicted"):
        score("tagging", "", [["O"]], [["O", "O"]])
    with pytest.raises(TaskError, match="prediction 'z' is not among"):
        score("classification", "", ["z"], ["a"], ["a", "b"])
    with pytest.raises(TaskError, match="tagging has no metric 'bleu'"):
        score("tagging", "bleu", [], [])


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", []),
        (" \n ", []),
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Dr. Who met J. Smith at 3.5 p.m. on Elm St. today.", ["Dr. Who met J. Smith at 3.5 p.m. on Elm St. today."]),
        ("See e.g. Figure 2. Then go.", ["See e.g. Figure 2.", "Then go."]),
        ("It cost 3.50 at x.com. Fine.", ["It cost 3.50 at x.com.", "Fine."]),
        ('He said "Stop." Then left.', ['He said "Stop."', "Then left."]),
        ("line one\nline two", ["line one", "line two"]),
        ("i love it . the price is 3 . ok ?", ["i love it .", "the price is 3 .", "ok ?"]),
        ("I went home. it was late.", ["I went home. it was late."]),
        ("i went home. it was late.", ["i went home.", "it was late."]),
        ("So was I. Then we left.", ["So was I.", "Then we left."]),
        ("Wait... What?! Yes.", ["Wait...", "What?!", "Yes."]),
        ("これは文。次の文！", ["これは文。", "次の文！"]),
        ("...", ["..."]),
    ],
)
def test_sentences(text, sentences):
    assert split_sentences(text) == sentences
