"""LAMOL: its sample formats, on a decoder as published and on an encoder-decoder; pseudo-examples, how many, which."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from shared_checks import open_learner
from small_lessons import small_method, small_task
from tiny import tiny_loaded, tiny_path
from toy_tasks import toy

from tss import Task
from tss.errors import BackboneError, ConfigError, TaskError
from tss.learning.loop import train
from tss.learning.schedule import LearningConfig
from tss.methods.lamol import Lamol, covered, shares
from tss.methods.lamol_forms import ANSWER, GENERATE, generation_row, mark, parse, places
from tss.tasks.batches import Batch
from tss.tasks.kind import ReadingConfig
from tss.tasks.lesson import Lesson
from tss.tasks.metrics import NO_ANSWER

REVIEW = Task.from_lists("review", "classification", [(("the film", "sound"), "good"), (("a table", "bank"), "bad")])
REPLY = Task.from_lists("reply", "generation", [("book a table", "for two"), ("a train", "good day")], metric="bleu")


def lesson_of(task: Task, family: str = "gpt2", backbone=None) -> Lesson:
    return Lesson.of(task, backbone or tiny_loaded(family), ReadingConfig(), 0, Lamol.kinds)


def begun(lesson: Lesson, **options) -> Lamol:
    method = small_method(lesson, "lamol", **options)
    method.begin(lesson, train)
    return method


def trained_on(method: Lamol, lesson: Lesson) -> Batch:
    """All training rows as one batch, as the loop makes it."""
    (mixed,) = method.lessons(lesson)
    return mixed.table(mixed.train).batch(range(len(mixed.train)))


def test_a_decoder_has_the_published_sequences():
    for task, context, question, answer in (
        (REVIEW, "the film", " sound bad, good?", "good"),
        (REPLY, "book a table", " What is the reply?", "for two"),
    ):
        lesson = lesson_of(task)
        text, row = lesson.backbone.text, lesson.train.rows[0]
        asked = [*text.tokens(context), *text.tokens(question), *text.tokens("__ans__")]
        assert row.ids == asked and row.target == [*text.tokens(answer), text.end]
        form = generation_row(lesson.backbone, row, mark(text, GENERATE))
        assert form.ids + form.target == [*text.tokens("__gen__"), *asked, *text.tokens(answer), text.end]
        assert form.ids == text.tokens("__gen__")  # all but the mark itself is learnt
        assert len(places(form.target, mark(text, ANSWER))) == 1


def test_a_decoder_reads_and_writes_in_one_row_without_a_separator():
    lesson = lesson_of(REVIEW)
    method, batch = begun(lesson), lesson.batch(lesson.train.rows)
    logits = lesson.logits(batch, method.passing())
    for i, row in enumerate(lesson.train.rows):
        whole = lesson.backbone.model(torch.tensor([row.ids + row.target])).logits[0]
        expected = whole[len(row.ids) - 1 : -1]
        torch.testing.assert_close(logits[i, : len(row.target)], expected, atol=1e-4, rtol=1e-4)


def test_the_port_reads_with_the_encoder_and_writes_with_the_decoder():
    lesson = lesson_of(REVIEW, "bart")
    text, row = lesson.backbone.text, lesson.train.rows[0]
    asked = [*text.tokens("the film"), *text.tokens(" sound bad, good?"), *mark(text, ANSWER)]
    assert row.ids == [*text.opening, *asked, *text.closing]
    assert row.target == [*text.opening, *text.tokens("good"), text.end]
    form = generation_row(lesson.backbone, row, mark(text, GENERATE))
    assert form.ids == [*text.opening, *mark(text, GENERATE), *text.closing]
    assert form.target == [*text.opening, *asked, *text.tokens("good"), text.end]


@pytest.mark.parametrize("family", ["gpt2", "bart"])
def test_forms_fit_the_backbone(family: str):
    long = Task.from_lists("long", "generation", [("good day " * 80, "bad " * 80)] * 2)
    lesson = lesson_of(long, family)
    row, text = lesson.train.rows[0], lesson.backbone.text
    assert row.cut and places(row.ids, mark(text, ANSWER))  # the context is cut, never the question
    form = generation_row(lesson.backbone, row, mark(text, GENERATE))
    both = len(form.target) + (len(form.ids) if family == "gpt2" else 0)
    assert both <= lesson.backbone.longest and len(places(form.target, mark(text, ANSWER))) == 1


def test_marks_in_a_users_text_are_spelt_out():
    lesson = lesson_of(Task.from_lists("odd", "generation", [("a __ans__ b __gen__", "c __ans__")] * 2))
    row, text = lesson.train.rows[0], lesson.backbone.text
    assert len(places(row.ids, mark(text, ANSWER))) == 1 and not places(row.target, mark(text, ANSWER))
    assert not places(row.ids, mark(text, GENERATE))


def test_the_loss_of_both_forms():
    lesson = lesson_of(REVIEW)
    method = begun(lesson, lamol_lambda=0.25)
    text, model = lesson.backbone.text, lesson.backbone.model
    batch = trained_on(method, lesson)
    total = {"task": [0.0, 0.0], "generation": [0.0, 0.0]}
    for row in lesson.train.rows:
        form = generation_row(lesson.backbone, row, mark(text, GENERATE))
        for name, one in (("task", row), ("generation", form)):
            logits = model(torch.tensor([one.ids + one.target])).logits[0, len(one.ids) - 1 : -1]
            each = F.cross_entropy(logits, torch.tensor(one.target), reduction="none")
            weight = torch.ones(len(one.target))
            if name == "generation":
                (place,) = places(form.target, mark(text, ANSWER))
                weight[place : place + len(mark(text, ANSWER))] = 5.0
            total[name][0] += float((each * weight).sum())
            total[name][1] += float(weight.sum())
    task, generation = (total[name][0] / total[name][1] for name in ("task", "generation"))
    assert method.loss(lesson, batch).item() == pytest.approx(task + 0.25 * generation, rel=1e-4)


def test_where_a_mark_stands():
    ids = torch.tensor([[1, 7, 8, 2, 7, 8], [7, 1, 8, 8, 7, 7], [7, 8, 7, 8, 3, -100]])
    found = covered(ids, torch.tensor([7, 8])).int().tolist()
    assert found == [[0, 1, 1, 0, 1, 1], [0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0]]
    assert not covered(ids, torch.tensor([7, 8, 7, 7])).any() and covered(ids, torch.tensor([3])).sum() == 1


def test_pieces_of_a_batch_keep_both_forms_of_their_rows():
    lesson = lesson_of(small_task("classification", 12))
    method = begun(lesson)
    batch = trained_on(method, lesson)
    for piece in batch.split(3):
        for i, number in enumerate(piece.numbers):
            row, form = lesson.train.rows[number], method._forms[number]
            assert piece.ids[i, : len(row.ids)].tolist() == row.ids
            assert piece.beside.target[i, : len(form.target)].tolist() == form.target
    assert sum(len(piece) for piece in batch.split(3)) == 12


@pytest.mark.parametrize(
    ("examples", "gamma", "tasks", "even", "code"),
    [
        (100, 0.05, 1, [5], [5]),
        (100, 0.05, 2, [3, 2], [2, 2]),
        (100, 0.2, 3, [7, 7, 6], [6, 6, 6]),
        (228, 0.05, 12, [1] * 12, [1] * 12),
        (228, 0.05, 13, [1] * 12 + [0], [0] * 13),  # published code: none from task 14 on
        (100, 0.07, 1, [7], [7]),
        (100, 0.0, 4, [0] * 4, [0] * 4),
        (100, 0.05, 0, [], []),
    ],
)
def test_how_many_pseudo_examples(examples: int, gamma: float, tasks: int, even: list[int], code: list[int]):
    assert shares(examples, gamma, tasks) == even
    assert shares(examples, gamma, tasks, "code") == code


def test_only_texts_with_exactly_one_answer_mark_are_kept():
    backbone = tiny_loaded("gpt2")
    text = backbone.text
    answer, words = mark(text, ANSWER), text.tokens("the film")
    assert parse(backbone, words, 32) is None
    assert parse(backbone, [*words, *answer, *words, *answer], 32) is None
    row = parse(backbone, [*words, *answer, *text.tokens("good")], 32)
    assert row.ids == [*words, *answer] and row.target == [*text.tokens("good"), text.end]
    short = parse(backbone, [*words, *answer], len(answer) + 1)
    assert short.ids == [*words[-1:], *answer] and short.target == [text.end] and short.cut


def stubbed(monkeypatch, lesson: Lesson, kept_share: int):
    """A backbone that writes a good text for every `kept_share`-th that is asked for; and what it was asked."""
    text, asked = lesson.backbone.text, []
    good = [*text.tokens("the film sound"), *mark(text, ANSWER), *text.tokens("bad")]

    def generate(ids, mask, added, **limits):
        asked.append((ids, limits))
        return [good if i % kept_share == 0 else text.tokens("nothing") for i in range(len(ids))]

    monkeypatch.setattr(lesson.backbone, "generate", generate)
    return asked


@pytest.mark.parametrize("tokens", [False, True])
def test_pseudo_examples_join_the_task_in_both_forms(monkeypatch, tokens: bool):
    lesson = lesson_of(small_task("classification", 12))
    method = begun(lesson, lamol_gamma=0.5, lamol_task_tokens=tokens, lamol_top_k=7)
    assert method.lessons(lesson)[0].train.rows == lesson.train.rows and method.facts()["pseudo_drawn"] == 0
    method.end(lesson)
    method.end(lesson)  # two tasks learnt
    asked = stubbed(monkeypatch, lesson, 2)
    method.begin(lesson, train)
    text = lesson.backbone.text
    starts = ["__1__", "__2__"] if tokens else ["__gen__"] * 2
    # 6 = 0.5 * 12, at once where the marks are the same; every second text of a draw can be used
    drawn = [[text.tokens(start)] * 3 for start in starts] if tokens else [[text.tokens("__gen__")] * 6]
    kept = [start for start in starts for _ in range(2)] if tokens else ["__gen__"] * 3
    assert [ids.tolist() for ids, _ in asked] == drawn
    assert all(limits["top_k"] == 7 for _, limits in asked)
    assert method.facts() == {"port": 0.0, "pseudo_drawn": 6.0, "pseudo_kept": len(kept)}
    mixed = method.lessons(lesson)[0]
    assert len(mixed.train) == 12 + len(kept) and mixed.valid is lesson.valid and mixed.head is lesson.head
    assert text.decode(mixed.train.rows[12].target) == "bad"
    own = "__3__" if tokens else "__gen__"
    forms = [form.ids for form in method._forms]
    assert forms == [text.tokens(own)] * 12 + [text.tokens(start) for start in kept]
    outcome = train([mixed], method, LearningConfig(max_steps=2, batch_size=16, eval_steps=2))
    assert outcome.steps == 2


def test_what_is_drawn_can_be_drawn_again():
    lesson = lesson_of(small_task("classification", 12))
    method = begun(lesson, lamol_gamma=1.0)
    method.learnt = 1
    drawn = []
    for _ in range(2):
        torch.rand(1)  # whatever happened before
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            drawn.append(list(method._draw(lesson, mark(lesson.backbone.text, GENERATE), 3)))
    assert drawn[0] == drawn[1] and len({tuple(ids) for ids in drawn[0]}) > 1
    state = torch.random.get_rng_state()
    method.begin(lesson, train)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_gpt2_answers_and_dreams():
    """The published form end to end: a tiny GPT-2 learns to name labels and to write texts of its own."""
    lesson = lesson_of(small_task("classification", 12))
    method = begun(lesson, lm_lr=1e-2, lamol_gamma=0.5, lamol_lambda=1.0, lamol_top_k=1)
    assert method.label == "LAMOL"
    train(method.lessons(lesson), method, LearningConfig(max_steps=100, batch_size=12, eval_steps=100, select="last"))
    method.end(lesson)
    scores, answers = lesson.evaluate(lesson.train, method.passing())
    assert scores["accuracy"] > 60.0 and {answer.value for answer in answers} <= {"good", "bad", NO_ANSWER}
    method.begin(lesson_of(small_task("generation", 12), backbone=lesson.backbone), train)
    assert method.facts() == {"port": 0.0, "pseudo_drawn": 6.0, "pseudo_kept": 6.0}


def test_a_text_that_is_no_label_is_wrong(monkeypatch):
    lesson = lesson_of(small_task("classification", 12))
    text, gold = lesson.backbone.text, lesson.train.gold[:4]
    said = [*gold[:2], "goods", ""]
    monkeypatch.setattr(lesson.backbone, "generate", lambda ids, *rest, **limits: [text.tokens(one) for one in said])
    rows = sorted(lesson.train.rows[:4], key=lambda row: len(row.ids))
    batch = lesson.batch(rows)
    found = [a.value for a in lesson.kind.answers(lesson.backbone, lesson.head, batch, rows, None)]
    assert found == [*gold[:2], NO_ANSWER, NO_ANSWER]
    assert lesson.kind.score(found, gold)["accuracy"] == 50.0


def test_tagging_is_refused(tmp_path: Path):
    learner = open_learner(tmp_path / "store", tiny_path("bart"), "lamol")
    assert learner.method.label == "LAMOL (port)"
    with pytest.raises(TaskError, match="toy tagging.*LAMOL.*does not learn tagging"):
        learner.learn(toy("tagging"))
    assert learner.tasks() == []


def test_an_encoder_is_refused():
    with pytest.raises(BackboneError, match="encoder"):
        lesson = Lesson.of(REVIEW, tiny_loaded("bert"), ReadingConfig(), 0)
        small_method(lesson, "lamol")


@pytest.mark.parametrize(
    "bad", [{"lamol_gamma": -0.1}, {"lamol_count": "up"}, {"lamol_top_k": 0}, {"lamol_answer_weight": 0.0}]
)
def test_bad_options_are_refused(bad: dict):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        small_method(lesson_of(REVIEW), "lamol", **bad)
