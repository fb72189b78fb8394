"""What methods take, counted: the same numbers as worked by hand where that is easy."""

from __future__ import annotations

import pytest
from tiny import tiny_loaded

from tss.config import resolve
from tss.errors import BackboneError
from tss.learning.footprint import EPOCHS, Footprint, measure
from tss.methods import method_class


def found(name: str, backbone=None) -> Footprint:
    backbone, config = backbone or tiny_loaded("bart"), resolve(name, given={"bottleneck": 4})
    return measure(lambda: method_class(name)(backbone, config.adapter, config.method, 0), backbone)


@pytest.fixture(scope="module")
def bart():
    return tiny_loaded("bart")


def test_state(bart):
    lm = sum(p.numel() for p in bart.model.parameters())
    weights, biases = 4 * 2 * 4 * 16, 4 * (4 + 16)  # four sites
    assert found("supsup", bart) == Footprint(weights, weights // 8, 0, pytest.approx((2 + weights / lm) / 3))
    naive = found("tss-naive", bart)
    assert (naive.per_task, naive.shared) == (weights // 8, 4 * weights)
    assert (found("one", bart).per_task, found("one", bart).shared) == (4 * lm, 0)
    adapter = found("ncl-adapter", bart)
    assert (adapter.trained, adapter.per_task, adapter.shared) == (weights + biases, 0, 4 * (weights + biases))
    assert found("mtl", bart).shared == 4 * lm


def test_work(bart):
    assert found("ncl", bart).work == found("one", bart).work == found("mtl", bart).work == pytest.approx(1.0)
    assert found("ewc", bart).work == pytest.approx(1 + 1 / EPOCHS)  # one pass over the data with gradients
    assert found("l2p", bart).work > found("one-prompt", bart).work > found("supsup", bart).work  # queries; positions


def test_growth_is_told_apart_from_what_is_kept_once(bart):
    cuber = found("cuber", bart)
    assert cuber.per_task > 2 * 4 * 2 * 4 * 16 and cuber.shared > 0  # a gradient in bfloat16, directions, columns


def test_a_backbone_that_does_not_suit_is_told():
    with pytest.raises(BackboneError, match="BART-shaped"):
        found("das", tiny_loaded("gpt2"))


def test_counting_leaves_no_hooks(bart):
    found("supsup", bart)
    layers = bart.model.get_submodule(bart.layout.stacks[0].layers)
    assert all(not layer._forward_pre_hooks for layer in layers)
