"""EWC from its equations: the Fisher information, the penalty, and both ways of adding tasks up."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from shared_checks import assert_same_bits, open_learner, state
from small_lessons import small_lesson, small_method
from tiny import tiny_path
from toy_tasks import toy

from tss.backbones.backbone import Pass
from tss.errors import ConfigError
from tss.learning.loop import train
from tss.methods.ewc import Ewc, EwcConfig


def begun(kind: str = "classification", **options) -> tuple[Ewc, object]:
    lesson = small_lesson(kind)
    method = small_method(lesson, "ewc", **options)
    method.begin(lesson, train)
    return method, lesson


def by_autograd(lesson, size: int) -> dict[str, torch.Tensor]:
    """(1/N) sum_b B_b g_b^2 with the model's own parameters and `backward`, no stand-ins."""
    model = lesson.backbone.model.requires_grad_(True)
    total = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for batch in lesson.batches(lesson.train.rows, size):
        model.zero_grad(set_to_none=True)
        lesson.loss(batch, Pass()).backward()
        for name, p in model.named_parameters():
            if p.grad is not None:
                total[name] += len(batch) / len(lesson.train) * p.grad**2
    model.requires_grad_(False)
    return total


@pytest.mark.parametrize(
    ("kind", "fisher", "size"),
    [("classification", "batch", 8), ("tagging", "sample", 1), ("generation", "batch", 2)],
)
def test_the_fisher_information_against_autograd(kind: str, fisher: str, size: int):
    method, lesson = begun(kind, fisher=fisher)
    found, wanted = method._fisher(lesson), by_autograd(lesson, size)
    assert found.keys() == wanted.keys()
    assert sum(float(f.sum()) for f in found.values()) > 0
    for name, f in found.items():
        torch.testing.assert_close(f, wanted[name], rtol=1e-4, atol=1e-12)


def test_the_fisher_loss_has_no_penalty_and_no_dropout():
    method, lesson = begun()
    alone = method._fisher(lesson)
    method.fisher = {name: torch.full_like(p, 1e3) for name, p in method.weights.items()}
    method.anchor = {name: p.detach() + 1.0 for name, p in method.weights.items()}
    assert_same_bits(alone, method._fisher(lesson))


def test_terms_that_are_no_numbers_are_left_out(monkeypatch: pytest.MonkeyPatch):
    method, lesson = begun()
    monkeypatch.setattr(lesson, "loss", lambda batch, added: method.weights["model.shared.weight"].sum() * float("inf"))
    assert all(torch.equal(f, torch.zeros_like(f)) for f in method._fisher(lesson).values())


def test_the_penalty_is_zero_at_the_anchor_and_a_parabola_around_it():
    method, lesson = begun(ewc_lambda=3.0)
    batch = lesson.batch(lesson.train.rows)
    assert torch.equal(method.loss(lesson, batch), lesson.loss(batch, method.passing()))  # the first task has none
    method.end(lesson)
    method.begin(lesson, train)
    assert method.penalty().item() == 0.0
    method.penalty().backward()
    assert all(float(p.grad.abs().max()) == 0.0 for p in method.weights.values())
    with torch.no_grad():
        for p in method.weights.values():
            p.add_(0.1)
    by_hand = sum(float((f.double() * (p - a).double() ** 2).sum()) for f, p, a in _triples(method)) * 3.0 / 2
    assert by_hand > 0 and method.penalty().item() == pytest.approx(by_hand, rel=1e-5)
    plain = lesson.loss(batch, method.passing())
    assert method.loss(lesson, batch).item() == pytest.approx(plain.item() + by_hand, rel=1e-5)


def _triples(method: Ewc):
    return [(method.fisher[n], p.detach(), method.anchor[n]) for n, p in method.weights.items()]


def accumulated(accum: str, monkeypatch: pytest.MonkeyPatch) -> Ewc:
    """Three tasks whose Fisher is 1, 4, 10 everywhere and whose weights end at 0, 1, 3."""
    method, lesson = begun(ewc_accum=accum, ewc_lambda=2.0)
    for fisher, weight in ((1.0, 0.0), (4.0, 1.0), (10.0, 3.0)):
        method.begin(lesson, train)
        with torch.no_grad():
            for p in method.weights.values():
                p.fill_(weight)
        same = {name: torch.full_like(p, fisher) for name, p in method.weights.items()}
        monkeypatch.setattr(method, "_fisher", lambda lesson, same=same: same)
        method.end(lesson)
        method.load_shared(method.shared())
    method.begin(lesson, train)
    return method


def test_mean_accumulation(monkeypatch: pytest.MonkeyPatch):
    method = accumulated("mean", monkeypatch)
    for f, _, a in _triples(method):
        assert torch.allclose(f, torch.full_like(f, 5.0))  # ((1 + 4) / 2 * 2 + 10) / 3
        assert torch.equal(a, torch.full_like(a, 3.0))
    assert not any(name.startswith("anchor.") for name in method.shared())


def test_sum_accumulation_is_one_penalty_a_task(monkeypatch: pytest.MonkeyPatch):
    method = accumulated("sum", monkeypatch)
    for f, _, a in _triples(method):
        assert torch.allclose(f, torch.full_like(f, 15.0))
        assert torch.allclose(a, torch.full_like(a, (4 * 1 + 10 * 3) / 15))
    method.penalty().backward()
    slope = 2.0 * (1 * (3 - 0) + 4 * (3 - 1) + 10 * (3 - 3))  # of the three penalties at weight 3
    assert all(torch.allclose(p.grad, torch.full_like(p, slope), rtol=1e-4) for p in method.weights.values())


def test_without_lambda_it_is_ncl_and_with_it_weights_stay_nearer(tmp_path: Path):
    learners = {}
    for name, method, options in (
        ("ncl", "ncl", {}),
        ("zero", "ewc", {"ewc_lambda": 0.0}),
        ("strong", "ewc", {"ewc_lambda": 1e4}),
    ):
        learners[name] = open_learner(tmp_path / name, tiny_path("bart"), method, max_steps=4, **options)
        learners[name].learn(toy("pair"))
    fisher = {n.removeprefix("fisher."): t for n, t in learners["zero"].method.shared().items() if "fisher." in n}
    anchor = {n: p.detach().clone() for n, p in learners["zero"].method.weights.items()}
    moved = {}
    for name, learner in learners.items():
        learner.learn(toy("generation"))
        weights = learner.method.weights
        moved[name] = sum(float((f * (weights[n] - anchor[n]).square()).sum()) for n, f in fisher.items())
    assert moved["strong"] < 0.5 * moved["zero"]
    lm = [{k: v for k, v in state(learners[name], "toy generation").items() if "lm." in k} for name in ("ncl", "zero")]
    assert_same_bits(*lm)


@pytest.mark.parametrize("wrong", [{"ewc_accum": "max"}, {"fisher": "x"}, {"ewc_lambda": -1.0}, {"fisher_batch": 0}])
def test_wrong_options(wrong: dict):
    with pytest.raises(ConfigError):
        EwcConfig(**wrong)
