"""The one training loop: stopping, choosing, accumulating, guarding; and learning."""

from __future__ import annotations

from math import inf, nan

import pytest
import torch
from scripted import ScriptedLesson, ScriptedMethod
from small_lessons import small_lesson, small_method
from tiny import tiny_loaded

from tss.errors import TrainingError
from tss.learning.loop import Training, train
from tss.learning.schedule import LearningConfig
from tss.learning.update import Update
from tss.tasks.lesson import Split

# Two batches an epoch, an evaluation every two steps.
FAST = {"batch_size": 4, "eval_steps": 1, "min_steps": 0, "warmup": 0.0}


def run(dev, method=None, **options):
    method = method or ScriptedMethod()
    outcome = train([ScriptedLesson(dev)], method, LearningConfig(**{**FAST, **options}))
    return outcome, method


def test_patience_ends_a_training_that_no_longer_improves():
    outcome, _ = run([(50.0, 1.0), (60.0, 1.0)] + [(10.0, 1.0)] * 20, patience=3, epochs=50)
    assert outcome.best_step == 4 and outcome.steps == 4 + 3 * 2 and outcome.planned == 100
    assert (outcome.dev, outcome.dev_loss) == (60.0, 1.0)


def test_patience_counts_from_the_end_of_the_warm_up():
    """Warm-up of 20 of 100 steps: the bad evaluations up to step 20 do not count."""
    outcome, _ = run([(50.0, 1.0)] + [(10.0, 1.0)] * 60, patience=3, epochs=50, warmup=0.2)
    assert outcome.steps == 20 + 3 * 2


def test_at_least_so_many_steps():
    outcome, _ = run([(50.0, 1.0)] + [(10.0, 1.0)] * 60, patience=3, epochs=50, min_steps=31)
    assert outcome.steps == 31 and outcome.best_step == 2


def test_improvement_resets_patience():
    outcome, _ = run([(50.0, 1.0), (1.0, 1.0), (1.0, 1.0), (51.0, 1.0)] + [(2.0, 1.0)] * 9, patience=3, epochs=50)
    assert outcome.best_step == 8 and outcome.steps == 14


def test_ties_are_decided_by_dev_loss():
    outcome, _ = run([(50.0, 1.0), (50.0, 0.5), (50.0, 0.7), (49.0, 0.1)], epochs=4)
    assert outcome.best_step == 4 and outcome.dev_loss == 0.5


def test_generation_is_chosen_by_dev_loss():
    outcome, _ = run([(None, 3.0), (None, 1.0), (None, 2.0)], epochs=3)
    assert outcome.best_step == 4 and outcome.dev == -1.0 and outcome.dev_loss == 1.0


def test_a_dev_loss_that_is_no_number_is_never_best():
    outcome, _ = run([(50.0, 1.0), (99.0, nan)], epochs=2)
    assert outcome.best_step == 2 and outcome.dev == 50.0


@pytest.mark.parametrize(("select", "steps"), [("dev", 4), ("last", 8)])
def test_best_state_is_restored(select, steps):
    """With a constant rate and gradient -1 the parameter counts the steps it has made."""
    method = ScriptedMethod()
    config = LearningConfig(**FAST, epochs=4, select=select)
    training = Training([ScriptedLesson([(1.0, 1.0), (9.0, 1.0), (2.0, 1.0)])], method, config, None, None)
    expected = sum(config.factor(step, 8) for step in range(steps))
    outcome = training.run()
    assert outcome.best_step == 4
    torch.testing.assert_close(method.value.detach(), torch.full((2,), expected))


def test_evaluations_are_every_epoch_or_so_many_steps():
    for eval_steps, expected in ((1, [2, 4, 6]), (4, [4, 6]), (5, [5, 6]), (50, [6])):
        outcome, _ = run([(1.0, 1.0)], epochs=3, eval_steps=eval_steps)
        assert [point[0] for point in outcome.curve] == expected


def test_dev_is_at_most_so_many_examples():
    lesson = ScriptedLesson([(1.0, 1.0)])
    train([lesson], ScriptedMethod(), LearningConfig(**FAST, epochs=1, dev_examples=3))
    assert lesson.sizes == [3]


def test_every_row_is_seen_once_an_epoch():
    _, method = run([(1.0, 1.0)], epochs=3)
    for epoch in range(3):
        seen = [n for numbers in method.seen[2 * epoch : 2 * epoch + 2] for n in numbers]
        assert sorted(seen) == list(range(8))


def test_lessons_are_mixed_and_averaged():
    lessons = [
        ScriptedLesson([(10.0, 1.0), (10.0, 1.0)], name="a"),
        ScriptedLesson([(30.0, 2.0), (50.0, 2.0)], name="b"),
    ]
    outcome = train(lessons, ScriptedMethod(), LearningConfig(**FAST, epochs=2))
    assert outcome.steps == 8 and outcome.dev == 30.0 and outcome.best_step == 8


def test_watchers_are_told_every_step():
    told = []
    train([ScriptedLesson([(5.0, 1.0)])], ScriptedMethod(), LearningConfig(**FAST, epochs=2), watch=told.append)
    assert [(p.step, p.steps) for p in told] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert [p.dev for p in told] == [None, 5.0, None, 5.0] and told[-1].best == 5.0


# The guard.


@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_a_step_whose_loss_is_no_number_is_skipped(bad):
    method = ScriptedMethod({1: bad, 3: bad})
    method.value.data.fill_(1.0)
    outcome, _ = run([(1.0, 1.0)], method, epochs=3, select="last")
    assert outcome.skipped == 2 and outcome.steps == 6
    assert torch.isfinite(method.value).all()
    config = LearningConfig(**FAST, epochs=3)
    expected = 1.0 + sum(config.factor(step, 6) for step in (0, 2, 4, 5))
    torch.testing.assert_close(method.value.detach(), torch.full((2,), expected))


def test_a_gradient_that_is_no_number_is_skipped_too():
    method = ScriptedMethod()
    plain = method.loss
    method.loss = lambda lesson, batch: plain(lesson, batch) + (0 * method.value).sqrt().sum()  # 0, with gradient nan
    with pytest.raises(TrainingError):
        run([(1.0, 1.0)], method, epochs=9, bad_steps=3)
    assert torch.equal(method.value.detach(), torch.zeros(2))


def test_bad_steps_in_a_row_end_the_training_naming_step_and_rows():
    method = ScriptedMethod(dict.fromkeys(range(2, 99), nan))
    method.value.data.fill_(1.0)
    with pytest.raises(TrainingError) as error:
        run([(1.0, 1.0)], method, epochs=50, bad_steps=5)
    message = str(error.value)
    assert "scripted" in message and "step 6" in message and "5 steps in a row" in message
    for number in method.seen[-1]:
        assert str(number + 1) in message
    assert method.calls == 7


def test_bad_steps_apart_do_not_end_it():
    method = ScriptedMethod({step: nan for step in range(0, 40, 2)})
    outcome, _ = run([(1.0, 1.0)], method, epochs=20, bad_steps=2, patience=99)
    assert outcome.skipped == 20 and outcome.steps == 40


# Real lessons.


def test_a_small_gradient_is_not_clipped():
    outcome, method = run([(1.0, 1.0)], ScriptedMethod(gradient=-0.1), epochs=1, clip=100.0, select="last")
    config = LearningConfig(**FAST)
    torch.testing.assert_close(
        method.value.detach(), torch.full((2,), 0.1 * (config.factor(0, 2) + config.factor(1, 2)))
    )


def learn(kind: str, family: str = "bart", name: str = "tss", steps: int = 6, **options):
    lesson = small_lesson(kind, family)
    method = small_method(lesson, name)
    method.begin(lesson, None)
    config = LearningConfig(**{"batch_size": 4, "max_steps": steps, "eval_steps": 3, **options})
    outcome = train([lesson], method, config)
    return outcome, [p.detach().clone() for group in method.groups() for p in group.parameters], lesson


def test_dropout_is_on_and_the_same_every_time():
    """Whatever was drawn before."""
    first = learn("classification", head_lr=0.01)
    torch.manual_seed(77)
    second = learn("classification", head_lr=0.01)
    assert first[0].curve == second[0].curve
    assert all(torch.equal(a, b) for a, b in zip(first[1], second[1], strict=True))
    assert first[2].backbone.model.config.dropout > 0


def test_the_random_state_outside_is_left_alone():
    lesson = small_lesson("classification")
    method = small_method(lesson)
    method.begin(lesson, None)
    before = torch.get_rng_state()
    train([lesson], method, LearningConfig(max_steps=2))
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_makes_a_difference(monkeypatch):
    plain = learn("classification")
    monkeypatch.setattr(Training, "_mode", lambda self, training: self.method.backbone.model.eval())
    assert not all(torch.equal(a, b) for a, b in zip(plain[1], learn("classification")[1], strict=True))


def test_the_backbone_is_left_in_evaluation_mode():
    outcome, _, lesson = learn("classification")
    assert not any(module.training for module in lesson.backbone.model.modules())
    assert not lesson.head.training
    assert lesson.backbone.sites.active is None


@pytest.mark.parametrize(("kind", "family"), [("classification", "bert"), ("tagging", "bart"), ("generation", "gpt2")])
def test_it_learns(kind, family):
    """The training loss falls, and only scores and head have moved."""
    lesson = small_lesson(kind, family, count=24)
    before = lesson.backbone.fingerprint()
    method = small_method(lesson, "supsup", score_lr=0.1, adapter_std=0.5)
    method.begin(lesson, None)
    with torch.no_grad():
        start = lesson.loss(lesson.batch(lesson.train.rows), method.passing()).item()
    train([lesson], method, LearningConfig(batch_size=8, max_steps=60, eval_steps=20, head_lr=0.05))
    with torch.no_grad():
        end = lesson.loss(lesson.batch(lesson.train.rows), method.passing()).item()
    assert end < 0.9 * start
    assert lesson.backbone.fingerprint() == before


class Late(Update):
    """Tells of every step one step later, as the recorded update does on a GPU."""

    def __call__(self, loss, factor):
        made = self._plain(loss, factor)
        return self.on_the_way.send(torch.tensor([made.loss, float(not made.made)], dtype=torch.float64))


@pytest.mark.parametrize("kind", ["classification", "generation"])
def test_losses_that_are_known_late_change_nothing(kind, monkeypatch):
    found, seen = [], []
    for late in (False, True):
        monkeypatch.setattr("tss.learning.loop.Update", Late if late else Update)
        lesson = small_lesson(kind, count=24, backbone=tiny_loaded("bart"))
        method = small_method(lesson, "tss")
        method.begin(lesson, None)
        config = LearningConfig(max_steps=7, min_steps=7, eval_steps=3, batch_size=8)
        outcome = train([lesson], method, config, watch=lambda now: seen.append((now.step, now.loss)))
        found.append((outcome.curve, outcome.best_step, outcome.dev, method.scores.detach().clone()))
    (curve, *rest, scores), (late_curve, *late_rest, late_scores) = found
    assert curve == late_curve and rest == late_rest and torch.equal(scores, late_scores)
    assert seen[7:] == [(2, seen[0][1]), seen[2], (4, seen[2][1]), (5, seen[3][1]), seen[5], seen[6]]


def test_bad_steps_that_are_known_late_end_the_training_and_name_their_rows(monkeypatch):
    monkeypatch.setattr("tss.learning.loop.Update", Late)
    method = ScriptedMethod(dict.fromkeys(range(2, 99), nan))
    with pytest.raises(TrainingError, match="5 steps in a row") as error:
        run([(1.0, 1.0)], method, epochs=50, bad_steps=5)
    assert method.calls == 8  # the seventh, which is the fifth bad one, is known when the eighth is under way
    assert all(str(number + 1) in str(error.value) for number in method.seen[-2])


def test_balance_has_a_rare_label_named_more_often():
    named = []
    for balance in (0.0, 2.0):
        lesson = small_lesson("classification", count=40)
        rows = [row for i, row in enumerate(lesson.train.rows) if row.target[0] == 0 or i % 8 == 1]
        lesson.train = Split(rows, [lesson.kind.labels[row.target[0]] for row in rows])
        method = small_method(lesson, "supsup")
        method.begin(lesson, None)
        train([lesson], method, LearningConfig(max_steps=12, batch_size=8, select="last", balance=balance))
        answers = lesson.answers(lesson.valid.rows, method.passing())
        named.append(sum(answer.value != lesson.kind.labels[0] for answer in answers))
    assert named[1] > named[0]
