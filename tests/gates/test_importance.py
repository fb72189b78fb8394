"""Importance against plain loops over examples, its normalisation, and its accumulation."""

from __future__ import annotations

import pytest
import torch
from small_lessons import small_bank, small_lesson
from tiny import WIDTH

from tss.backbones.backbone import Pass
from tss.gates import importance
from tss.gates.importance import NORMS, REDUCTIONS, UNITS, accumulate, normalise, raw_importance
from tss.gates.scores import draw_scores, gated, open_gates

CASES = [("classification", "bart"), ("tagging", "bert"), ("generation", "t5"), ("generation", "gpt2")]


class Setting:
    """A lesson with a sub-network half open."""

    def __init__(self, kind: str, family: str, places: str = "ffn"):
        from tiny import tiny_loaded

        self.lesson = small_lesson(kind, backbone=tiny_loaded(family, places), count=11)
        self.bank = small_bank(self.lesson)
        self.fixed = 5 * self.bank.fixed()
        self.effective = self.fixed * open_gates(draw_scores(self.bank, "x"))

    def batches(self, size: int):
        return list(self.lesson.batches(self.lesson.train.rows, size))

    def raw(self, reduction: str, size: int = 4, scale: float = 1.0, biases=None) -> torch.Tensor:
        def losses(batch, added):
            return scale * self.lesson.row_losses(batch, added)

        args = (self.bank, self.effective, self.fixed, self.batches(size), losses, biases)
        return raw_importance(reduction, *args)

    def gradient(self, batch) -> torch.Tensor:
        """Of the mean loss of a batch, by plain autograd."""
        leaf = self.effective.clone().requires_grad_(True)
        return torch.autograd.grad(self.lesson.row_losses(batch, Pass(self.bank.functions(leaf))).mean(), leaf)[0]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "-".join(case))
def setting(request) -> Setting:
    return Setting(*request.param)


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert expected.abs().max() > 0
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5 * float(expected.abs().max()))


def test_signed_mean_is_the_mean_over_examples(setting):
    singles = [setting.gradient(batch) for batch in setting.batches(1)]
    close(setting.raw("signed_mean"), sum(singles) / len(singles) * setting.fixed)


def test_mean_abs_sample_is_one_example_at_a_time(setting):
    """The one batched backward gives what a backward an example gives."""
    singles = [setting.gradient(batch).abs() for batch in setting.batches(1)]
    close(setting.raw("mean_abs_sample"), sum(singles) / len(singles) * setting.fixed.abs())


def test_mean_abs_batch_is_one_batch_at_a_time(setting):
    wholes = [setting.gradient(batch).abs() for batch in setting.batches(4)]
    close(setting.raw("mean_abs_batch"), sum(wholes) / len(wholes) * setting.fixed.abs())


@pytest.mark.parametrize("family", ["bart", "bert", "distilbert", "t5", "llama"])
def test_per_example_gradients_at_the_attention_sites(family):
    setting = Setting("classification", family, "houlsby")
    singles = [setting.gradient(batch).abs() for batch in setting.batches(1)]
    close(setting.raw("mean_abs_sample"), sum(singles) / len(singles) * setting.fixed.abs())


@pytest.mark.parametrize("count", [1, 3, 64])
def test_how_many_examples_are_held_together_changes_nothing(monkeypatch, count):
    setting = Setting("classification", "bart")
    usual = setting.raw("mean_abs_sample", size=11)
    monkeypatch.setattr(importance, "AT_ONCE", count)
    close(setting.raw("mean_abs_sample", size=11), usual)


def test_a_gpu_holds_as_many_as_fit_some_mebibytes():
    assert importance.at_once(torch.empty(64, 1024)) == importance.AT_ONCE
    assert importance.at_once(torch.empty(64, 1024, device="meta")) == 256
    assert importance.at_once(torch.empty(4096, 4096, device="meta")) == importance.AT_ONCE


def test_more_than_eight_examples_a_batch():
    setting = Setting("classification", "bart")
    close(setting.raw("mean_abs_sample", size=11), setting.raw("mean_abs_sample", size=1))
    close(setting.raw("signed_mean", size=11), setting.raw("signed_mean", size=2))


def test_biases_are_part_of_the_pass():
    setting = Setting("classification", "bart")
    biases = torch.randn(setting.bank.bias_size)
    for reduction in REDUCTIONS:
        assert not torch.allclose(setting.raw(reduction), setting.raw(reduction, biases=biases))
    close(setting.raw("mean_abs_sample", biases=biases), setting.raw("mean_abs_sample", 1, biases=biases))


def test_closed_gates_count_for_scores_but_not_for_alpha():
    setting = Setting("classification", "bart")
    closed = setting.effective == 0
    assert bool((setting.raw("signed_mean")[closed] != 0).any())
    args = (setting.bank, setting.effective, setting.effective, setting.batches(4), setting.lesson.row_losses)
    assert bool((raw_importance("signed_mean", *args)[closed] == 0).all())


def test_score_importance_is_the_straight_through_gradient():
    """The factor w makes it the gradient of the scores themselves."""
    setting = Setting("classification", "bart")
    scores = draw_scores(setting.bank, "x").requires_grad_(True)
    (batch,) = setting.batches(11)
    added = Pass(setting.bank.functions(gated(scores, setting.fixed)))
    (expected,) = torch.autograd.grad(setting.lesson.row_losses(batch, added).mean(), scores)
    close(setting.raw("signed_mean", 11), expected)


def test_nothing_is_left_behind():
    setting = Setting("classification", "bart")
    for reduction in REDUCTIONS:
        setting.raw(reduction)
    assert all(p.grad is None for p in setting.lesson.head.parameters())
    assert all(p.grad is None for p in setting.lesson.backbone.model.parameters())


# Normalisation.


def by_hand(raw: torch.Tensor, bank, norm: str, unit: str, heat: float) -> torch.Tensor:
    """The formula, unit by unit, written out."""
    out = []
    matrices = bank.matrices(raw.double())
    for down, up in zip(matrices[::2], matrices[1::2], strict=True):
        if unit == "row":
            groups = [row for matrix in (down, up) for row in matrix]
        elif unit == "matrix":
            groups = [down.reshape(-1), up.reshape(-1)]
        else:
            groups = [torch.cat([down.reshape(-1), up.reshape(-1)])]
        for values in groups:
            z = (values - values.mean()) / ((values - values.mean()) ** 2).mean().sqrt()
            squashed = torch.tanh(z / heat)
            out.append(squashed.abs() if norm == "abs_tanh" else squashed.clamp(min=0))
    return torch.cat(out).float()


@pytest.fixture(scope="module")
def bank():
    return small_bank(small_lesson("classification"))


@pytest.mark.parametrize("heat", [1.0, 2.0])
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("norm", NORMS)
def test_normalisation_is_the_formula(bank, norm, unit, heat):
    raw = torch.randn(bank.size) ** 3
    found = normalise(raw, bank, norm, unit, heat)
    torch.testing.assert_close(found, by_hand(raw, bank, norm, unit, heat), rtol=1e-5, atol=1e-6)
    assert found.dtype == torch.float32
    assert bool((found >= 0).all()) and bool((found <= 1).all())


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("constant", [0.0, 1e-30, 0.1, -7.3])
def test_constant_raw_importance_gives_zero(bank, unit, constant):
    found = normalise(torch.full((bank.size,), constant), bank, unit=unit)
    assert torch.equal(found, torch.zeros(bank.size))


def test_one_constant_matrix_leaves_the_others_alone(bank):
    raw = torch.randn(bank.size)
    part = slice(bank.segments[1].start, bank.segments[1].stop)
    changed = raw.clone()
    changed[part] = 3.0
    found = normalise(changed, bank)
    assert bool((found[part] == 0).all())
    rest = torch.ones(bank.size, dtype=torch.bool)
    rest[part] = False
    assert torch.equal(found[rest], normalise(raw, bank)[rest])


@pytest.mark.parametrize("scale", [1e-20, 1e-6, 0.3, 1e4])
def test_the_scale_of_the_loss_does_not_matter(bank, scale):
    raw = torch.randn(bank.size) * 1e-3
    torch.testing.assert_close(normalise(raw, bank), normalise(raw * scale, bank), rtol=1e-4, atol=1e-6)


def test_the_scale_of_the_loss_does_not_matter_from_end_to_end():
    setting = Setting("classification", "bart")
    for reduction in REDUCTIONS:
        one, other = (normalise(setting.raw(reduction, scale=s), setting.bank) for s in (1.0, 1000.0))
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_extreme_values_stay_within_one(bank):
    raw = torch.zeros(bank.size)
    raw[3] = 1e30
    found = normalise(raw, bank)
    assert 0.99 < found[3] <= 1.0 and torch.isfinite(found).all()


def test_signed_and_absolute_need_their_own_norm(bank):
    """After a mean of absolute values the least important is far below the mean: abs_tanh would call it important."""
    raw = torch.rand(bank.size) ** 4
    least = raw < raw.quantile(0.05)
    assert bool((normalise(raw, bank, "relu_tanh")[least] == 0).all())
    assert normalise(raw, bank, "abs_tanh")[least].mean() > 0.3


def test_accumulation_never_falls():
    total = None
    for _ in range(5):
        new = torch.rand(WIDTH)
        later = accumulate(new, total)
        assert bool((later >= new).all())
        assert total is None or bool((later >= total).all())
        assert total is None or bool(((later == new) | (later == total)).all())
        total = later
