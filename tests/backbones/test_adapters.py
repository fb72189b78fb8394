"""The flat vector of adapters: its order, its first numbers, its functions."""

from __future__ import annotations

import hashlib
from math import sqrt

import pytest
import torch
import torch.nn.functional as F
from tiny import WIDTH, tiny_loaded

from tss.backbones.adapters import AdapterBank, AdapterConfig
from tss.errors import ConfigError

B = 5


def bank(**options) -> AdapterBank:
    return AdapterBank(tiny_loaded("bart").sites, AdapterConfig(**{"bottleneck": B, **options}))


def test_sizes_and_order():
    made = bank()
    assert made.size == 4 * 2 * WIDTH * B and made.bias_size == 4 * (WIDTH + B)
    flat = torch.arange(made.size)
    matrices = made.matrices(flat)
    assert [tuple(m.shape) for m in matrices] == [(B, WIDTH), (WIDTH, B)] * 4
    assert torch.equal(torch.cat([m.reshape(-1) for m in matrices]), flat)
    for matrix, segment in zip(matrices, made.segments, strict=True):
        assert int(matrix[0, 0]) == segment.start and int(matrix[-1, -1]) == segment.stop - 1
        assert tuple(matrix.shape) == (segment.rows, segment.columns)


def test_paper_size():
    """BART-large: 24 sites of 2 x 1024 x 64 give 3,145,728 gates."""

    class Large:
        width, count = 1024, 24

    assert AdapterBank(Large(), AdapterConfig()).size == 3_145_728


def test_functions_are_the_formula():
    made = bank()
    weights = torch.randn(made.size)
    biases = torch.randn(made.bias_size)
    x = torch.randn(2, 3, WIDTH)
    start = 0
    for i, function in enumerate(made.functions(weights, biases)):
        down, up = made.matrices(weights)[2 * i : 2 * i + 2]
        b_down, b_up = biases[start : start + B], biases[start + B : start + B + WIDTH]
        start += B + WIDTH
        expected = torch.relu(x @ down.T + b_down) @ up.T + b_up
        torch.testing.assert_close(function(x), expected)
        torch.testing.assert_close(made.functions(weights)[i](x), torch.relu(x @ down.T) @ up.T)


def test_own_norm_comes_first():
    made, plain = bank(own_ln=True), bank()
    weights, x = torch.randn(made.size), torch.randn(2, 3, WIDTH)
    normed = F.layer_norm(x, (WIDTH,))
    torch.testing.assert_close(made.functions(weights)[1](x), plain.functions(weights)[1](normed))


def test_fixed_weights_are_frozen_bits():
    values = bank().fixed()
    digest = hashlib.sha256(values.numpy().astype("<f4").tobytes()).hexdigest()
    assert digest == "bf9aef479fc11eda578afc8ecd456becc88d283d382fee83e387dac34d6ec8c2"
    assert torch.equal(values, bank().fixed())
    assert not torch.equal(values, bank(adapter_seed=1).fixed())


@pytest.mark.parametrize("init", ["normal002", "signed_const", "signed_002", "kaiming"])
def test_inits_have_their_scale(init):
    made = bank(bottleneck=64, adapter_init=init)
    flat = made.fixed()
    assert flat.dtype == torch.float32
    for values, fan_in in zip(made.matrices(flat)[:2], (WIDTH, 64), strict=True):
        if init == "normal002":
            assert abs(values.std() - 0.02) < 0.002 and abs(values.mean()) < 0.002
        elif init == "kaiming":
            assert values.abs().max() <= 1 / sqrt(fan_in) and values.abs().max() > 0.98 / sqrt(fan_in)
        else:
            size = sqrt(2 / fan_in) if init == "signed_const" else 0.02
            torch.testing.assert_close(values.abs(), torch.full_like(values, size))
            assert 0.4 < (values > 0).float().mean() < 0.6


def test_even_adapters_add_as_much_at_any_bottleneck():
    """One of 64 has the usual weights to the bit; a wider one the same kind of weights, smaller."""
    x = torch.randn(200, tiny_loaded("bart").sites.width, generator=torch.Generator().manual_seed(0))

    def added(**options) -> float:
        made = bank(adapter_std=0.1, **options)
        return float(torch.stack([one(x).square().mean() for one in made.functions(made.fixed())]).mean())

    assert torch.equal(bank(bottleneck=64, even=True).fixed(), bank(bottleneck=64).fixed())
    assert added(bottleneck=1024, even=True) == pytest.approx(added(bottleneck=64), rel=0.2)
    assert added(bottleneck=1024) > 10 * added(bottleneck=64)


def test_weights_that_suit_the_backbone_shrink_as_it_widens():
    suited = bank(adapter_std=0.0)
    assert suited.std == suited.suited == pytest.approx(0.05 * (288 / suited.width) ** 0.5)
    assert float(suited.fixed().std()) == pytest.approx(suited.std, rel=0.1)
    assert bank(adapter_std=0.0, bottleneck=128, even=True).std == pytest.approx(suited.std * 0.5**0.25)
    assert bank().std == 0.02  # the published size, unless asked


def test_sites_do_not_share_numbers():
    matrices = bank().matrices(bank().fixed())
    assert not torch.equal(matrices[0], matrices[2])
    assert not torch.equal(matrices[0].reshape(-1), matrices[1].reshape(-1))


@pytest.mark.parametrize(
    "options", [{"bottleneck": 0}, {"adapter_init": "zeros"}, {"adapter_sites": "moon"}, {"adapter_std": -0.1}]
)
def test_impossible_options_are_refused(options):
    with pytest.raises(ConfigError):
        AdapterConfig(**options)
