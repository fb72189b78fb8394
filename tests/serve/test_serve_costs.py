"""The guess how long batches take, and the target that follows from it."""

from __future__ import annotations

import math

import pytest

from tss.serve.costs import LEAST, Costs


def test_start_and_row_are_told_apart():
    costs = Costs(batch=8)
    for rows in (1, 4, 8, 2, 6):
        costs.learn("a", rows, 0.1 + 0.01 * rows)
    assert costs.work({"a": 3}) == pytest.approx(0.13)
    assert costs.work({"a": 12}) == pytest.approx(0.2 + 0.12)  # two batches
    assert costs.work({"unknown": 5}) == 0.0


def test_batches_of_one_size_count_whole_and_nothing_is_below_zero():
    costs = Costs(batch=8)
    for _ in range(5):
        costs.learn("a", 1, 0.1)
    assert costs.work({"a": 4}) == pytest.approx(0.4)
    for rows, seconds in ((1, 0.5), (8, 0.1), (1, 0.6), (8, 0.2)):  # noise: the large ones were quicker
        costs.learn("b", rows, seconds)
    assert costs.work({"b": 1}) > 0 and costs.work({"b": 8}) >= costs.work({"b": 1})


def test_what_is_learnt_fades():
    costs = Costs(batch=8)
    for seconds in [1.0] * 50 + [0.1] * 100:
        costs.learn("a", 1, seconds)
    assert costs.work({"a": 1}) == pytest.approx(0.1, rel=0.1)


def test_the_target_is_twice_the_slowest_alone_but_rare_ones():
    costs = Costs(batch=8)
    assert costs.target() == math.inf
    for key in ["quick"] * 60 + ["slow"] * 40:
        costs.asked(key)
    costs.learn("quick", 1, 0.001)
    assert costs.target() == LEAST
    costs.learn("slow", 1, 0.2)
    assert costs.target() == pytest.approx(0.4)
    for _ in range(600):
        costs.asked("quick")
    costs.asked("slow")
    costs.learn("slow", 1, 0.2)
    assert costs.target() == LEAST
