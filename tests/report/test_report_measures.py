from __future__ import annotations

import numpy as np
import pytest

from tss.report.measures import (
    deviation,
    forgetting_rate,
    forgetting_rate_max,
    forgetting_rate_per_family,
    forward_transfer,
    mean,
    mean_per,
    paired_bootstrap,
)

# Scores of one task after task 1, 2 and 3; then its FR and its F'.
CASES = [
    ((0.50, 0.40, 0.30), 0.20, 0.20),
    ((0.50, 0.80, 0.82), -0.32, -0.02),
    ((0.50, 0.80, 0.40), 0.10, 0.40),
    ((0.50, 0.10, 0.40), 0.10, 0.10),
]


@pytest.mark.parametrize(("scores", "rate", "rate_max"), CASES)
def test_a_tasks_share_of_both_rates(scores, rate, rate_max):
    # Task 2 is scored the same throughout, so it adds nothing and the mean over two tasks is half of task 1's share.
    matrix = [[scores[0], None, None], [scores[1], 0.7, None], [scores[2], 0.7, 0.9]]
    assert forgetting_rate([scores[0], 0.7, 0.9], matrix[-1]) == pytest.approx(rate / 2)
    assert forgetting_rate_max(matrix) == pytest.approx(rate_max / 2)


def test_rate_of_four_tasks_by_hand():
    assert forgetting_rate([80, 70, 60, 90], [70, 72, 60, 90]) == pytest.approx((10 - 2 + 0) / 3)


def test_rate_from_the_best_moment_is_never_smaller():
    random = np.random.default_rng(0)
    for _ in range(50):
        matrix = random.uniform(0, 100, (6, 6)).tolist()
        diagonal = [matrix[i][i] for i in range(6)]
        assert forgetting_rate_max(matrix) >= forgetting_rate(diagonal, matrix[-1])


def test_the_upper_triangle_is_not_read():
    assert forgetting_rate_max([[50, 99], [40, 60]]) == forgetting_rate_max([[50, None], [40, 60]]) == 10


def test_one_task_forgets_nothing():
    assert forgetting_rate([81.0], [81.0]) == forgetting_rate_max([[81.0]]) == 0.0
    assert forgetting_rate([], []) == forgetting_rate_max([]) == 0.0


def test_scores_not_run_are_left_out():
    assert forgetting_rate([80, None, 60, 90], [70, 10, 54, 90]) == pytest.approx(8)
    assert forgetting_rate([80, 70], [None, 70]) is None
    assert mean([]) is None and mean([None, 4, 6]) == 5


def test_family_rates_leave_out_the_last_task_of_the_whole_sequence():
    rates = forgetting_rate_per_family([80, 70, 60, 90], [70, 72, 55, 10], ["a", "b", "a", "b"])
    assert rates == {"a": 7.5, "b": -2}
    assert forgetting_rate_per_family([80, 70], [70, 70], ["a", "b"]) == {"a": 10, "b": None}


def test_transfer_and_averages():
    assert forward_transfer([80, 70, None], [75, 71, 60]) == [5, -1, None]
    assert mean_per([1, 2, 3, None], ["x", "y", "x", "y"]) == {"x": 2, "y": 2}
    assert deviation([1, 3]) == 1 and deviation([5]) == 0  # divided by n, not by n - 1
    with pytest.raises(ValueError, match="one entry per task"):
        forward_transfer([1], [1, 2])


def test_bootstrap_finds_a_difference_and_calls_noise_noise():
    random = np.random.default_rng(1)
    theirs = random.normal(70, 5, 400)
    better = paired_bootstrap(theirs + 2 + random.normal(0, 1, 400), theirs, rounds=300)
    assert 1.7 < better.low < better.difference < better.high < 2.3 and not better.is_noise
    assert paired_bootstrap(random.permutation(theirs), theirs, rounds=300).is_noise
    assert paired_bootstrap(theirs, theirs, rounds=20).high == 0


def test_bootstrap_repeats_with_its_seed_and_scores_counts():
    ours, theirs = np.array([[1, 0], [1, 1], [0, 1]] * 20), np.array([[1, 1], [0, 1], [0, 1]] * 20)  # [hits, misses]

    def precision(counts):
        return 100 * counts[:, 0].sum() / max(counts.sum(), 1)

    first = paired_bootstrap(ours, theirs, precision, rounds=100, seed=3)
    assert first == paired_bootstrap(ours, theirs, precision, rounds=100, seed=3)
    assert first != paired_bootstrap(ours, theirs, precision, rounds=100, seed=4)
    assert first.difference == pytest.approx(100 * (2 / 4 - 1 / 4))
    with pytest.raises(ValueError, match="same examples"):
        paired_bootstrap([1, 2], [1])
