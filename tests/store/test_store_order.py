"""Tensors come back in one order, whatever process reads them: a resumed training counts its parameters by it."""

from __future__ import annotations

import torch

from tss.store.content import decode, encode


def test_tensors_are_read_in_the_order_of_their_names():
    names = [f"lm.{n}" for n in range(40)]
    tensors, _ = decode(encode({name: torch.zeros(1) for name in names[::-1]}, {}, "a test"))
    assert list(tensors) == sorted(names)
