"""Adapters as layers of masked units: h_l = m_l * act_l(W_l h_(l-1) + b_l), with m in [0, 1] one number a unit.

`plain`   d -> b -> d, ReLU between: the adapter of every other method, in the same flat order;
`plugin`  d -> b -> b -> d -> d, GELU after every layer: the heavier module of the released code.
Flat order: site by site, layer by layer, W [out, in]; units (and biases) likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from tss.backbones.adapters import AdapterBank
from tss.backbones.sites import AdapterFunction
from tss.randomness import normal

Activation = Callable[[Tensor], Tensor]


def _same(x: Tensor) -> Tensor:
    return x


class MaskedLayers:
    """Shapes, first values, masks and functions of such adapters at every site of a bank."""

    def __init__(self, bank: AdapterBank, plugin: bool = False):
        self.bank, self.plugin = bank, plugin
        wide, narrow = bank.width, bank.bottleneck
        self.outs = [narrow, narrow, wide, wide] if plugin else [narrow, wide]
        self.ins = [wide, *self.outs[:-1]]
        self.activations: Sequence[Activation] = [F.gelu] * 4 if plugin else [F.relu, _same]
        self.weights_a_site = sum(o * i for o, i in zip(self.outs, self.ins, strict=True))
        self.size = bank.count * self.weights_a_site
        self.units = bank.count * sum(self.outs)

    def near_identity(self, key: str) -> Tensor:
        """N(0, 0.02^2): an adapter that adds little. [size]"""
        sizes = [o * i for o, i in zip(self.outs, self.ins, strict=True)] * self.bank.count
        return torch.cat([normal(f"{key}/{i}", size, 0.02) for i, size in enumerate(sizes)])

    def spread(self, units: Tensor, inputs: bool = False) -> Tensor:
        """A number a unit [units], laid out as the weights [size] that make it, or (inputs) that read it.

        What the first layer reads is no unit of the adapter and counts as 1.
        """
        count = self.bank.count
        made = list(units.view(count, -1).split(self.outs, dim=1))  # a layer each: [sites, out]
        read = [torch.ones_like(units[:1]).expand(count, self.ins[0]), *made[:-1]]
        shapes = zip(made, read, self.outs, self.ins, strict=True)
        parts = [
            (i[:, None, :] if inputs else o[:, :, None]).expand(-1, outs, ins).reshape(count, -1)
            for o, i, outs, ins in shapes
        ]
        return torch.cat(parts, dim=1).flatten()

    def functions(self, weights: Tensor, biases: Tensor, mask: Tensor) -> list[AdapterFunction]:
        """One adapter function a site. mask [units], or [copies, units] for an input of copies (copies outermost)."""
        if mask.dim() == 1 and not self.plugin:
            # m >= 0, so m relu(z) = relu(m z): the mask of a unit goes into the row and the bias that make it.
            return self.bank.functions(weights * self.spread(mask), biases * mask)
        count, dtype = self.bank.count, self.bank.dtype
        flat = weights.to(dtype).view(count, -1).split([o * i for o, i in zip(self.outs, self.ins, strict=True)], 1)
        matrices = [w.view(count, o, i) for w, o, i in zip(flat, self.outs, self.ins, strict=True)]
        added = biases.to(dtype).view(count, -1).split(self.outs, dim=1)
        masks = mask.to(dtype).unflatten(-1, (count, -1)).split(self.outs, dim=-1)
        layers = list(zip(matrices, added, masks, self.activations, strict=True))
        return [
            self._function([(w[site], b[site], m[..., site, :], act) for w, b, m, act in layers])
            for site in range(count)
        ]

    def _function(self, layers: Sequence[tuple[Tensor, Tensor, Tensor, Activation]]) -> AdapterFunction:
        def adapter(x: Tensor) -> Tensor:
            if self.bank.config.own_ln:
                x = F.layer_norm(x, (self.bank.width,))
            for weight, bias, mask, activation in layers:
                x = _times(activation(F.linear(x, weight, bias)), mask)
            return x

        return adapter


def _times(x: Tensor, mask: Tensor) -> Tensor:
    """Every unit times its mask [out], or each copy's own [copies, out]."""
    if mask.dim() == 1:
        return x * mask
    return (x.reshape(len(mask), -1, x.shape[-1]) * mask[:, None]).view_as(x)
