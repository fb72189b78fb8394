"""Gates as packed bits, eight to a byte, and how alike two tasks' gates are."""

from __future__ import annotations

from functools import cache

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


def unpack_rows(packed: Tensor, count: int) -> Tensor:
    """Gates of several tasks where they are: uint8 [tasks, ceil(count / 8)] -> bool [tasks, count], same device."""
    if packed.device.type == "cpu":
        return torch.from_numpy(np.unpackbits(packed.numpy(), axis=1, count=count).view(bool))
    bits = torch.bitwise_and(packed.unsqueeze(-1), _bits(packed.device))
    return bits.ne(0).flatten(1)[:, :count]


@cache
def _bits(device: torch.device) -> Tensor:
    """The value of each bit of a byte, first gate first."""
    return torch.tensor([128, 64, 32, 16, 8, 4, 2, 1], dtype=torch.uint8, device=device)


def overlap(first: Tensor, second: Tensor) -> float:
    """Share of equal gates: 0.5 for unrelated sub-networks, 1.0 for the same one."""
    return float((first == second).float().mean())
