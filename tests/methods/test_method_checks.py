"""The shared checks for every registered method and every kind of task, on a tiny random BART."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import shared_checks as checks
from shared_checks import DISTINCT, Course
from tiny import tiny_path
from toy_tasks import KINDS, real_kind, toy

from tss.errors import TaskError
from tss.methods import METHODS, method_class

every_method = pytest.mark.parametrize("method", DISTINCT)
learnt = [(method, kind) for method in DISTINCT for kind in KINDS if real_kind(kind) in method_class(method).kinds]
every_kind_of_every_method = pytest.mark.parametrize(("method", "kind"), learnt)


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Course]:
    """The course of a method and kind, taught once however many checks read it."""
    return cache(lambda method, kind: checks.teach(tmp_path_factory.mktemp("course"), tiny_path("bart"), method, kind))


def test_every_registered_class_is_covered():
    assert {method_class(name) for name in DISTINCT} == {method_class(name) for name in METHODS}


@every_kind_of_every_method
def test_it_learns(course, method: str, kind: str):
    checks.check_learns(course(method, kind))


@every_kind_of_every_method
def test_the_frozen_stays_frozen(course, method: str, kind: str):
    checks.check_frozen(course(method, kind))


@every_kind_of_every_method
def test_later_tasks_change_what_the_method_says_they_change(course, method: str, kind: str):
    checks.check_memory(course(method, kind), method_class(method).forgets)


@every_kind_of_every_method
def test_a_resumed_training_ends_as_the_unbroken_one(course, tmp_path: Path, method: str, kind: str):
    checks.check_resume(tmp_path, tiny_path("bart"), method, course(method, kind), kind)


@every_method
def test_empty_and_odd_tasks(tmp_path: Path, method: str):
    checks.check_odd_tasks(tmp_path, tiny_path("bart"), method)


refused = [(method, kind) for method in DISTINCT for kind in KINDS if (method, kind) not in learnt]


@pytest.mark.parametrize(("method", "kind"), refused)
def test_a_kind_that_a_method_does_not_learn_is_refused(tmp_path: Path, method: str, kind: str):
    learner = checks.open_learner(tmp_path / "store", tiny_path("bart"), method)
    with pytest.raises(TaskError, match=f"does not learn {real_kind(kind)}"):
        checks.learn(learner, [toy(kind)])
    assert learner.tasks() == []
