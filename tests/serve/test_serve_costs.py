"""The guess how long batches take, and the target that follows from it."""

from __future__ import annotations

import math

import pytest

from tss.serve.costs import KNOWN, LEAST, TIMES, Costs


def test_start_and_row_are_told_apart():
    costs = Costs(batch=8)
    for rows in (1, 4, 8, 2, 6):
        costs.learn("a", rows, 0.1 + 0.01 * rows)
    assert costs.work("a", 3) == pytest.approx(0.13)
    assert costs.work("a", 12) == pytest.approx(0.2 + 0.12)  # two batches
    assert costs.work("unknown", 5) == 0.0


def test_batches_of_one_size_count_whole_and_nothing_is_below_zero():
    costs = Costs(batch=8)
    for _ in range(5):
        costs.learn("a", 1, 0.1)
    assert costs.work("a", 4) == pytest.approx(0.4)
    for rows, seconds in ((1, 0.5), (8, 0.1), (1, 0.6), (8, 0.2)):  # noise: the large ones were quicker
        costs.learn("b", rows, seconds)
    assert costs.work("b", 1) > 0 and costs.work("b", 8) >= costs.work("b", 1)


def test_what_is_learnt_fades():
    costs = Costs(batch=8)
    for seconds in [1.0] * 50 + [0.1] * 100:
        costs.learn("a", 1, seconds)
    assert costs.work("a", 1) == pytest.approx(0.1, rel=0.1)


def test_how_far_guesses_are_off_is_known():
    costs = Costs(batch=8)
    assert costs.doubt("a") == 0.0
    for _ in range(20):
        costs.learn("a", 1, 0.1)
    assert costs.doubt("a") == pytest.approx(0.0, abs=1e-12)
    for number in range(60):
        costs.learn("b", 1, 0.1 + 0.02 * (number % 2))
    assert 0.008**2 < costs.doubt("b") < 0.02**2


def test_the_key_of_an_input_is_guessed_by_its_task_else_by_its_kind():
    costs = Costs(batch=8)
    assert costs.guess(["my task", "texts"]) == "texts"  # nothing is known
    costs.seen(["my task", "texts"], "three beams")
    assert costs.guess(["new task", "texts"]) == "three beams"
    costs.seen(["new task", "texts"], "two beams")
    assert costs.guess(["my task", "texts"]) == "three beams" and costs.guess(["other", "texts"]) == "two beams"


def test_what_is_remembered_is_bounded():
    costs = Costs(batch=8)
    for number in range(2 * KNOWN):
        costs.seen([number], number)
        costs.asked(number)
        if number % 8 == 0:
            costs.learn(number, 1, 0.1)
    costs.seen([0], "again")
    assert costs.guess([1]) == 1 and len(costs._signs) == KNOWN and len(costs._fits) <= KNOWN
    assert costs.guess([2 * KNOWN - 1]) == 2 * KNOWN - 1 and costs.guess([0]) == "again"


def test_the_target_is_some_times_the_slowest_alone_but_rare_ones():
    costs = Costs(batch=8)
    assert costs.target() == math.inf
    for key in ["quick"] * 60 + ["slow"] * 40:
        costs.asked(key)
    costs.learn("quick", 1, 0.001)
    assert costs.target() == LEAST
    costs.learn("slow", 1, 0.2)
    assert costs.target() == pytest.approx(0.2 * TIMES)
    for _ in range(600):
        costs.asked("quick")
    costs.asked("slow")
    costs.learn("slow", 1, 0.2)
    assert costs.target() == LEAST
