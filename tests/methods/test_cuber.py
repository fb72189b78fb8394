"""CUBER: directions by hand and against an SVD, its three regimes, and updates that leave old inputs alone."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from small_lessons import small_lesson, small_method

from tss.errors import ConfigError
from tss.gates.subspace import directions, energies, regime
from tss.learning.loop import train
from tss.learning.schedule import LearningConfig

FEW = LearningConfig(max_steps=6, batch_size=6, eval_steps=6, select="last")
# Settings that put every matrix and task into one regime.
ALWAYS = {
    1: {"cuber_eps1": 2.0},
    2: {"cuber_eps1": 0.0, "cuber_eps2": 2.0},
    3: {"cuber_eps1": 0.0, "cuber_eps2": -2.0},
}


def unit(*places: int, width: int = 4) -> torch.Tensor:
    return torch.eye(width)[:, list(places)]


def energy(*values: float) -> torch.Tensor:
    return torch.diag(torch.tensor(values, dtype=torch.float64))


def test_directions_of_a_first_task():
    memory, chosen = directions(unit(), energy(9, 1, 0, 0), 0.89)
    assert memory.abs().tolist() == unit(0).tolist() and chosen.tolist() == [True]
    memory, chosen = directions(unit(), energy(9, 1, 0, 0), 0.91)
    assert memory.abs().tolist() == unit(0, 1).tolist() and chosen.tolist() == [True, True]


def test_old_and_new_directions_compete():
    memory, chosen = directions(unit(0, 1), energy(4, 0.1, 5, 0), 0.9)
    assert memory.shape == (4, 3) and memory[:, 2].abs().tolist() == unit(2).flatten().tolist()
    assert chosen.tolist() == [True, False, True]  # 5 + 4 reach 0.9 of 9.1; the old second direction is not the task's
    memory, chosen = directions(unit(0), energy(9.5, 0.2, 0.2, 0.1), 0.9)
    assert memory.shape == (4, 1) and chosen.tolist() == [True]  # the old direction alone suffices


def test_no_input_and_a_full_memory():
    assert directions(unit(0), energy(0, 0, 0, 0), 0.9)[1].tolist() == [False]
    memory, chosen = directions(unit(0, 1, 2, 3), energy(4, 3, 2, 1), 0.8)
    assert memory.shape == (4, 4) and chosen.tolist() == [True, True, True, False]


def test_directions_against_a_singular_value_decomposition():
    seen = torch.randn(6, 40, dtype=torch.float64) * torch.tensor([5.0, 3.0, 2.0, 1.0, 0.5, 0.1])[:, None]
    first = directions(torch.zeros(6, 0), seen @ seen.T, 0.9)[0]
    left, sigma, _ = torch.linalg.svd(seen, full_matrices=False)
    count = int((sigma.square().cumsum(0) < 0.9 * seen.square().sum()).sum()) + 1
    assert first.shape[1] == count
    projected = (first.double() @ first.double().T) @ left[:, :count]
    torch.testing.assert_close(projected, left[:, :count], atol=1e-6, rtol=0)
    other = torch.randn(6, 40, dtype=torch.float64)
    both, chosen = directions(first, other @ other.T, 0.9)
    torch.testing.assert_close(both.T @ both, torch.eye(both.shape[1]), atol=1e-6, rtol=0)
    basis = both[:, chosen].double()
    assert float((basis.T @ other).square().sum() / other.square().sum()) >= 0.9


@pytest.mark.parametrize(
    ("basis", "before", "found", "share"),
    [
        (unit(2, 3), [1.0, 1.0, 0.0, 0.0], 1, 0.0),
        (unit(1), [0.0, 1.0, 0.0, 0.0], 3, 0.8),
        (unit(1), [0.0, -1.0, 0.0, 0.0], 2, 0.8),
        (unit(1), [1.0, -1.0, 0.0, 0.0], 2, 0.8),
        (unit(0, 1), [0.0, 0.0, 1.0, 0.0], 3, 1.0),  # a right angle is not against
        (unit(), [1.0, 0.0, 0.0, 0.0], 1, 0.0),
    ],
)
def test_regimes_by_hand(basis, before, found: int, share: float):
    g = torch.tensor([[0.6, 0.8, 0.0, 0.0]])
    assert regime(g, basis, torch.tensor([before]), 0.5, 0.0) == (found, pytest.approx(share))


@pytest.fixture
def two():
    """Two tasks on one backbone."""
    first = small_lesson("classification")
    return first, small_lesson("tagging", backbone=first.backbone)


def after_one(two, **options):
    """CUBER, the first task learnt."""
    method = small_method(two[0], "cuber", **{"cuber_lr": 1.0, **options})
    method.begin(two[0], train)
    train([two[0]], method, FEW)
    method.end(two[0])
    return method


def test_each_regime_is_reached(two):
    """The same gradient in, along and against what the first task left, at one matrix each."""
    method = after_one(two, cuber_top=1)
    method.begin(two[1], train)
    g = method.bank.matrices(method._gradient(two[1]))
    past = method.bank.matrices(method.gradients[0].float())
    for i in (0, 2, 4):
        inside = torch.linalg.svd(g[i], full_matrices=True)[2].T  # rows of g lie in the first 4 of 16 columns
        method.memory[i] = inside[:, -4:] if i == 0 else inside[:, :4]
        method.columns[0][i] = torch.ones(4, dtype=torch.bool)
        past[i].copy_(g[i] if i == 4 else -g[i])
    method.gradients[0] = torch.cat([m.flatten() for m in past])
    method.begin(two[1], train)
    assert [method.regimes[i] for i in (0, 2, 4)] == [[1], [2], [3]]
    assert [method.blocked[i].shape[1] for i in (0, 2, 4)] == [4, 4, 0]
    assert "0.0" not in method.scales and {"2.0", "4.0"} <= set(method.scales)
    assert [i for i in method.free if i in (0, 2, 4)] == [4]
    method.end(two[1])
    assert sum(method.facts()[f"regime_{n}"] for n in (1, 2, 3)) == pytest.approx(1.0)


@pytest.mark.parametrize("rule", ["sgd", "adamw"])
@pytest.mark.parametrize("number", [1, 2])
def test_projected_updates_are_orthogonal_to_old_bases(two, number: int, rule: str):
    method = after_one(two, cuber_rule=rule, cuber_lr={"sgd": 3.0, "adamw": 0.01}[rule], **ALWAYS[number])
    before = method.weights.detach().clone()
    method.begin(two[1], train)
    assert {found for each in method.regimes for found in each} == {number}
    train([two[1]], method, FEW)
    moved = method.bank.matrices(method.weights.detach() - before)
    assert sum(float(m.norm()) for m in moved) > 1e-3
    for i, each in enumerate(moved):
        basis = method.basis(i, 0)
        assert basis.shape[1] > 0
        assert float((each @ basis).norm()) < 1e-6 + 1e-4 * float(each.norm())


def test_old_inputs_change_by_what_was_left_out_of_their_energy(two):
    method = after_one(two, **ALWAYS[1])
    passes = [lambda added, b=b: two[0].logits(b, added) for b in two[0].batches(two[0].train.rows, 1)]
    for i, found in enumerate(energies(method.bank, method.weights, method.biases, passes)):
        basis = method.basis(i, 0).double()
        outside = found.trace() - (basis.T @ found @ basis).trace()
        assert float(outside) <= (1 - 0.97) * float(found.trace()) + 1e-9


def test_regime_3_moves_old_directions_but_not_far(two):
    drifts = []
    for weight in (0.0, 20.0):
        method = after_one(two, cuber_lambda=weight, cuber_rule="adamw", cuber_lr=0.01, **ALWAYS[3])
        method.begin(two[1], train)
        train([two[1]], method, FEW)
        assert len(method.free) == len(method.memory) and not any(b.shape[1] for b in method.blocked)
        drifts.append(method.drift().item())
    assert 0 < drifts[1] < drifts[0]


def test_the_drift_by_hand(two):
    method = after_one(two, **ALWAYS[3])
    method.begin(two[1], train)
    with torch.no_grad():
        method.weights.add_(0.1)
    expected = sum(
        float((0.1 * torch.ones(s.rows, s.columns) @ method.basis(i, 0) @ method.basis(i, 0).T).square().sum())
        for i, s in enumerate(method.bank.segments)
    )
    assert method.drift().item() == pytest.approx(expected, rel=1e-4)


def test_scaled_weight_projection(two):
    method = after_one(two, **ALWAYS[2])
    method.begin(two[1], train)
    torch.testing.assert_close(method.effective(method.scales, method.bases), method.weights, atol=1e-7, rtol=0)
    with torch.no_grad():
        method.scales["1.0"].mul_(3.0)
    weights, basis = method.bank.matrices(method.weights)[1], method.basis(1, 0)
    by_hand = weights + weights @ basis @ (2.0 * torch.eye(basis.shape[1])) @ basis.T
    made = method.bank.matrices(method.effective(method.scales, method.bases))
    torch.testing.assert_close(made[1], by_hand)
    x = torch.randn(3, 16)
    down = method.bank.matrices(method.weights)[0]
    found = method.passing().adapters[0](x)
    bias = method.biases.view(-1, 20)[0]
    torch.testing.assert_close(found, F.relu(x @ down.T + bias[:4]) @ by_hand.T + bias[4:], atol=1e-5, rtol=1e-4)


def test_scales_are_learnt_kept_and_recalled(two):
    method = after_one(two, **ALWAYS[2])
    method.begin(two[1], train)
    train([two[1]], method, FEW)
    method.end(two[1])
    kept = method.kept()
    assert set(kept.tensors) == {f"scale.{i}.0" for i in range(len(method.memory))}
    assert any(not torch.equal(q, torch.eye(len(q))) for q in kept.tensors.values())
    batch = two[1].batch(two[1].train.rows)
    expected = two[1].logits(batch, method.passing())
    other = small_method(two[1], "cuber", **ALWAYS[2])
    other.load_shared(method.shared())
    torch.testing.assert_close(two[1].logits(batch, other.recall(kept)), expected)


def test_the_most_promising_tasks_are_scaled(two):
    method = after_one(two, **ALWAYS[2])
    method.begin(two[1], train)
    method.end(two[1])
    method.begin(two[0], train)
    method.end(two[0])
    method.begin(two[1], train)
    for i, g in enumerate(_g(method, two[1])):
        inside = [float((g @ method.basis(i, task)).norm()) for task in range(3)]
        scaled = [task for task in range(3) if f"{i}.{task}" in method.scales]
        assert len(scaled) == 2
        assert min(inside[task] for task in scaled) >= sorted(inside)[1] * (1 - 1e-5)
        blocked = method.blocked[i]  # of the overlapping bases of three tasks
        torch.testing.assert_close(blocked.T @ blocked, torch.eye(blocked.shape[1]), atol=1e-5, rtol=0)


def _g(method, lesson):
    scales, method.scales = method.scales, {}
    g = method._gradient(lesson)
    method.scales = scales
    return method.bank.matrices(g)


def test_biases_are_trained_by_the_first_task_only(two):
    method = small_method(two[0], "cuber")
    method.begin(two[0], train)
    assert any(p is method.biases for p in method.groups()[0].parameters)
    method.end(two[0])
    method.begin(two[1], train)
    assert not any(p is method.biases for p in method.groups()[0].parameters)


def test_what_is_shared_is_measured(two):
    method = after_one(two)
    state = method.shared()
    assert method.facts()["shared_bytes"] == sum(t.numel() * t.element_size() for t in state.values())
    assert state["gradient.0"].dtype == torch.bfloat16 and state["columns.0.0"].dtype == torch.bool
    again = small_method(two[0], "cuber")
    again.load_shared(state)
    for mine in (method, again):
        mine.begin(two[1], train)
    assert again.regimes == method.regimes


def test_tau_grows_to_its_cap(two, monkeypatch):
    seen = []
    monkeypatch.setattr("tss.methods.cuber.directions", lambda m, e, tau: seen.append(tau) or directions(m, e, tau))
    method = small_method(two[0], "cuber", cuber_tau=0.99, cuber_samples=2)
    for lesson in (*two, two[0]):
        method.begin(lesson, train)
        method.end(lesson)
    matrices = len(method.memory)
    assert seen == pytest.approx([0.99] * matrices + [0.993] * matrices + [0.995] * matrices)


@pytest.mark.parametrize("bad", [{"cuber_tau": 0.0}, {"cuber_samples": 0}, {"cuber_lr": 0.0}, {"cuber_rule": "rms"}])
def test_bad_options_are_refused(two, bad: dict):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        small_method(two[0], "cuber", **bad)
