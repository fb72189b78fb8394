"""Gates as bits: back as they were, in exactly ceil(n/8) bytes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tss.gates.packed import overlap, pack, unpack


@given(st.lists(st.booleans(), max_size=200))
def test_unpack_undoes_pack(gates):
    tensor = torch.tensor(gates, dtype=torch.bool)
    packed = pack(tensor)
    assert packed.dtype == torch.uint8
    assert packed.numel() == -(-len(gates) // 8)
    assert torch.equal(unpack(packed, len(gates)), tensor)


def test_bits_are_frozen():
    """First gate in the highest bit; the rest of the last byte is 0."""
    gates = torch.tensor([1, 0, 0, 0, 0, 0, 1, 1, 1, 0], dtype=torch.bool)
    assert pack(gates).tolist() == [0b10000011, 0b10000000]


@pytest.mark.parametrize("count", [0, 8, 17, 24])
def test_wrong_number_of_bytes_is_refused(count):
    with pytest.raises(ValueError, match="exactly"):
        unpack(pack(torch.ones(16, dtype=torch.bool)), count)


def test_bart_large_gates_are_0_393_megabytes():
    assert pack(torch.zeros(3_145_728, dtype=torch.bool)).numel() == 393_216


def test_overlap_is_the_share_of_equal_gates():
    first, second = torch.tensor([True, True, False, False]), torch.tensor([True, False, False, True])
    assert overlap(first, second) == 0.5 and overlap(first, first) == 1.0 and overlap(first, ~first) == 0.0
