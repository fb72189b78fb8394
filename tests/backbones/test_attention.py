"""Attention on a CPU computes in float32 at least, and what is in float32 anyway stays what it was."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tiny import FAMILIES, tiny_path

from tss.backbones.backbone import Pass
from tss.backbones.load import load_backbone


@pytest.fixture
def asked(monkeypatch) -> list[torch.dtype]:
    """The type of every query that torch's attention is given."""
    seen, attention = [], F.scaled_dot_product_attention
    monkeypatch.setattr(
        F, "scaled_dot_product_attention", lambda query, *a, **k: seen.append(query.dtype) or attention(query, *a, **k)
    )
    return seen


def states(backbone) -> torch.Tensor:
    ids = torch.arange(24).view(2, 12) % 20 + 5
    mask = torch.ones_like(ids)
    mask[1, 8:] = 0
    return backbone.states(ids, mask, Pass())


@pytest.mark.parametrize("family", FAMILIES)
def test_float32_is_as_by_the_library(family, asked):
    backbone = load_backbone(str(tiny_path(family)))
    found = states(backbone)
    assert asked
    backbone.model.set_attn_implementation("sdpa")
    assert torch.equal(found, states(backbone))


@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16_attends_in_float32(family, asked):
    backbone = load_backbone(str(tiny_path(family)), dtype="bfloat16")
    assert states(backbone).dtype == torch.bfloat16
    assert set(asked) == {torch.float32}


def test_also_under_autocast(asked):
    backbone = load_backbone(str(tiny_path("bart")))
    backbone.autocast = torch.bfloat16
    exact = load_backbone(str(tiny_path("bart")))
    assert not torch.equal(states(backbone), states(exact))  # what is around it was narrowed
    assert set(asked) == {torch.float32}


def test_the_gradient_is_near_that_of_float32():
    found = []
    for dtype in ("bfloat16", "float32"):
        backbone = load_backbone(str(tiny_path("bart")), dtype=dtype)
        weight = next(p for name, p in backbone.model.named_parameters() if name.endswith("encoder_attn.q_proj.weight"))
        weight.requires_grad_(True)
        (gradient,) = torch.autograd.grad(states(backbone).float().square().sum(), weight)
        found.append(gradient.float().flatten())
    assert F.cosine_similarity(*found, dim=0) > 0.99
