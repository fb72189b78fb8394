"""Random numbers that are the same bits on every device, platform and library version.

Frozen adapter weights are never stored, only their seed, so the numbers must not depend on a library's generator.
The stream is SplitMix64 (Steele et al. 2014), counter-based: word i is a function of (key, i) alone. Everything up to
the last multiplication is integer arithmetic; that multiplication is one IEEE operation rounded once.
"""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

_GOLDEN = 0x9E3779B97F4A7C15


def words(key: str, count: int) -> np.ndarray:
    """The first `count` 64-bit words of the stream named `key`. [count] uint64"""
    start = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little")
    z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN) + np.uint64(start)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def normal(key: str, count: int, std: float) -> torch.Tensor:
    """`count` float32 numbers of mean 0 and deviation `std`.

    Each is the sum of sixteen 16-bit integers (Irwin-Hall), which is normal to within a kurtosis of -0.075 and, unlike
    the usual logarithms and cosines, exact on every machine.
    """
    import torch

    halves = words(key, 4 * count).view(np.uint16).reshape(count, 16)
    total = halves.sum(axis=1, dtype=np.int64) * 2 - 16 * 65535  # centred, doubled to stay whole
    scale = std / (2.0 * np.sqrt(np.float64(16) * (65536.0**2 - 1.0) / 12.0))
    return torch.from_numpy((total * scale).astype(np.float32))


def uniform(key: str, count: int, bound: float) -> torch.Tensor:
    """`count` float32 numbers, uniform in (-bound, bound), never exactly 0."""
    import torch

    whole = (words(key, count) >> np.uint64(40)).astype(np.int64) * 2 + 1 - (1 << 24)
    return torch.from_numpy((whole * (bound / (1 << 24))).astype(np.float32))


def signs(key: str, count: int, size: float) -> torch.Tensor:
    """`count` float32 numbers, each +size or -size."""
    import torch

    bits = (words(key, count) >> np.uint64(63)).astype(np.float32)
    return torch.from_numpy((bits * 2 - 1) * np.float32(size))


def seed_of(*parts: object) -> int:
    """A 63-bit seed for library generators, from anything printable."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def shuffler(*parts: object) -> random.Random:
    """A Python generator for orders of examples; Python promises the same shuffles for the same string seed."""
    return random.Random("/".join(str(part) for part in parts))
