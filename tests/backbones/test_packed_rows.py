"""Packed rows give the states, logits and gradients of the padded ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from small_lessons import small_lesson
from tiny import ENCODER_DECODERS, tiny_loaded

from tss.backbones.backbone import Pass
from tss.backbones.load import load_backbone
from tss.backbones.packed import Laid
from tss.tasks.batches import IGNORED, Batch

FAMILIES = ("bart-nano", *ENCODER_DECODERS)


def backbone_of(family: str):
    """In float64, where only a mistake makes a difference."""
    backbone = load_backbone() if family == "bart-nano" else tiny_loaded(family)
    backbone.model.double()
    return backbone


def batch_of(backbone, kind: str) -> Batch:
    lesson = small_lesson(kind, count=24, backbone=backbone)
    return lesson.table(lesson.train).batch(range(3, 20), packed=True)


def adapters(backbone) -> tuple[Pass, torch.Tensor]:
    """Something at every site, and what it is scaled by."""
    width, scale = backbone.width, torch.full((), 0.05, dtype=torch.float64, requires_grad=True)
    draw = torch.Generator().manual_seed(0)
    each = [torch.randn(width, width, generator=draw, dtype=torch.float64) for _ in range(backbone.sites.count)]
    return Pass([lambda x, m=m: scale * torch.relu(x @ m) / width**0.5 for m in each]), scale


def laid(batch: Batch) -> list[Laid]:
    return [Laid.of(index, each) for index, each in zip(batch.packing, (batch.ids, batch.target), strict=False)]


@pytest.mark.parametrize("family", FAMILIES)
def test_states_and_their_gradient(family):
    backbone = backbone_of(family)
    batch = batch_of(backbone, "tagging")
    added, scale = adapters(backbone)
    padded = backbone.states(batch.ids, batch.mask, added)
    with backbone.packed(laid(batch)):
        packed = backbone.states(batch.ids, batch.mask, added)
    real = batch.mask.bool()
    assert batch.packing[0].shape[0] < len(batch) and packed.shape == padded.shape
    torch.testing.assert_close(packed[real], padded[real])
    assert not packed[~real].any()
    weight = torch.randn(padded.shape, dtype=torch.float64) * batch.mask.unsqueeze(-1)
    want, found = (torch.autograd.grad((weight * states).sum(), scale) for states in (padded, packed))
    torch.testing.assert_close(found, want)


@pytest.mark.parametrize("family", FAMILIES)
def test_target_logits_and_their_gradient(family):
    backbone = backbone_of(family)
    batch = batch_of(backbone, "generation")
    added, scale = adapters(backbone)
    source, wanted = laid(batch)
    target = batch.target.masked_fill(batch.target == IGNORED, backbone.text.pad)
    padded = wanted.lay(backbone.target_logits(batch.ids, batch.mask, target, added))
    with backbone.packed([source, wanted]):
        packed = backbone.target_logits(batch.ids, batch.mask, wanted.lay(target, backbone.text.pad), added)
    real = wanted.index >= 0
    torch.testing.assert_close(packed[real], padded[real])
    weight = torch.randn(padded.shape, dtype=torch.float64) * real.unsqueeze(-1)
    want, found = (torch.autograd.grad((weight * logits).sum(), scale) for logits in (padded, packed))
    torch.testing.assert_close(found, want)
    assert torch.isfinite(packed).all()


def passes(backbone) -> dict[str, Pass]:
    added, _ = adapters(backbone)

    def prefix(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.ones(len(ids), 2, backbone.width, dtype=torch.float64)

    return {
        "prefix": replace(added, prefix=prefix),
        "copies": replace(added, copies=2, reading=lambda states: states.mean(dim=0)),
        "fitting": Pass(
            fitting=lambda ids, mask: [lambda x: x * mask.sum(dim=1)[:, None, None]] * backbone.sites.count
        ),
    }


@pytest.mark.parametrize("name", ["prefix", "copies", "fitting"])
def test_passes_that_depend_on_rows_are_computed_padded(name):
    backbone = backbone_of("bart")
    added = passes(backbone)[name]
    batch = batch_of(backbone, "generation")
    source, wanted = laid(batch)
    target = batch.target.masked_fill(batch.target == IGNORED, backbone.text.pad)
    states = backbone.states(batch.ids, batch.mask, added)
    logits = wanted.lay(backbone.target_logits(batch.ids, batch.mask, target, added))
    with backbone.packed([source, wanted]):
        assert torch.equal(backbone.states(batch.ids, batch.mask, added), states)
        found = backbone.target_logits(batch.ids, batch.mask, wanted.lay(target, backbone.text.pad), added)
    real = wanted.index >= 0
    torch.testing.assert_close(found[real], logits[real])


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_a_backbone_that_cannot_computes_the_padded_rows(family):
    backbone = tiny_loaded(family)
    batch = batch_of(backbone, "tagging")
    assert not backbone.packs
    with backbone.packed(laid(batch)):
        found = backbone.states(batch.ids, batch.mask, Pass())
    assert torch.equal(found, backbone.states(batch.ids, batch.mask, Pass()))


def test_a_packed_row_may_be_longer_than_the_table_of_positions():
    backbone = backbone_of("bart")
    batch = batch_of(backbone, "classification")
    index = batch.packing[0].flatten()[None]
    assert index.shape[1] > backbone.longest
    added, _ = adapters(backbone)
    padded = backbone.states(batch.ids, batch.mask, added)
    with backbone.packed([Laid.of(index, batch.ids)]):
        packed = backbone.states(batch.ids, batch.mask, added)
    torch.testing.assert_close(packed[batch.mask.bool()], padded[batch.mask.bool()])


def test_after_a_failure_nothing_is_packed():
    backbone = backbone_of("bart")
    batch = batch_of(backbone, "classification")
    before = backbone.states(batch.ids, batch.mask, Pass())

    def fails(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"), backbone.packed(laid(batch)):
        backbone.states(batch.ids, batch.mask, Pass([fails] * backbone.sites.count))
    assert not backbone.packing and torch.equal(backbone.states(batch.ids, batch.mask, Pass()), before)


def test_there_and_back():
    index = torch.tensor([[3, 4, 0, 1], [6, 7, 8, -1]])  # rows of 2, 2 and 3 tokens, padded to 3
    padded = torch.tensor([[1, 2, 0], [3, 4, 0], [5, 6, 7]])
    rows = Laid.of(index, padded)
    assert rows.lay(padded, -5).tolist() == [[3, 4, 1, 2], [5, 6, 7, -5]]
    assert torch.equal(rows.put_back(rows.lay(padded)), padded)
    states = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(rows.put_back, states)
