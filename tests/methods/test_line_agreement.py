"""Whether a line of TSS+ means the same by its labels as a new task: asked before anything is trained."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from small_lessons import small_lesson, small_method
from test_plus import inner

from tss.methods.line import DOUBT, Agreement, agreement


def learnt_line(kind="classification"):
    """A lesson, and the line that one task began who learnt it."""
    lesson = small_lesson(kind, count=40)
    method = small_method(lesson, "tss+", lined=kind)
    method.begin(lesson, inner)
    inner([lesson], method, max_steps=200, eval_steps=200)
    method.end(lesson)
    (found,) = method.lines
    added = method.recall(method.as_kept(found.scores, method.signed))
    return lesson, found, added


@pytest.mark.parametrize("kind", ["classification", "tagging"])
def test_a_line_agrees_with_its_own_task_and_not_with_labels_turned_round(kind):
    lesson, found, added = learnt_line(kind)
    assert agreement(lesson, found, added).errors > 3.0
    labels = lesson.kind.labels
    turned = dict(zip(range(len(labels)), [*range(1, len(labels)), 0], strict=True))
    for row in lesson.train.rows:
        row.target[:] = [turned.get(label, label) for label in row.target]
    opposite = agreement(lesson, found, added)
    assert opposite.errors < DOUBT and opposite.mean < 0.0


def test_a_line_that_gives_all_rows_the_same_chances_neither_agrees_nor_contradicts():
    lesson, found, added = learnt_line()
    same = {name: torch.zeros_like(tensor) for name, tensor in found.head.items()}
    assert agreement(lesson, replace(found, head=same), added) == Agreement(0.0, 0.0)


def test_only_labels_that_both_know_are_compared():
    lesson, found, added = learnt_line()
    head = {name: torch.cat([torch.full_like(part[:1], 9.0), part.flip(0)]) for name, part in found.head.items()}
    wider = replace(found, labels=("other", *reversed(found.labels)), head=head)
    assert agreement(lesson, wider, added) == agreement(lesson, found, added)
    assert agreement(lesson, replace(found, labels=("good", "x")), added) == Agreement(0.0, 0.0)  # one says nothing


def test_tasks_of_opposite_meaning_form_two_lines_and_later_ones_find_their_own():
    lessons = [small_lesson("classification", count=40) for _ in range(3)]
    method = small_method(lessons[0], "tss+")
    for lesson, name in zip(lessons, ["first", "turned", "third"], strict=True):
        lesson.name = lesson.seed_key = name
        lesson.backbone = lessons[0].backbone
        if name == "turned":
            for row in lesson.train.rows + lesson.valid.rows:
                row.target[0] = 1 - row.target[0]
        method.begin(lesson, inner)
        inner([lesson], method, max_steps=60, eval_steps=60)
        method.end(lesson)
    assert [one.tasks[-1] for one in method.lines] == ["turned", "third"] and method.lines[-1].rows == 80
