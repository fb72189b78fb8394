"""Lines of TSS+: what tasks with the same labels hand on, and who may start from it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from small_lessons import small_lesson, small_method, small_task
from test_plus import QUICK, inner
from tiny import tiny_path

from tss.errors import ConfigError
from tss.learner import Learner
from tss.methods.line import DOUBT, MOST, Agreement, Line, lines_of, tensors_of
from tss.methods.plus import PlusConfig


def line(rows=100, labels=("good", "bad"), value=1.0, last="old", size=6):  # the task that joined last
    head = {"outer.weight": torch.full((len(labels), 3), value), "outer.bias": torch.full((len(labels),), value)}
    return Line("classification", False, labels, rows, (last,), torch.full((size,), value), head)


@pytest.mark.parametrize(("settle", "share"), [(0.0, 1.0), (0.5, 0.5), (1.0, 0.25)])
def test_a_task_moves_its_line_by_its_share_of_the_rows(settle, share):
    found = line(rows=75, value=0.0).joined(line(rows=25, value=1.0, last="new"), settle)
    assert torch.allclose(found.scores, torch.full((6,), share))
    assert torch.allclose(found.head["outer.weight"], torch.full((2, 3), share))
    assert (found.rows, found.tasks) == (100, ("old", "new"))


def test_labels_that_one_side_does_not_know_keep_their_rows():
    found = line(rows=50, labels=("good", "bad"), value=0.0).joined(line(rows=50, labels=("bad", "so-so")), 1.0)
    assert found.labels == ("good", "bad", "so-so")
    assert found.head["outer.weight"][:, 0].tolist() == [0.0, 0.5, 1.0]
    assert found.head["outer.bias"].tolist() == [0.0, 0.5, 1.0]


def test_who_suits():
    one = line(labels=("good", "bad", "so-so"))
    assert one.suits("classification", False, ("bad", "good"))
    assert one.suits("classification", False, ("bad", "good", "x", "y"))
    assert not one.suits("classification", False, ("bad", "good", "x", "y", "z"))  # most of its labels are new
    assert not one.suits("classification", False, ("bad", "x"))  # one in common may be chance
    assert not one.suits("tagging", False, ("bad", "good"))
    assert not one.suits("classification", True, ("bad", "good"))  # of a text and an aspect


def test_lines_come_back_from_tensors():
    two = [line(value=0.5), line(labels=("naïve", "über"), last="zwei ☂")]
    found = lines_of(tensors_of(two))
    for one, other in zip(two, found, strict=True):
        assert (one.kind, one.labels, one.rows, one.tasks) == (other.kind, other.labels, other.rows, other.tasks)
        assert torch.equal(one.scores, other.scores) and torch.equal(one.head["outer.bias"], other.head["outer.bias"])
    assert lines_of({}) == [] and tensors_of([]) == {}


def test_lines_of_the_first_stores_know_their_last_task_alone():
    tensors = tensors_of([line(last="it")])
    about = json.loads(bytes(tensors["line.0.about"].numpy()))
    told = json.dumps({**{key: value for key, value in about.items() if key != "tasks"}, "last": "it"})
    tensors["line.0.about"] = torch.frombuffer(bytearray(told.encode()), dtype=torch.uint8)
    assert lines_of(tensors)[0].tasks == ("it",)


def test_a_task_learnt_again_belongs_to_its_new_line_alone(monkeypatch):
    lesson = small_lesson("classification", count=24)
    lesson.name = "b"
    for errors, tasks in ((1.0, [("a", "b")]), (2 * DOUBT, [("a",), ("b",)])):
        method = begun(lesson, [{"last": "b"}])
        method.lines = [replace(method.lines[0], tasks=("b", "a"))]
        agreeing(monkeypatch, a=errors)
        method.begin(lesson, inner)
        method.end(lesson)
        assert [one.tasks for one in method.lines] == tasks


def test_a_line_whose_tasks_are_all_gone_is_still_one(monkeypatch):
    lesson = small_lesson("classification", count=24)
    method = begun(lesson, [{}])
    method.lines = [method.lines[0].without("old")]
    method.begin(lesson, inner)
    assert method.parent is None and torch.equal(method.scores, method.lines[0].scores)


def begun(lesson, lines=(), **options):
    method = small_method(lesson, "tss+", lined="classification", **options)
    method.lines = [line(size=method.bank.size, **one) for one in lines]
    for one in method.lines:
        one.head.update(
            {k: torch.full_like(v, 3.0) for k, v in small_lesson("classification").head.state_dict().items()}
        )
    return method


def agreeing(monkeypatch, **errors):
    """Lines agree so many standard errors with every task, by the task that joined them last."""
    monkeypatch.setattr(
        "tss.methods.plus.agreement",
        lambda lesson, line, added: Agreement(errors[line.tasks[-1]] / 100, errors[line.tasks[-1]]),
    )


def test_a_task_starts_from_the_line_that_answers_it_best_without_screening_or_race(monkeypatch):
    lesson = small_lesson("classification", count=24)
    method = begun(lesson, [{"rows": 99, "last": "a"}, {"rows": 90, "last": "b"}, {"rows": 99, "labels": ("x", "y")}])
    agreeing(monkeypatch, a=1.0, b=2.0)
    monkeypatch.setattr(method, "_screen", lambda lesson: pytest.fail("a line needs no screening"))
    method.begin(lesson, lambda *given, **options: pytest.fail("nor a race"))
    assert torch.equal(method.scores, method.lines[1].scores)
    assert method.parent is None  # no stored task of that name
    assert method.facts()["inherited"] == 1.0 and method.facts()["agreement"] == 2.0
    assert torch.equal(lesson.head.outer.weight, torch.full_like(lesson.head.outer.weight, 3.0))
    with torch.no_grad():
        method.scores.add_(1.0)
    method.end(lesson)
    assert [one.tasks[-1] for one in method.lines] == ["a", "old", lesson.name]
    joined = method.lines[-1]
    share = (24 / 114) ** 0.5
    assert joined.rows == 114 and torch.allclose(joined.scores, torch.full_like(joined.scores, 1.0 + share))


@pytest.mark.parametrize(("hold", "kept"), [(0.0, 4.0), (0.25, 3.25)])
def test_a_task_may_take_back_a_share_of_its_way_which_its_line_goes_whole(hold, kept):
    lesson = small_lesson("classification", count=24)
    method = begun(lesson, [{}], hold=hold)
    method.begin(lesson, inner)
    with torch.no_grad():
        method.scores.fill_(4.0)  # from 1
    method.end(lesson)
    assert torch.allclose(method.scores, torch.full_like(method.scores, kept))
    share = (24 / 124) ** 0.5
    assert torch.allclose(method.lines[-1].scores, torch.full_like(method.scores, 1.0 + 3.0 * share))


def test_only_tasks_of_a_line_of_labels_take_anything_back(monkeypatch):
    lesson, method = texts(range(1))
    method.config = replace(method.config, hold=0.5)
    monkeypatch.setattr(method, "_race", lambda lesson, starts, train: starts[1])
    method.begin(lesson, inner)
    with torch.no_grad():
        method.scores.fill_(4.0)
    method.end(lesson)
    assert torch.all(method.scores == 4.0)


@pytest.mark.parametrize(("errors", "lasts"), [(0.99 * DOUBT, ["new"]), (1.01 * DOUBT, ["old", "new"])])
def test_a_task_that_contradicts_its_line_begins_one(monkeypatch, errors, lasts):
    lesson = small_lesson("classification", count=24)
    lesson.name = "new"
    method = begun(lesson, [{}])
    agreeing(monkeypatch, old=errors)
    monkeypatch.setattr(method, "_screen", lambda lesson: pytest.fail("its relatives mean the opposite, too"))
    method.begin(lesson, lambda *given, **options: pytest.fail("no race"))
    assert method.facts()["inherited"] == float(len(lasts) == 1)
    method.end(lesson)
    assert [one.tasks[-1] for one in method.lines] == lasts


def test_no_more_lines_are_kept_than_allowed():
    lesson = small_lesson("classification", count=8)
    method = begun(lesson, [{"labels": (f"{i}", "other"), "last": str(i)} for i in range(MOST)])
    method.begin(lesson, inner)
    method.end(lesson)
    assert [one.tasks[-1] for one in method.lines] == [*map(str, range(1, MOST)), lesson.name]


def test_kinds_that_form_no_lines_leave_none():
    lesson = small_lesson("tagging", count=24)
    method = small_method(lesson, "tss+", lined="classification")
    method.begin(lesson, inner)
    method.end(lesson)
    assert method.lines == [] and method.shared() == {}


def texts(losses):
    """A method with a line of texts for each loss that its sub-network gives the new task."""
    lesson = small_lesson("generation", count=24)
    method = small_method(lesson, "tss+", lined="generation")
    size = method.bank.size
    method.lines = [Line("generation", False, (), 50, (f"old {i}",), torch.full((size,), 1.0 + i), {}) for i in losses]
    method.lines.append(line(size=size, labels=("a", "b"), last="of labels"))
    return lesson, method


def test_texts_start_from_the_line_that_gives_them_the_smallest_loss(monkeypatch):
    lesson, method = texts(range(3))
    losses = iter([3.0, 1.0, 2.0])
    seen = []
    monkeypatch.setattr("tss.methods.plus.unfitness", lambda lesson, split, added: seen.append(added) or next(losses))
    monkeypatch.setattr(method, "_race", lambda lesson, starts, train: starts[1])
    method.begin(lesson, inner)
    assert len(seen) == 3 and torch.equal(method.scores, torch.full_like(method.scores, 2.0))
    method.end(lesson)
    assert [one.tasks[-1] for one in method.lines] == ["old 0", "old 2", "of labels", lesson.name]
    assert method.lines[-1].rows == 74


def test_texts_that_begin_afresh_begin_a_line(monkeypatch):
    lesson, method = texts(range(1))
    monkeypatch.setattr(method, "_race", lambda lesson, starts, train: None)
    method.begin(lesson, inner)
    method.end(lesson)
    assert [(one.tasks[-1], one.rows) for one in method.lines] == [("old 0", 50), ("of labels", 100), (lesson.name, 24)]


def test_a_line_of_texts_must_win_its_race():
    lesson, method = texts(range(1))
    losses = iter([0.9, 1.0])
    method.begin(lesson, lambda *given, **options: type("Out", (), {"dev_loss": next(losses)}))
    assert method.facts()["inherited"] == 0.0


@pytest.mark.parametrize("kind", ["classification", "generation"])
def test_a_line_is_judged_as_the_sub_network_that_its_tasks_would_keep(kind):
    """Signed in generation: what `unfitness` is given must be what a task with the line's scores answers through."""
    lesson = small_lesson(kind, count=24)
    method = small_method(lesson, "tss+", lined=kind)
    method.begin(lesson, inner)
    kept, mine = method.kept(), method.as_kept(method.scores.detach(), method.signed)
    assert torch.equal(kept.gates, mine.gates) and set(kept.tensors) == set(mine.tensors)
    assert ("signed" in mine.tensors) is (kind == "generation")


@pytest.mark.parametrize("bad", [{"lined": "texts"}, {"settle": -0.1}, {"settle": 1.5}, {"hold": 2.0}])
def test_bad_options_of_lines_are_refused(bad):
    with pytest.raises(ConfigError):
        PlusConfig(**bad)


def test_a_store_goes_on_with_its_line_after_it_was_opened_again(tmp_path):
    config = {**QUICK, "lined": "classification"}
    tasks = [small_task("classification", 24, name=f"task {i}", seed=i) for i in range(4)]
    answers = {}
    for task in tasks[:3]:  # a new process for each
        learner = Learner.open(tmp_path / "one", backbone=str(tiny_path("bart")), method="tss+", config=config)
        learner.learn(task)
        answers[task.name] = learner.predict(task.name, [e.input for e in task.test])
    whole = Learner.open(tmp_path / "two", backbone=str(tiny_path("bart")), method="tss+", config=config)
    for task in tasks[:3]:
        whole.learn(task)
    for one, other in zip(lines_of(learner.store.read_shared()), lines_of(whole.store.read_shared()), strict=True):
        assert torch.equal(one.scores, other.scores) and one.rows == other.rows
    learner.remove("task 2")
    learner.learn(tasks[3])  # the last of the line is gone, the line is not
    assert all(
        learner.predict(name, [e.input for e in tasks[i].test]) == answers[name]
        for i, name in enumerate(["task 0", "task 1"])
    )
    assert all(check.status == "equal" for check in learner.verify())


def test_a_task_of_a_line_that_was_interrupted_ends_as_if_it_had_not_been(tmp_path):
    config = {**QUICK, "lined": "classification", "checkpoint_steps": 2}
    tasks = [small_task("classification", 24, name=f"task {i}", seed=i) for i in range(2)]

    def stop(now):
        if now.task == "task 1" and now.step == 4 and now.steps == QUICK["max_steps"]:
            raise KeyboardInterrupt

    found = []
    for folder in ("whole", "cut"):
        learner = Learner.open(tmp_path / folder, backbone=str(tiny_path("bart")), method="tss+", config=config)
        learner.learn(tasks[0])
        if folder == "cut":
            with pytest.raises(KeyboardInterrupt):
                learner.learn(tasks[1], progress=stop)
            learner = Learner.open(tmp_path / folder)
        assert learner.learn(tasks[1]).resumed is (folder == "cut")
        found.append((learner.store.read("task 1").gates, lines_of(learner.store.read_shared())[0].scores))
    assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])
