"""Where the soft mask meets the optimiser."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tss.gates.softmask import MODES, SoftMask, SoftMasks, relative_step
from tss.learning.optimisers import UncorrectedAdamW, build
from tss.learning.schedule import LearningConfig
from tss.methods.method import Group

START = torch.tensor([0.03, -0.02, 1.5, -1e-4, 0.25, 7.0])
GRADIENT = torch.tensor([1e-5, -3e-2, 0.5, 2e-4, -1e-3, 40.0])


def optimiser_for(mode: str, parameter: nn.Parameter, eps: float = 1e-8):
    rule = "sgd" if mode == "sgd" else "adamw"
    return build([Group([parameter], 3e-2, rule)], LearningConfig(adam_eps=eps))[0]


def moved(mode: str, importance: torch.Tensor | float | None, steps: int = 1, eps: float = 1e-8) -> torch.Tensor:
    """The scores after some steps along the same gradient."""
    parameter = nn.Parameter(START.clone())
    optimiser = optimiser_for(mode, parameter, eps)
    mask = None if importance is None else SoftMask(torch.as_tensor(importance).expand(len(START)).clone(), mode)
    for k in range(steps):
        parameter.grad = GRADIENT * (1 + 0.3 * k)
        if mask:
            mask.before_step(parameter)
        optimiser.step()
        if mask:
            mask.after_step(parameter)
    return parameter.detach()


@pytest.mark.parametrize("mode", MODES)
def test_no_importance_is_no_mask_bit_for_bit(mode):
    assert torch.equal(moved(mode, 0.0, steps=5), moved(mode, None, steps=5))


@pytest.mark.parametrize("mode", MODES)
def test_full_importance_moves_nothing_bit_for_bit(mode):
    assert torch.equal(moved(mode, 1.0, steps=5), START)


def test_update_is_exact_at_both_ends_whatever_the_sizes():
    """old + keep * (new - old) would round."""
    old, new = torch.randn(1000) * 1e3, torch.randn(1000) * 1e-3
    for keep, expected in ((0.0, old), (1.0, new)):
        parameter = nn.Parameter(old.clone())
        mask = SoftMask(torch.full((1000,), 1 - keep), "update")
        mask.before_step(parameter)
        parameter.data.copy_(new)
        mask.after_step(parameter)
        assert torch.equal(parameter.detach(), expected)


@pytest.mark.parametrize("mode", ["update", "sgd"])
@pytest.mark.parametrize("keep", [0.05, 0.25, 0.5])
def test_doubling_what_is_kept_doubles_the_first_step(mode, keep):
    """In double precision through the difference: float32 scores round their last bit."""
    one = moved(mode, 1 - keep).double() - START.double()
    two = moved(mode, 1 - 2 * keep).double() - START.double()
    torch.testing.assert_close(two, 2 * one, rtol=2e-3, atol=2e-6)


def test_in_grad_mode_adam_divides_the_mask_out():
    one, two, free = moved("grad", 0.9), moved("grad", 0.8), moved("grad", None)
    torch.testing.assert_close(one - START, free - START, rtol=2e-2, atol=1e-6)
    torch.testing.assert_close(two - START, free - START, rtol=2e-2, atol=1e-6)


def test_update_is_a_learning_rate_for_each_score():
    keep = torch.tensor([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    free = moved("update", None) - START
    torch.testing.assert_close(moved("update", 1 - keep) - START, keep * free, rtol=1e-4, atol=1e-6)


def test_mask_multiplies_the_gradient_only_in_the_other_modes():
    for mode in MODES:
        parameter = nn.Parameter(START.clone())
        parameter.grad = GRADIENT.clone()
        SoftMask(torch.full_like(START, 0.75), mode).before_step(parameter)
        assert torch.equal(parameter.grad, GRADIENT if mode == "update" else GRADIENT * 0.25)


@pytest.mark.parametrize("gradient", [1e-9, 1e-8, 1e-6, 1e-3])
@pytest.mark.parametrize("importance", [0.1, 0.5, 0.9, 0.99])
def test_rho_is_what_adam_does(gradient, importance):
    """The masked step over the unmasked one, measured with torch's AdamW at its first step."""
    rho = relative_step(torch.tensor(importance, dtype=torch.double), torch.tensor(gradient, dtype=torch.double), 1e-8)
    steps = []
    for keep in (1.0, 1 - importance):
        parameter = nn.Parameter(torch.zeros(1, dtype=torch.double))
        optimiser = torch.optim.AdamW([parameter], lr=1.0, eps=1e-8, weight_decay=0.0)
        parameter.grad = torch.full((1,), gradient * keep, dtype=torch.double)
        optimiser.step()
        steps.append(parameter.item())
    assert steps[1] / steps[0] == pytest.approx(float(rho), rel=1e-6)


def test_rho_has_its_published_values():
    assert float(relative_step(torch.tensor(0.9), torch.tensor(1e-5), 1e-8)) == pytest.approx(0.99, abs=0.002)
    assert float(relative_step(torch.tensor(0.9), torch.tensor(1e-12), 1e-8)) == pytest.approx(0.1, abs=0.001)
    assert float(relative_step(torch.tensor(1.0), torch.tensor(1e-5), 1e-8)) == 0.0


def test_uncorrected_adamw_is_the_old_formula():
    """w -= lr * sqrt(1-b2^k)/(1-b1^k) * m / (sqrt(v) + eps): epsilon on the uncorrected root."""
    parameter = nn.Parameter(START.clone().double())
    optimiser = UncorrectedAdamW([parameter], lr=0.01, eps=1e-6)
    w, m, v = START.double(), torch.zeros(6).double(), torch.zeros(6).double()
    for k in range(1, 8):
        g = GRADIENT.double() * (1 + 0.5 * (-1) ** k)
        parameter.grad = g.clone()
        optimiser.step()
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w = w - 0.01 * (1 - 0.999**k) ** 0.5 / (1 - 0.9**k) * m / (v.sqrt() + 1e-6)
        torch.testing.assert_close(parameter.detach(), w, rtol=1e-10, atol=1e-14)


def test_uncorrected_epsilon_leaves_the_mask_partly_alive():
    """r = 1e-5, I = 0.9: rho = 0.11 at step 1 and 0.30 at step 100, where torch's own AdamW gives 0.99."""
    for steps, expected in ((1, 0.11), (100, 0.30)):
        change = []
        for keep in (1.0, 0.1):
            parameter = nn.Parameter(torch.zeros(1, dtype=torch.double))
            optimiser = UncorrectedAdamW([parameter], lr=1.0)
            for _ in range(steps):
                before = parameter.item()
                parameter.grad = torch.full((1,), 1e-5 * keep, dtype=torch.double)
                optimiser.step()
            change.append(parameter.item() - before)
        assert change[1] / change[0] == pytest.approx(expected, abs=0.02)


def test_optimisers_follow_the_options():
    parameter = nn.Parameter(START.clone())
    group = Group([parameter], 0.1)
    plain = build([group], LearningConfig(adam_eps=1e-7))[0]
    assert isinstance(plain, torch.optim.AdamW)
    assert plain.param_groups[0]["weight_decay"] == 0.0 and plain.param_groups[0]["eps"] == 1e-7
    old = build([group], LearningConfig(adam_eps=1e-6, adam_eps_uncorrected=True))[0]
    assert isinstance(old, UncorrectedAdamW) and old.param_groups[0]["eps"] == 1e-6
    sgd = build([Group([parameter], 0.1, "sgd")], LearningConfig())[0]
    assert isinstance(sgd, torch.optim.SGD)
    assert build([Group([], 0.1)], LearningConfig()) == []


@pytest.mark.parametrize("mode", MODES)
def test_many_masks_at_once_are_the_same_as_one_by_one(mode):
    torch.manual_seed(0)
    values = [torch.randn(shape) for shape in ((3, 4), (5,), (2, 2))]
    importances = [torch.rand_like(value) for value in values]
    found = []
    for together in (False, True):
        parameters = [nn.Parameter(value.clone()) for value in values]
        for p in parameters[:2]:  # the third has no gradient
            p.grad = torch.ones_like(p)
        optimiser = torch.optim.AdamW(parameters, lr=0.1)
        masks = SoftMasks(importances, mode)
        single = [SoftMask(importance, mode) for importance in importances]
        if together:
            masks.before_step(parameters)
            optimiser.step()
            masks.after_step(parameters)
        else:
            for mask, p in zip(single, parameters, strict=True):
                mask.before_step(p)
            optimiser.step()
            for mask, p in zip(single, parameters, strict=True):
                mask.after_step(p)
        found.append([p.detach() for p in parameters])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    assert not torch.equal(found[0][0], values[0])
