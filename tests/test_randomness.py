"""Our generator: frozen bits, the right moments, and nothing of a library's own randomness in it."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

from tss import randomness

MASK = (1 << 64) - 1


def splitmix(key: str, count: int) -> list[int]:
    """SplitMix64 as published, in whole numbers."""
    state, out = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little"), []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        out.append(z ^ (z >> 31))
    return out


def sha(values: torch.Tensor) -> str:
    return hashlib.sha256(values.numpy().astype("<f4").tobytes()).hexdigest()


def test_words_are_splitmix64():
    assert randomness.words("adapters/0/0", 50).tolist() == splitmix("adapters/0/0", 50)


def test_words_are_a_stream():
    assert np.array_equal(randomness.words("a", 100)[:7], randomness.words("a", 7))
    assert not np.array_equal(randomness.words("a", 7), randomness.words("b", 7))


@pytest.mark.parametrize(
    ("draw", "size", "expected"),
    [
        (randomness.normal, 0.02, "cc61d72244aeef166bb8e0ff201891e41a6ed21df9b078003288d262cfad0f0f"),
        (randomness.uniform, 0.125, "3ef1111184ed88013f84b7ac8c495bb13a9f7d8f928d1d5d7d79c911be3f1652"),
        (randomness.signs, 0.02, "7b220c9b38e32a7e5a6020b175d02e0ee89db11ce745ef980851043a07b8d2e1"),
    ],
)
def test_bits_are_frozen(draw, size, expected):
    """Stores hold seeds, not weights: these hashes may never change."""
    assert sha(draw("k", 1000, size)) == expected


def test_library_seeds_have_no_influence():
    torch.manual_seed(1)
    first = randomness.normal("k", 10, 1.0)
    torch.manual_seed(2)
    assert torch.equal(first, randomness.normal("k", 10, 1.0))


def test_normal_has_the_moments_of_a_normal():
    x = randomness.normal("moments", 400_000, 0.02).double() / 0.02
    assert abs(x.mean()) < 0.006
    assert abs(x.std() - 1) < 0.005
    assert abs((x**3).mean()) < 0.02
    assert abs((x**4).mean() - 2.925) < 0.04  # 3 for a normal, -0.075 for a sum of sixteen
    assert abs((x.abs() > 1.959964).double().mean() - 0.05) < 0.002
    assert abs((x[1:] * x[:-1]).mean()) < 0.006


def test_uniform_fills_its_range_and_is_never_zero():
    x = randomness.uniform("range", 200_000, 0.125)
    assert x.dtype == torch.float32
    assert x.abs().max() <= 0.125 and x.abs().max() > 0.1249
    assert bool((x != 0).all())
    assert abs(x.mean()) < 0.001
    assert abs(x.double().var() - 0.125**2 / 3) < 1e-4


def test_signs_are_even():
    x = randomness.signs("signs", 100_000, 0.02)
    assert set(x.abs().tolist()) == {float(np.float32(0.02))}
    assert abs((x > 0).double().mean() - 0.5) < 0.006


def test_seeds_and_shuffles_are_frozen():
    order = list(range(10))
    randomness.shuffler(0, "task", 3).shuffle(order)
    assert order == [7, 0, 8, 4, 5, 2, 3, 1, 6, 9]
    assert randomness.seed_of(1, "a") == 4453716986992266975
    assert randomness.seed_of(1, "a") != randomness.seed_of("1a")
