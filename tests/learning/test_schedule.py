"""How many steps, and which learning rate when."""

from __future__ import annotations

import pytest

from tss.errors import ConfigError
from tss.learning.schedule import LearningConfig


@pytest.mark.parametrize(
    ("options", "per_epoch", "expected"),
    [
        ({}, 10, 500),  # 50 epochs
        ({}, 1, 200),  # never fewer than 200 steps
        ({"min_steps": 0}, 1, 50),
        ({"epochs": 3}, 100, 300),
        ({"epochs": 3, "max_steps": 250}, 100, 250),
        ({"max_steps": 40}, 100, 40),  # asking for fewer is telling otherwise
        ({"max_steps": 10_000}, 10, 500),
    ],
)
def test_planned_steps(options, per_epoch, expected):
    assert LearningConfig(**options).planned(per_epoch) == expected


@pytest.mark.parametrize(("options", "expected"), [({"max_steps": 250}, 500), ({"epochs": 2}, 400), ({}, 1000)])
def test_limits_are_of_one_task_where_several_are_learnt_together(options, expected):
    assert LearningConfig(**options).planned(20, tasks=2) == expected


def test_asking_for_few_steps_lowers_the_least_number():
    assert LearningConfig(max_steps=40).min_steps == 40
    assert LearningConfig(max_steps=400).min_steps == 200


def test_rate_goes_up_and_then_down_to_nothing():
    config = LearningConfig(warmup=0.1)
    factors = [config.factor(step, 200) for step in range(200)]
    assert config.warm_steps(200) == 20
    assert factors[0] == pytest.approx(1 / 20) and factors[19] == 1.0 and factors[20] == 1.0
    assert factors[9] == pytest.approx(0.5) and factors[110] == pytest.approx(0.5)
    assert factors[199] == pytest.approx(1 / 180)
    assert config.factor(200, 200) == 0.0
    assert all(0 < f <= 1 for f in factors)
    assert factors[:20] == sorted(factors[:20]) and factors[20:] == sorted(factors[20:], reverse=True)


@pytest.mark.parametrize(("warmup", "total"), [(0.0, 1), (0.0, 10), (0.5, 1), (0.5, 3), (0.99, 7)])
def test_rate_is_sound_at_the_edges(warmup, total):
    config = LearningConfig(warmup=warmup)
    assert all(0 < config.factor(step, total) <= 1 for step in range(total))


def test_without_warm_up_the_first_step_is_the_full_rate():
    assert LearningConfig(warmup=0.0).factor(0, 100) == 1.0


@pytest.mark.parametrize(
    "options",
    [{key: 0} for key in ("epochs", "batch_size", "accumulation", "patience", "eval_steps", "dev_examples")]
    + [{"bad_steps": 0}, {"checkpoint_steps": 0}, {"min_steps": -1}, {"max_steps": -1}, {"clip": -0.1}]
    + [{"warmup": 1.0}, {"warmup": -0.1}, {"warmup": float("nan")}, {"select": "best"}, {"precision": "int8"}]
    + [{"head_lr": 0.0}, {"head_lr": float("inf")}, {"adam_eps": 0.0}],
    ids=str,
)
def test_impossible_options_are_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        LearningConfig(**options)
