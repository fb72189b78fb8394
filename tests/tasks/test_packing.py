"""Rows laid into fewer, fuller ones: every token once, rows whole, source and target side by side, few shapes."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tss.tasks.batches import IGNORED, Row, Table, plan
from tss.tasks.packing import ALIGNED, LONG, arrange, indices

HERE = torch.device("cpu")
sizes = st.lists(st.tuples(st.integers(1, 130), st.integers(0, 90)), min_size=1, max_size=40)


@given(sizes)
def test_every_row_stands_somewhere_and_fits(sizes):
    groups, places = arrange(sizes)
    assert sorted(i for group in groups for i in group) == list(range(len(sizes)))
    assert all(place % ALIGNED == 0 for place in places)
    for side in (0, 1):
        assert all(sum(sizes[i][side] for i in group) <= places[side] for group in groups)


@given(sizes)
def test_the_same_rows_are_laid_the_same_way(sizes):
    assert arrange(sizes) == arrange(list(sizes))


@given(st.lists(st.integers(1, 130), min_size=1, max_size=40))
def test_packing_is_a_permutation(lengths):
    """Each token of each row at exactly one place, the tokens of a row in order and without a gap."""
    width = max(lengths)
    groups, (places, _) = arrange([(length, 0) for length in lengths])
    laid = indices(groups, lengths, places, width)
    assert {len(row) for row in laid} == {places}
    tokens = [at for row in laid for at in row if at >= 0]
    assert sorted(tokens) == [i * width + k for i, length in enumerate(lengths) for k in range(length)]
    for row, group in zip(laid, groups, strict=True):
        want = [i * width + k for i in group for k in range(lengths[i])]
        assert row == want + [-1] * (places - len(want))


def table(kind: str, count: int = 32) -> Table:
    dice = random.Random(kind)
    rows = []
    for _ in range(count):
        length = max(4, min(128, round(dice.lognormvariate(3.3, 0.6))))
        target = [1] if kind == "classification" else [IGNORED] * (length - 1) + [2]
        target = [7] * dice.randrange(3, 40) if kind == "generation" else target
        rows.append(Row([5] * length, target, places=(length - 1,) if kind == "tagging" else ()))
    return Table(rows, 0, kind == "classification", HERE)


@pytest.mark.parametrize("kind", ["classification", "tagging", "generation"])
def test_the_padded_batch_stays_beside(kind):
    whole = table(kind)
    numbers = [3, 1, 4, 15, 9, 2, 6]
    packed, padded = whole.batch(numbers, packed=True), whole.batch(numbers)
    assert packed.numbers == padded.numbers and not padded.packing
    assert torch.equal(packed.ids[:, : padded.ids.shape[1]], padded.ids)
    assert int(packed.mask.sum()) == int(padded.mask.sum())
    assert packed.ids.shape[1] == max(whole.lengths)  # whatever rows come, so that shapes are few
    assert len(packed.packing) == (2 if kind == "generation" else 1)
    assert not any(piece.packing for piece in packed.split(2))
    assert all(torch.equal(a, b) for a, b in zip(packed.to(HERE).packing, packed.packing, strict=True))


def test_a_source_and_its_target_stand_in_the_same_packed_row():
    batch = table("generation").batch(range(32), packed=True)
    source, target = batch.packing
    assert len(source) == len(target)
    for sources, targets in zip(source, target, strict=True):
        own = {int(at) // batch.ids.shape[1] for at in sources if at >= 0}
        assert own == {int(at) // batch.target.shape[1] for at in targets if at >= 0}


@pytest.mark.parametrize("texts", [False, True])
def test_at_least_95_percent_of_the_places_are_filled(texts):
    """200 rows, as NER has: one piece a batch, padded to its longest, reaches about 80 %."""
    dice = random.Random(0)
    sizes = [
        (max(4, min(128, round(dice.lognormvariate(3.3, 0.7)))), dice.randrange(10, 50) * texts) for _ in range(200)
    ]
    real = computed = 0
    for batch in plan([size[0] for size in sizes], 32, "a"):
        groups, places = arrange([sizes[i] for i in batch])
        real += sum(sum(sizes[i]) for i in batch)
        computed += len(groups) * sum(places)
    assert real / computed >= 0.95


def test_few_shapes_occur():
    """Full batches of one task: packed rows of one number, and places in steps."""
    dice = random.Random(0)
    lengths = [max(4, min(80, round(dice.lognormvariate(3.0, 0.6)))) for _ in range(2000)]
    shapes = set()
    for epoch in range(10):
        for batch in plan(lengths, 32, f"a/{epoch}"):
            groups, places = arrange([(lengths[i], 0) for i in batch])
            shapes.add((len(batch), len(groups), places[0]))
    assert len(shapes) <= 40
    assert {shape[1] for shape in shapes if shape[0] == 32} == {8}


def test_long_rows_are_not_laid_into_longer_ones():
    """Attention over a packed row costs its length squared."""
    groups, places = arrange([(1000, 100)] * 32)
    assert len(groups) == 32 and places[0] == 1000
    groups, places = arrange([(120, 0)] * 32)
    assert len(groups) == 16 and places[0] <= LONG


def test_one_row_is_a_batch_too():
    batch = table("generation", 1).batch([0], packed=True)
    assert [len(index) for index in batch.packing] == [1, 1]
