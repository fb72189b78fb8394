"""HAT against numbers worked by hand: annealing, masks, blocking, compensation; and strict isolation."""

from __future__ import annotations

from math import cosh
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from shared_checks import open_learner
from small_lessons import small_lesson, small_method
from tiny import tiny_path
from toy_tasks import toy

from tss.errors import ConfigError
from tss.learning.loop import train
from tss.learning.schedule import LearningConfig
from tss.methods.hat import annealed, compensation, regulariser
from tss.methods.method import Moment

FEW = LearningConfig(max_steps=6, batch_size=4, eval_steps=3)
INNER, OUTER = 4, 16  # bottleneck and width of the tiny adapters


@pytest.fixture
def lesson():
    return small_lesson("classification")


def begun(lesson, **options):
    method = small_method(lesson, "hat", **options)
    method.begin(lesson, train)
    return method


@pytest.mark.parametrize(
    ("batch", "batches", "scale"),
    [
        (0, 5, 0.0025),
        (1, 5, 100.001875),
        (2, 5, 200.00125),
        (4, 5, 400.0),
        (0, 2, 0.0025),
        (1, 2, 400.0),
        (0, 1, 400.0),
    ],
)
def test_the_scale_rises_within_an_epoch(batch: int, batches: int, scale: float):
    assert annealed(batch, batches, 400.0) == pytest.approx(scale, rel=1e-12)


def test_the_loop_anneals_in_every_epoch_and_answers_with_the_largest_scale(lesson, monkeypatch):
    method = begun(lesson)
    scales: dict[str, list[float]] = {"trained": [], "answered": []}
    loss, passing = method.loss, method.passing
    monkeypatch.setattr(method, "loss", lambda *a: scales["trained"].append(method._scale) or loss(*a))
    monkeypatch.setattr(method, "passing", lambda *a: scales["answered"].append(method._scale) or passing(*a))
    train([lesson], method, FEW)
    assert scales["trained"] == pytest.approx([0.0025, 200.00125, 400.0] * 2)
    assert scales["answered"] == [400.0, 400.0]
    assert method.moment is None


def test_masks_gate_the_units_of_the_adapter(lesson):
    """a = m2 (W2 (m1 relu(W1 x + b1)) + b2), though the code folds the masks into the weights."""
    method = begun(lesson, hat_smax=3.0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        method.biases.normal_(generator=generator)
        method.weights.normal_(generator=generator)
    x = torch.randn(5, OUTER, generator=generator)
    mask = torch.sigmoid(3.0 * method.embedding).view(-1, INNER + OUTER)
    biases, matrices = method.biases.view(-1, INNER + OUTER), method.bank.matrices(method.weights)
    for site, adapter in enumerate(method.passing().adapters):
        inner, outer = mask[site].split([INNER, OUTER])
        b1, b2 = biases[site].split([INNER, OUTER])
        h = inner * F.relu(x @ matrices[2 * site].T + b1)
        torch.testing.assert_close(adapter(x), outer * (h @ matrices[2 * site + 1].T + b2))


def with_used_units(lesson, mode: str):
    """Site 0: bottleneck unit 1 used 0.8, output unit 3 used 0.5, all others free."""
    method = small_method(lesson, "hat", hat_block=mode)
    method.used[1], method.used[INNER + 3] = 0.8, 0.5
    method.begin(lesson, train)
    return method


def expected_freedom(method) -> tuple[torch.Tensor, torch.Tensor]:
    weights, biases = torch.ones(method.bank.size), torch.ones(method.bank.bias_size)
    down, up = method.bank.matrices(weights)[:2]
    down[1] = 0.2  # what W1 reads counts as used: the row of a used unit is blocked whole
    up[3, 1] = 0.5  # 1 - min(0.5, 0.8)
    biases[1], biases[INNER + 3] = 0.2, 0.5
    return weights, biases


def test_gradients_are_blocked(lesson):
    method = with_used_units(lesson, "grad")
    for parameter in (method.weights, method.biases, method.embedding):
        parameter.grad = torch.ones_like(parameter)
    method.before_step()
    weights, biases = expected_freedom(method)
    torch.testing.assert_close(method.weights.grad, weights)
    torch.testing.assert_close(method.biases.grad, biases)


def test_updates_are_blocked(lesson):
    method = with_used_units(lesson, "update")
    starts = [p.detach().clone() for p in (method.weights, method.biases)]
    method.before_step()
    with torch.no_grad():
        method.weights.add_(1.0)
        method.biases.add_(1.0)
    method.after_step()
    for parameter, start, freedom in zip(
        (method.weights, method.biases), starts, expected_freedom(method), strict=True
    ):
        torch.testing.assert_close(parameter.detach() - start, freedom)


def test_compensation_by_hand():
    e = torch.tensor([0.0, 1.0, -1.0])
    by_hand = 2.0 * (cosh(2.0) + 1) / (cosh(1.0) + 1)
    assert by_hand == pytest.approx(3.74522, abs=1e-5)
    assert compensation(e, 2.0, 4.0).tolist() == pytest.approx([2.0, by_hand, by_hand])


def test_a_compensated_gradient_does_not_depend_on_the_scale():
    found = []
    for scale in (0.0025, 0.3, 3.0):
        e = torch.tensor([-2.0, 0.1, 2.0], requires_grad=True)
        torch.sigmoid(scale * e).sum().backward()
        found.append(e.grad * compensation(e.detach(), scale, 400.0))
    torch.testing.assert_close(found[0], 400.0 / (2 * (torch.cosh(e.detach()) + 1)))  # s_max sigmoid'(e)
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found[2], found[0], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("scale", [0.0025, 1.0, 50.0, 400.0])
def test_compensation_is_finite_at_the_clamp(scale: float):
    e = torch.tensor([-6.0, 6.0], requires_grad=True)
    torch.sigmoid(scale * e).sum().backward()
    factor = compensation(e.detach(), scale, 400.0)
    assert factor.isfinite().all() and (factor > 0).all()
    gradient = e.grad * factor
    assert gradient.isfinite().all() and (gradient.abs() <= 101.0).all() and gradient.square().isfinite().all()


def test_embeddings_are_compensated_before_and_clamped_after_the_step(lesson):
    method = begun(lesson)
    method.moment = Moment(1, 3)
    method.embedding.grad = torch.full_like(method.embedding, 1e-3)
    method.before_step()
    e = method.embedding.detach()
    torch.testing.assert_close(method.embedding.grad, 1e-3 * compensation(e, 200.00125, 400.0))
    with torch.no_grad():
        method.embedding.mul_(100.0)
    method.after_step()
    assert method.embedding.abs().max() == 6.0


@given(st.lists(st.tuples(st.floats(0, 1, width=32), st.floats(0, 1, width=32)), min_size=1, max_size=20))
@settings(max_examples=50, deadline=None)
def test_the_regulariser_is_a_share(units: list[tuple[float, float]]):
    mask, used = torch.tensor(units).unbind(dim=1)
    assert 0.0 <= float(regulariser(mask, used)) <= 1.0 + 1e-6


def test_the_regulariser_by_hand(lesson):
    mask, used = torch.tensor([1.0, 0.5, 0.2, 1.0]), torch.tensor([0.0, 0.5, 0.0, 1.0])
    assert float(regulariser(mask, used)) == pytest.approx((1.0 + 0.25 + 0.2) / 2.5)
    assert float(regulariser(mask, torch.zeros(4))) == pytest.approx(mask.mean().item())
    assert float(regulariser(mask, torch.ones(4))) == 0.0
    method, batch = begun(lesson), lesson.batch(lesson.train.rows)
    with torch.no_grad():
        more = method.loss(lesson, batch) - lesson.loss(batch, method.passing())
    assert float(more) == pytest.approx(0.75 * method.mask().mean().item(), abs=1e-5)


@pytest.mark.parametrize("mode", ["update", "grad"])
def test_with_binary_masks_old_tasks_do_not_change(tmp_path: Path, mode: str):
    learner = open_learner(
        tmp_path / "store", tiny_path("bart"), "hat", hat_binary=True, hat_block=mode, batch_size=4, hat_lr=0.3
    )
    shared, used = [], []
    for kind in ("pair", "tagging", "generation"):
        facts = learner.learn(toy(kind)).facts
        shared.append(learner.store.read_shared())
        used.append(facts["units_used"])
        assert set(shared[-1]["used"].tolist()) == {0.0, 1.0}
        assert facts["units"] == shared[-1]["used"].numel()
    assert {check.name: check.status for check in learner.verify()} == {
        f"toy {k}": "equal" for k in ("pair", "tagging", "generation")
    }
    assert not torch.equal(shared[0]["weights"], shared[1]["weights"])
    assert not torch.equal(shared[1]["weights"], shared[2]["weights"])
    assert used == sorted(used) and used[0] < used[-1]


def test_a_task_keeps_its_mask(tmp_path: Path):
    learner = open_learner(tmp_path / "store", tiny_path("bart"), "hat")
    learner.learn(toy("pair"))
    mask = learner.store.read("toy pair").tensors["method.mask"]
    assert mask.shape == (learner.method.bank.bias_size,)
    assert torch.equal(learner.store.read_shared()["used"], mask)  # of one task


@pytest.mark.parametrize("bad", [{"hat_block": "none"}, {"hat_smax": 0.5}, {"hat_lambda": -1.0}, {"hat_lr": 0.0}])
def test_bad_options_are_refused(lesson, bad: dict):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        small_method(lesson, "hat", **bad)


@pytest.mark.parametrize(("batch", "batches"), [(0, 5), (1, 3), (4, 5), (0, 1)])
def test_the_scale_is_the_same_where_steps_are_recorded(batch: int, batches: int):
    method = small_method(small_lesson("classification"), "hat")
    method.embedding = torch.nn.Parameter(torch.linspace(-0.01, 0.01, method.layers.units))
    method.moment = Moment(batch, batches)
    plain = method.mask()
    method.moment = Moment(batch, batches, torch.tensor(batch / (batches - 1) if batches > 1 else 1.0))
    torch.testing.assert_close(method.mask(), plain)
