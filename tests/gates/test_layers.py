"""Adapters as layers of masked units, plain and as the released code's plug-in, against numbers worked by hand."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from small_lessons import small_bank, small_lesson

from tss.gates.layers import MaskedLayers

NARROW, WIDE = 4, 16
OUTS = {False: [NARROW, WIDE], True: [NARROW, NARROW, WIDE, WIDE]}
INS = {False: [WIDE, NARROW], True: [WIDE, NARROW, NARROW, WIDE]}


@pytest.fixture(scope="module")
def bank():
    return small_bank(small_lesson("classification"))


def drawn(layers: MaskedLayers, *copies: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    weights, biases = (torch.randn(n, generator=generator) for n in (layers.size, layers.units))
    return weights, biases, torch.rand(*copies, layers.units, generator=generator)


def by_hand(plugin: bool, site: int, x, weights, biases, mask) -> torch.Tensor:
    outs, ins = OUTS[plugin], INS[plugin]
    at = site * sum(o * i for o, i in zip(outs, ins, strict=True))
    unit = site * sum(outs)
    for number, (o, i) in enumerate(zip(outs, ins, strict=True)):
        z = x @ weights[at : at + o * i].view(o, i).T + biases[unit : unit + o]
        act = F.gelu if plugin else (F.relu if number == 0 else (lambda z: z))
        x = mask[unit : unit + o] * act(z)
        at, unit = at + o * i, unit + o
    return x


@pytest.mark.parametrize("plugin", [False, True])
def test_functions_by_hand(bank, plugin: bool):
    layers = MaskedLayers(bank, plugin)
    weights, biases, mask = drawn(layers)
    x = torch.randn(3, 5, WIDE, generator=torch.Generator().manual_seed(2))
    functions = layers.functions(weights, biases, mask)
    assert len(functions) == bank.count
    for site in (0, bank.count - 1):
        torch.testing.assert_close(functions[site](x), by_hand(plugin, site, x, weights, biases, mask))


@pytest.mark.parametrize("plugin", [False, True])
def test_copies_have_their_own_masks(bank, plugin: bool):
    layers = MaskedLayers(bank, plugin)
    weights, biases, masks = drawn(layers, 3)
    x = torch.randn(2, 5, WIDE, generator=torch.Generator().manual_seed(2))
    together = layers.functions(weights, biases, masks)[1](x.repeat(3, 1, 1))
    alone = [layers.functions(weights, biases, mask)[1](x) for mask in masks]
    torch.testing.assert_close(together, torch.cat(alone))


def test_the_plain_layout_is_the_banks(bank):
    layers = MaskedLayers(bank)
    assert (layers.size, layers.units) == (bank.size, bank.bias_size)
    assert torch.equal(layers.near_identity("key"), bank.near_identity("key"))


def test_spread_reaches_the_weights_that_make_and_read_a_unit(bank):
    """Unit 1 of the plug-in's second layer, at the last site: a row of W2, a column of W3, and nothing else."""
    layers = MaskedLayers(bank, plugin=True)
    units = torch.zeros(layers.units)
    units[(bank.count - 1) * sum(OUTS[True]) + NARROW + 1] = 0.5
    sizes = [o * i for o, i in zip(OUTS[True], INS[True], strict=True)]
    made, read = (
        s.view(bank.count, -1).split(sizes, dim=1) for s in (layers.spread(units), layers.spread(units, True))
    )
    w2 = torch.zeros(NARROW, NARROW)
    w2[1] = 0.5
    w3 = torch.zeros(WIDE, NARROW)
    w3[:, 1] = 0.5
    assert torch.equal(made[1][-1].view(NARROW, NARROW), w2) and float(sum(part.sum() for part in made)) == w2.sum()
    assert torch.equal(read[2][-1].view(WIDE, NARROW), w3)
    assert torch.equal(read[0], torch.ones_like(read[0]))  # what the first layer reads counts as used
    assert float(read[1].sum() + read[3].sum() + read[2][:-1].sum()) == 0.0
