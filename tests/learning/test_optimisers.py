"""Long parameters in pieces: the same numbers, as many pieces as pay, and a state that torch's own AdamW can load."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim import AdamW

from tss.learning.optimisers import CHUNK, LEAST, PIECES, FinerAdamW, pieces

SIZES = [(10, 5000), (7,), (3, 11)]


def parameters() -> list[nn.Parameter]:
    draw = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(size, generator=draw)) for size in SIZES]


def steps(optimiser: torch.optim.Optimizer, given: list[nn.Parameter], first: int, last: int, stop: int = -1) -> None:
    for i in range(first, last):
        for p in given:
            p.grad = torch.sin(torch.arange(p.numel()) * (i + 1.0)).view_as(p)
        if stop >= 0:
            optimiser.found_inf = torch.tensor(float(i == stop))  # type: ignore[attr-defined]
        optimiser.step()


@pytest.mark.parametrize("stop", [-1, 3])
def test_pieces_give_the_numbers_of_the_whole(stop: int):
    ours, theirs = parameters(), parameters()
    finer, plain = (kind(own, lr=0.1, fused=True) for kind, own in ((FinerAdamW, ours), (AdamW, theirs)))
    steps(finer, ours, 0, 6, stop)
    steps(plain, theirs, 0, 6, stop)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert len(finer.copies[ours[0]][1]) > 5 and not finer.copies[ours[1]][1]  # it was cut, and the short one was not
    for optimiser, given in ((finer, ours), (plain, theirs)):
        assert all(float(optimiser.state[p]["step"]) == 6 - (stop >= 0) for p in given)


def test_a_saved_state_goes_on_with_the_same_numbers():
    ours, theirs = parameters(), parameters()
    first, plain = FinerAdamW(ours, lr=0.1, fused=True), AdamW(theirs, lr=0.1, fused=True)
    steps(first, ours, 0, 3)
    second = FinerAdamW(ours, lr=0.1, fused=True)
    second.load_state_dict(first.state_dict())
    steps(second, ours, 3, 6)
    steps(plain, theirs, 0, 6)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_so_many_pieces_as_pay():
    vector = torch.arange(float(PIECES * LEAST))
    ((*cut,),) = pieces([vector])
    assert len(cut) == PIECES and torch.equal(torch.cat(cut), vector)
    assert cut[1].data_ptr() == vector.data_ptr() + 4 * LEAST  # views, not copies
    assert [len(one) for one in pieces([torch.zeros(10), torch.zeros(LEAST + 1)])] == [1, 2]
    large = torch.empty(PIECES * CHUNK)
    assert pieces([large])[0][0] is large  # has chunks enough
    slanted = torch.zeros(200, 300).T
    assert pieces([slanted])[0][0] is slanted
