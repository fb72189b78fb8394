"""Popup scores, the threshold, and the gradient that goes straight through it."""

from __future__ import annotations

from math import sqrt

import pytest
import torch
from small_lessons import small_bank, small_lesson
from tiny import WIDTH

from tss.errors import ConfigError
from tss.gates.scores import draw_scores, gated, open_gates, through


@pytest.fixture(scope="module")
def bank():
    return small_bank(small_lesson("classification"))


def test_gradient_is_upstream_times_weight_for_open_and_closed_gates():
    """dL/ds = dL/dw_hat * w on a small layer, with dL/dw_hat from autograd itself."""
    torch.manual_seed(0)
    scores, weights, x = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4), torch.randn(5, 4)
    loss = torch.tanh(x @ gated(scores, weights).T).pow(2).sum()
    (found,) = torch.autograd.grad(loss, scores)
    effective = (weights * (scores > 0)).detach().requires_grad_(True)
    (upstream,) = torch.autograd.grad(torch.tanh(x @ effective.T).pow(2).sum(), effective)
    torch.testing.assert_close(found, upstream * weights)
    closed = scores <= 0
    assert closed.any() and (~closed).any()
    assert bool((found[closed] != 0).any())


def test_forward_is_the_weight_or_nothing():
    scores, weights = torch.tensor([-1.0, -0.0, 0.0, 1e-30, 2.0]), torch.tensor([1.0, 2.0, 3.0, 4.0, -5.0])
    assert gated(scores, weights).tolist() == [0.0, 0.0, 0.0, 4.0, -5.0]
    assert gated(scores, weights, "ge").tolist() == [0.0, 2.0, 3.0, 4.0, -5.0]


def test_a_signed_gate_lets_the_weight_or_its_negative_through():
    scores, weights = torch.tensor([-1.0, 0.0, 1e-30, 2.0], requires_grad=True), torch.tensor([1.0, 2.0, 4.0, -5.0])
    found = gated(scores, weights, "gt", True)
    assert found.tolist() == [-1.0, -2.0, 4.0, -5.0]
    (gradient,) = torch.autograd.grad(found.sum(), scores)
    assert torch.equal(gradient, weights)  # for both, as with other gates
    assert torch.equal(through(weights, open_gates(scores.detach()), signed=True), found)


def test_thresholds_differ_at_zero_alone():
    scores = torch.tensor([-1e-30, 0.0, 1e-30])
    assert open_gates(scores).tolist() == [False, False, True]
    assert open_gates(scores, "ge").tolist() == [False, True, True]
    assert open_gates(scores).dtype == torch.bool


@pytest.mark.parametrize("threshold", ["gt", "ge"])
def test_forward_and_gates_agree(bank, threshold):
    scores, weights = draw_scores(bank, "0/task"), bank.fixed()
    assert torch.equal(gated(scores, weights, threshold), weights * open_gates(scores, threshold))


def test_scores_that_are_no_numbers_are_refused():
    for bad in (float("nan"), float("inf"), -float("inf")):
        with pytest.raises(ValueError, match="finite"):
            open_gates(torch.tensor([0.1, bad]))


def test_unknown_threshold_is_refused():
    with pytest.raises(ConfigError, match="gt, ge"):
        open_gates(torch.zeros(1), "eq")


def test_scores_are_kaiming_and_half_open(bank):
    scores = draw_scores(bank, "0/task")
    assert scores.shape == (bank.size,)
    for matrix, fan_in in zip(bank.matrices(scores), [WIDTH, 4] * 4, strict=True):
        bound = 1 / sqrt(fan_in)
        assert matrix.abs().max() <= bound and matrix.abs().max() > 0.8 * bound
    assert 0.42 < open_gates(scores).float().mean() < 0.58
    assert torch.equal(scores, draw_scores(bank, "0/task"))
    assert not torch.equal(scores, draw_scores(bank, "0/other"))
    assert not torch.equal(scores, draw_scores(bank, "1/task"))
