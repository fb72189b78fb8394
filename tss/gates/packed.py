"""Gates as packed bits, eight to a byte, and how alike two tasks' gates are."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def pack(gates: Tensor) -> Tensor:
    """bool [n] -> uint8 [ceil(n / 8)]"""
    return torch.from_numpy(np.packbits(gates.cpu().numpy()))


def unpack(packed: Tensor, count: int) -> Tensor:
    """uint8 [ceil(count / 8)] -> bool [count]

    Raises ValueError if the bytes are not exactly as many as `count` gates need.
    """
    if packed.numel() != (count + 7) // 8:
        raise ValueError(f"{packed.numel()} bytes cannot hold exactly {count} gates")
    return torch.from_numpy(np.unpackbits(packed.cpu().numpy(), count=count).astype(bool))


def overlap(first: Tensor, second: Tensor) -> float:
    """Share of equal gates: 0.5 for unrelated sub-networks, 1.0 for the same one."""
    return float((first == second).float().mean())
