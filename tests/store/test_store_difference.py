"""The coder of gate differences: exact, near the entropy, quick, and safe with any bytes."""

from __future__ import annotations

import contextlib
import hashlib
import math
import time

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from store_samples import assert_same, random_gates, record

from tss.store import Store
from tss.store.difference import decode, encode, pack, unpack
from tss.store.layout import DEEPEST


def draw(count: int, share: float, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(count) < share


def entropy_bytes(count: int, share: float) -> float:
    return -count / 8 * (share * math.log2(share) + (1 - share) * math.log2(1 - share))


@given(bits=st.lists(st.booleans(), max_size=200))
def test_packing_round_trip(bits):
    row = np.array(bits, bool)
    packed = pack(row)
    assert packed.size == -(-row.size // 8)
    assert np.array_equal(unpack(packed, row.size), row)


@settings(max_examples=60, deadline=None)
@given(count=st.integers(0, 5000), share=st.floats(0, 1), seed=st.integers(0, 9))
@example(count=0, share=0.0, seed=0)
@example(count=1, share=1.0, seed=0)
@example(count=70_003, share=0.0, seed=0)
@example(count=70_001, share=1.0, seed=0)
@example(count=24_576, share=0.1, seed=0)
def test_round_trip_at_every_density(count, share, seed):
    bits = draw(count, share, seed)
    code = encode(bits)
    assert np.array_equal(decode(code, count), bits)
    assert len(code) <= -(-count // 8) + 1


@pytest.mark.parametrize("share,over", [(0.01, 0.10), (0.05, 0.03), (0.1, 0.02), (0.2, 0.02), (0.4, 0.02), (0.9, 0.02)])
@pytest.mark.parametrize("count", [100_000, 400_000])
def test_near_the_entropy(count, share, over):
    bits = draw(count, share)
    assert len(encode(bits)) <= (1 + over) * entropy_bytes(count, bits.mean())


def test_flip_rates_that_differ_from_site_to_site_are_used():
    rates = [0.01, 0.3, 0.05, 0.15]
    bits = np.concatenate([draw(100_000, rate, seed) for seed, rate in enumerate(rates)])
    together = entropy_bytes(bits.size, bits.mean())
    apart = sum(entropy_bytes(100_000, rate) for rate in rates)
    assert len(encode(bits)) < apart + 0.2 * (together - apart)


def test_quick_enough_for_three_million_gates():
    bits = draw(3_100_000, 0.1)
    start = time.process_time()
    code = encode(bits)
    between = time.process_time()
    assert np.array_equal(decode(code, bits.size), bits)
    assert between - start < 1.5 and time.process_time() - between < 1.5  # measured: about 0.13 each


def test_the_code_is_the_same_on_every_machine():
    """A change of these bytes would make stored gates unreadable: it needs a new format."""
    bits = np.array([(i * i + i // 7) % 11 == 0 for i in range(40_000)])
    code = encode(bits)
    assert (len(code), hashlib.sha256(code).hexdigest()[:16]) == (2434, "5c038f767ebd87c9")


@settings(max_examples=150, deadline=None)
@given(code=st.binary(max_size=80), count=st.integers(0, 400))
def test_any_bytes_give_bits_or_a_value_error(code, count):
    for start in (b"", b"\x00", b"\x01"):
        with contextlib.suppress(ValueError):
            assert decode(start + code, count).shape == (count,)


def test_damaged_codes_never_crash():
    bits = draw(3000, 0.1)
    code = bytearray(encode(bits))
    for place in range(0, len(code), 23):
        flipped = code[:place] + bytes([code[place] ^ 0x10]) + code[place + 1 :]
        for damaged in (code[:place], flipped, code + code[:place]):
            with contextlib.suppress(ValueError):
                decode(bytes(damaged), bits.size)
    with pytest.raises(ValueError):
        decode(bytes(code), bits.size + 40)


def test_full_gates_at_least_every_eighth_task_of_a_chain(tmp_path):
    store = Store.open(tmp_path / "store", create=True)
    gates = random_gates(5000, 0)
    records = []
    with store.writing():
        for place in range(20):
            records.append(record(f"t{place}", place, gates))
            store.add(records[-1], parent=f"t{place - 1}" if place else None)
            gates = gates ^ random_gates(5000, place + 1, 0.1)
    tasks = store.index().tasks
    assert [entry.depth for entry in tasks] == [place % (DEEPEST + 1) for place in range(20)]
    for before, entry in zip(tasks, tasks[1:], strict=False):
        assert entry.parent == (before.file if entry.depth else None)
        assert entry.gate_bytes == 625 or entry.gate_bytes < 0.6 * 625
    for one in records:
        assert_same(store.read(one.name), one)


def test_gates_that_have_nothing_in_common_are_kept_full(tmp_path):
    store = Store.open(tmp_path / "store", create=True)
    with store.writing():
        store.add(record("a", 1, random_gates(4000, 1)))
        entry = store.add(record("b", 2, random_gates(4000, 2)), parent="a")
    assert (entry.parent, entry.depth, entry.gate_bytes) == (None, 0, 500)


def test_inverted_gates_are_a_small_difference(tmp_path):
    store = Store.open(tmp_path / "store", create=True)
    gates = random_gates(4000, 1)
    with store.writing():
        store.add(record("a", 1, gates))
        entry = store.add(record("b", 2, ~gates), parent="a")
    assert entry.gate_bytes < 20
    assert torch.equal(store.read("b").gates, ~gates)
