"""Tasks from lists: what is accepted, what is refused and where, what is only remarked upon."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tss.errors import TaskError
from tss.tasks.example import repair_tags
from tss.tasks.task import Example, Lengths, Task, as_input

MOOD = [("good day", "good"), ("bad day", "bad"), ("fine day", "good"), ("sad day", "bad")]


def classify(train, *more, **options):
    return Task.from_lists("mood", "classification", train, *more, **options)


def tag(train, *more, **options):
    return Task.from_lists("names", "tagging", train, *more, **options)


def test_classification_from_lists():
    task = classify(MOOD, MOOD[:1], MOOD[1:2])
    assert task.labels == ("bad", "good")
    assert task.train[0] == Example(("good day",), "good")
    assert (task.metric, task.pair, len(task.valid), len(task.test)) == ("macro_f1", False, 1, 1)


def test_rows_may_be_dicts_pairs_and_numbers_as_labels():
    pairs = classify([(("nice screen", "screen"), "pos"), {"text": "a", "aspect": "b", "label": "neg"}], MOOD_PAIR)
    assert pairs.train[1] == Example(("a", "b"), "neg")
    assert pairs.pair is True
    assert classify([("a", 0), ("b", 1)], [("c", 1)]).labels == ("0", "1")


MOOD_PAIR = [{"text": "c", "pair": "d", "label": "pos"}]


def test_named_labels_keep_their_order():
    assert classify(MOOD, labels=["good", "bad", "so-so"]).labels == ("good", "bad", "so-so")


def test_tagging_labels_cover_every_valid_sequence():
    task = tag([(["Ann", "sings"], ["B-per", "O"]), {"tokens": ["in", "Rome"], "tags": ["O", "B-loc"]}])
    assert task.labels == ("O", "B-loc", "B-per", "I-loc", "I-per")
    assert tag([("Ann sings", "B-per O")], labels=["B-loc", "B-per"]).labels == task.labels


def test_generation_from_lists():
    rows = [("act", "reply"), {"source": "act 2", "target": "reply 2"}]
    task = Task.from_lists("talk", "generation", rows, metric="bleu", lengths={"max_target": 20})
    assert (task.labels, task.metric, task.lengths) == ((), "bleu", Lengths(max_target=20))
    assert Task.from_lists("talk", "generation", rows).metric == "rouge1"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Task.from_lists("x", "clasification", MOOD), "did you mean 'classification'"),
        (lambda: classify([]), "no training examples"),
        (lambda: classify([("a", "")]), "train[0]: the label is empty"),
        (lambda: classify([("a", "x ")]), "begins or ends with a blank"),
        (lambda: classify([("a", 1.5)]), "train[0]: expected a label"),
        (lambda: classify([("a", None)]), "train[0]: expected a label"),
        (lambda: classify([("a", True)]), "train[0]: expected a label"),
        (lambda: classify([(None, "x")]), "train[0]: expected a text or (text, pair)"),
        (lambda: classify([(("a", "b", "c"), "x")]), "not 3 fields"),
        (lambda: classify(["just text"]), "train[0]: expected (text, label)"),
        (lambda: classify([{"text": "a"}]), "no column 'label'"),
        (lambda: classify([{"text": "a", "pair": "b", "aspect": "c", "label": "d"}]), "both 'pair' and 'aspect'"),
        (lambda: classify([*MOOD, (("a", "b"), "good")]), "train[4]: this row has two fields"),
        (lambda: classify([("a\ud800", "x")]), "train[0]: the text is broken at character 2"),
        (lambda: classify([("a" * 1_000_001, "x")]), "1,000,001 characters"),
        (lambda: classify(MOOD, labels="good"), "must be a list"),
        (lambda: classify(MOOD, labels=["good", "good", "bad"]), "listed twice: 'good'"),
        (lambda: classify(MOOD, metric="bleu"), "classification has no metric 'bleu'"),
        (lambda: classify(MOOD, lengths={"max_inptu": 3}), "did you mean 'max_input'"),
        (lambda: classify(MOOD, lengths={"max_input": 0}), "at least 1"),
        (lambda: tag([(["a"], ["O", "O"])]), "train[0]: 1 words but 2 tags"),
        (lambda: tag([(["a", ""], ["O", "O"])]), "word 2 is empty"),
        (lambda: tag([(["a", "\u00a0"], ["O", "O"])]), "word 2 is empty"),
        (lambda: tag([([], [])]), "no words"),
        (lambda: tag([(["a"], ["PER"])]), "tag 1 is 'PER'"),
        (lambda: tag([(["a"], ["B-"])]), "tag 1 is 'B-'"),
        (lambda: tag([(["a", "b"], ["O", "I-x"])]), "tag 2 is 'I-x' but continues no x"),
        (lambda: tag([(["a", "b"], ["B-y", "I-x"])]), "tag 2 is 'I-x' but continues no x"),
        (lambda: tag([(["a"], [3])]), "expected a list of tags"),
        (lambda: tag([(["a"], ["O"])], labels=["PER"]), "'PER' is no tag"),
        (lambda: Task.from_lists("x", "generation", [("a", "  ")]), "the text to produce is empty"),
        (lambda: Task("x", "generation", labels=("a",)), "has no labels"),
        (lambda: Task("x", "classification", train=(Example(("a",), "x"), Example(("a", "b"), "x"))), "train[1]"),
        (lambda: Task("x", "classification", test=(Example(("a",), "x"),)), "no training examples"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_place(make, message):
    with pytest.raises(TaskError) as error:
        make()
    assert message in str(error.value)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize("split", ["valid", "test"])
def test_a_label_never_trained_is_named_with_its_row(split):
    message = rf"{split}\[1\]: label 'ugly' is not among the task's labels \('bad', 'good'\)"
    with pytest.raises(TaskError, match=message):
        classify(MOOD, **{split: [MOOD[0], ("x", "ugly")]})
    with pytest.raises(TaskError, match=rf"{split}\[0\]: tag 'B-loc' is not among"):
        tag([("Ann", "B-per")], **{split: [("Rome", "B-loc")]})


def test_tags_are_repaired_when_asked():
    task = tag([(["a", "b", "c"], ["I-x", "I-x", "I-y"])], repair_tags=True)
    assert task.train[0].target == ("B-x", "I-x", "B-y")


@settings(deadline=None)
@given(st.lists(st.sampled_from(["O", "B-x", "I-x", "B-y", "I-y"]), min_size=1, max_size=12))
def test_repaired_tags_are_always_accepted_and_then_stay(tags):
    repaired = repair_tags(tuple(tags))
    assert repair_tags(repaired) == repaired
    assert [t[1:] for t in repaired] == [t[1:] for t in tags]
    Task("x", "tagging", train=(Example(("w",) * len(tags), repaired),))


def test_remarks_are_kept_and_nothing_is_printed(capsys):
    task = classify([("a", "x"), ("a", "x"), ("", "x")], test=[("a", "x")])
    assert list(task.warnings) == [
        "there is one class only ('x'): every answer will be the same",
        "1 training example repeats an earlier one",
        "1 training example has an empty text",
        "1 test example is among the training examples",
        "no validation examples: 1 of 3 training examples are held out for it",
    ]
    assert "no training example for label 'z'" in classify(MOOD, MOOD[:1], labels=["bad", "good", "z"]).warnings
    assert "no word has a tag other than O" in tag([("a b", "O O")]).warnings
    assert capsys.readouterr() == ("", "")


def test_a_tenth_is_held_out_without_losing_a_class():
    rows = [(f"text {i}", "rare" if i == 7 else "often") for i in range(50)]
    task = classify(rows)
    assert (len(task.train), len(task.valid)) == (45, 5)
    assert set(task.train) | set(task.valid) == {Example((text,), label) for text, label in rows}
    assert "rare" in {example.target for example in task.train}
    assert classify(rows) == task


def test_one_example_serves_as_both():
    task = classify([("a", "x")])
    assert task.train == task.valid == (Example(("a",), "x"),)
    assert any("serve as both" in warning for warning in task.warnings)
    assert "there is one training example only" in task.warnings
    assert len(classify([("a", "x"), ("b", "y")]).train) == 2  # the last of a class is never held out


def test_special_token_strings_and_control_characters_are_plain_text():
    text = "</s> <mask> \0 \x1b [SEP] 😀"
    assert classify([(text, "x"), ("b", "y")]).train[0].input == (text,)


@pytest.mark.parametrize(
    ("kind", "value", "pair", "result"),
    [
        ("classification", "a text", None, ("a text",)),
        ("classification", ("a", "b"), None, ("a", "b")),
        ("classification", ["a", "b"], True, ("a", "b")),
        ("classification", {"text": "a", "aspect": "b"}, True, ("a", "b")),
        ("classification", Example(("a",), "x"), False, ("a",)),
        ("tagging", "Ann  sings\n", None, ("Ann", "sings")),
        ("tagging", ["New York", "!"], None, ("New York", "!")),
        ("tagging", {"tokens": ["a"]}, None, ("a",)),
        ("generation", "a source", None, ("a source",)),
        ("generation", {"source": "a"}, False, ("a",)),
    ],
)
def test_inputs_as_users_give_them(kind, value, pair, result):
    assert as_input(kind, value, pair) == result


@pytest.mark.parametrize(
    ("kind", "value", "pair", "message"),
    [
        ("classification", "a", True, "expected two fields, (text, pair), not 1 field"),
        ("classification", ("a", "b"), False, "expected one text, not 2 fields"),
        ("classification", 3, None, "not int 3"),
        ("classification", b"abc", None, "not bytes"),
        ("classification", {"txt": "a"}, None, "no 'text'"),
        ("classification", ("a", None), None, "which is not text"),
        ("classification", (), None, "not 0 fields"),
        ("classification", "\udcff", None, "broken"),
        ("tagging", "  ", None, "no words"),
        ("tagging", [["a"]], None, "which is not text"),
        ("generation", ("a", "b"), None, "expected a source text"),
        ("generation", None, None, "expected a source text"),
    ],
)
def test_inputs_that_cannot_be_used(kind, value, pair, message):
    with pytest.raises(TaskError) as error:
        as_input(kind, value, pair)
    assert message in str(error.value)


def test_the_tasks_own_input_knows_name_and_fields():
    task = classify([(("a", "b"), "x"), (("c", "d"), "y")])
    assert task.input(("a", "b")) == ("a", "b")
    with pytest.raises(TaskError, match="task 'mood': expected two fields"):
        task.input("a")
    described = Task("mood", "classification", labels=("x", "y"))  # no examples: either form may be meant
    assert described.input("a") == ("a",)


def test_fingerprint_is_fixed_and_sees_every_part():
    task = classify(MOOD, [("ü", "good")], [("d", "bad")])
    assert task.fingerprint() == "2393868e37f1cb92395b5611a7db212073291bc0ef4cc98f83b4368e22cfc625"
    assert task.fingerprint() == replace(task, name="other", family="f", metric="accuracy").fingerprint()
    others = [
        replace(task, labels=("good", "bad")),
        replace(task, lengths=Lengths(max_input=64)),
        replace(task, train=task.train[::-1]),
        replace(task, train=task.train + task.valid, valid=()),
        replace(task, test=task.valid),
        Task("t", "generation", train=task.train, valid=task.valid, test=task.test),
    ]
    assert len({one.fingerprint() for one in [task, *others]}) == 7


def test_no_heavy_import():
    heavy = "torch transformers numpy sklearn seqeval rouge_score sacrebleu datasets"
    modules = "sys, tss.tasks.task, tss.tasks.metrics, tss.data.folder, tss.data.hub"
    code = f"import {modules}; print([m for m in {heavy.split()} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
