"""Batches by length: every row once, the same for the same seed, little padding."""

from __future__ import annotations

import random
from itertools import islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tss.tasks.batches import IGNORED, PASS_COST, Row, Table, collate, cut, endless, plan


@given(st.lists(st.integers(1, 100), min_size=1, max_size=80), st.integers(1, 40), st.sampled_from([None, "a", "b"]))
def test_every_row_exactly_once(lengths, size, seed):
    batches = plan(lengths, size, seed)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    assert len(batches) == -(-len(lengths) // size)
    assert all(1 <= len(batch) <= size for batch in batches)
    assert sum(len(batch) < size for batch in batches) <= 1


def test_order_follows_the_seed():
    lengths = [random.Random(1).randrange(3, 60) for _ in range(100)]
    assert plan(lengths, 8, "x") == plan(lengths, 8, "x")
    assert plan(lengths, 8, "x") != plan(lengths, 8, "y")
    assert plan(lengths, 8, None) == plan(lengths, 8, None)


def test_order_is_frozen():
    """Resumed trainings, and results on other machines, depend on it."""
    assert plan([3, 5, 3, 9, 4, 4, 7], 3, "0/task/0") == [[4, 0, 2], [1, 6, 3], [5]]


def test_rows_of_equal_length_are_mixed_between_epochs():
    lengths = [10] * 64
    first, second = ({frozenset(b) for b in plan(lengths, 8, f"t/{epoch}")} for epoch in (0, 1))
    assert len(first & second) < 2


@pytest.mark.parametrize("seed", [None, "a", "b", "c"])
def test_at_least_95_percent_of_the_tokens_are_real(seed):
    """Sentence lengths as of reviews: log-normal about 20 tokens, up to 128."""
    dice = random.Random(0)
    lengths = [max(4, min(128, round(dice.lognormvariate(3.0, 0.6)))) for _ in range(3000)]
    padded = sum(len(batch) * max(lengths[i] for i in batch) for batch in plan(lengths, 32, seed))
    assert sum(lengths) / padded >= 0.95


@given(st.lists(st.integers(1, 60), min_size=1, max_size=9), st.integers(0, 40))
def test_no_cut_is_better(lengths, cost):
    """Against every way to cut the sorted rows."""

    def price(pieces):
        return sum(len(piece) * max(lengths[i] for i in piece) + cost for piece in pieces)

    order, count = sorted(range(len(lengths)), key=lambda i: lengths[i]), len(lengths)
    found = cut(lengths, cost)
    assert [i for piece in found for i in piece] == order
    every = []
    for choice in range(2 ** (count - 1)):
        ends = [i + 1 for i in range(count - 1) if choice >> i & 1] + [count]
        every.append([order[begin:end] for begin, end in zip([0, *ends], ends, strict=False)])
    assert price(found) == min(price(pieces) for pieces in every)


def test_pieces_hold_the_rows_of_the_batch():
    rows = [Row([5] * n, [IGNORED] * (n - 1) + [n], places=(n - 1,)) for n in (3, 90, 4, 88, 3)]
    pieces = Table(rows, 0, False, torch.device("cpu")).pieces([0, 1, 2, 3, 4])
    assert [piece.numbers for piece in pieces] == [(0, 4, 2), (3, 1)]
    assert [tuple(piece.ids.shape) for piece in pieces] == [tuple(piece.target.shape) for piece in pieces]
    assert [piece.ids.shape[1] for piece in pieces] == [4, 90]


def test_pieces_leave_little_padding_to_small_tasks():
    """200 rows, as NER has: sorted batches of 32 alone reach about 80 %."""
    dice = random.Random(0)
    lengths = [max(4, min(128, round(dice.lognormvariate(3.3, 0.7)))) for _ in range(200)]
    batches = plan(lengths, 32, "a")
    padded = 0
    for batch in batches:
        own = [lengths[i] for i in batch]
        padded += sum(len(piece) * max(own[i] for i in piece) for piece in cut(own, PASS_COST))
    assert sum(lengths) / sum(len(b) * max(lengths[i] for i in b) for b in batches) < 0.9
    assert sum(lengths) / padded >= 0.95


def test_endless_goes_on_where_it_is_told():
    lengths = [random.Random(2).randrange(3, 60) for _ in range(50)]
    whole = list(islice(endless(lengths, 8, "s"), 25))
    for start in (0, 1, 6, 7, 8, 20):
        assert list(islice(endless(lengths, 8, "s", start), 25 - start)) == whole[start:]
    assert sorted(i for batch in whole[7:14] for i in batch) == list(range(50))  # the second epoch is whole
    assert whole[:7] != whole[7:14]


def test_collate_pads_on_the_right():
    rows = [Row([5, 6, 7], [1]), Row([8], [0])]
    batch = collate(rows, [4, 2], pad=9, single=True)
    assert batch.ids.tolist() == [[5, 6, 7], [8, 9, 9]]
    assert batch.mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch.target.tolist() == [1, 0]
    assert batch.numbers == (4, 2) and len(batch) == 2


def test_collate_of_sequences_ignores_what_is_padded():
    rows = [Row([5, 6, 7], [3, 4]), Row([8], [1, 2, 2, 2])]
    batch = collate(rows, [0, 1], pad=9, single=False)
    assert batch.target.tolist() == [[3, 4, IGNORED, IGNORED], [1, 2, 2, 2]]


def test_collate_to_a_given_length_keeps_tags_beside_their_tokens():
    rows = [Row([5, 6], [IGNORED, 1], places=(1,)), Row([8], [0], places=(0,))]
    batch = collate(rows, [0, 1], pad=9, single=False, length=6)
    assert batch.ids.shape == batch.target.shape == (2, 6)
    assert int(batch.mask.sum()) == 3


@pytest.mark.parametrize(("parts", "sizes"), [(1, [5]), (2, [3, 2]), (3, [2, 2, 1]), (5, [1] * 5), (9, [1] * 5)])
def test_split_keeps_the_rows(parts, sizes):
    rows = [Row([i + 1] * (i + 1), [i]) for i in range(5)]
    batch = collate(rows, list(range(5)), pad=0, single=True)
    pieces = batch.split(parts)
    assert [len(piece) for piece in pieces] == sizes
    assert torch.equal(torch.cat([piece.ids for piece in pieces]), batch.ids)
    assert torch.equal(torch.cat([piece.target for piece in pieces]), batch.target)
    assert tuple(n for piece in pieces for n in piece.numbers) == batch.numbers
