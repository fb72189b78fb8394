"""All adapters of a backbone as one flat vector: a = W_up relu(W_down x + b_down) + b_up at every site.

Flat, because gating, masking, the optimiser and packing then are one operation each instead of two per layer.
Order: site by site, W_down [b, d] then W_up [d, b]; biases likewise, b_down [b] then b_up [d].
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import torch
import torch.nn.functional as F
from torch import Tensor

from tss import randomness
from tss.backbones.sites import PLACES, AdapterFunction, Sites
from tss.errors import ConfigError

EVEN_AT = 64  # the published bottleneck
# Size of frozen weights at a width: bart-mini's, by dev (results/ideas.md). A wider backbone sums more, so less.
SUITED = 0.05, 288
INITS = ("normal002", "signed_const", "signed_002", "kaiming")


@dataclass(frozen=True)
class AdapterConfig:
    bottleneck: int = 64
    adapter_sites: str = "ffn"  # "houlsby", "houlsby+cross": also after the attentions
    adapter_init: str = "normal002"
    adapter_std: float = 0.02  # the deviation of normal002, the size of signed_002; 0: what suits the backbone's width
    adapter_seed: int = 0
    even: bool = False  # smaller frozen weights in wider adapters: any bottleneck adds about as much as one of 64
    own_ln: bool = False  # normalise the adapter's input once more

    def __post_init__(self) -> None:
        if self.bottleneck < 1:
            raise ConfigError(f"bottleneck must be at least 1, not {self.bottleneck}")
        if self.adapter_init not in INITS:
            raise ConfigError(f"adapter_init {self.adapter_init!r} is not one of {', '.join(INITS)}")
        if self.adapter_sites not in PLACES:
            raise ConfigError(f"adapter_sites {self.adapter_sites!r} is not one of {', '.join(PLACES)}")
        if not self.adapter_std >= 0:
            raise ConfigError(f"adapter_std must be at least 0, not {self.adapter_std}")


@dataclass(frozen=True)
class Segment:
    """One weight matrix inside the flat vector."""

    start: int
    stop: int
    rows: int
    columns: int  # = fan-in


class Adapters(list[AdapterFunction]):
    """One function a site, with the flat weights [size] and biases [bias_size] they were made from.

    Who has the weights of several tasks can answer a batch of all of them at once.
    """

    def __init__(self, functions: list[AdapterFunction], weights: Tensor, biases: Tensor | None):
        super().__init__(functions)
        self.weights, self.biases = weights, biases


class AdapterBank:
    """Shapes, initial values and functions of all adapters."""

    def __init__(self, sites: Sites, config: AdapterConfig, dtype: torch.dtype = torch.float32):
        self.config, self.dtype = config, dtype
        self.width, self.bottleneck, self.count = sites.width, config.bottleneck, sites.count
        matrix = self.width * self.bottleneck
        self.segments: list[Segment] = []
        for i in range(self.count):
            start = 2 * i * matrix
            self.segments.append(Segment(start, start + matrix, self.bottleneck, self.width))
            self.segments.append(Segment(start + matrix, start + 2 * matrix, self.width, self.bottleneck))
        self.size = 2 * self.count * matrix
        # What an adapter adds has the variance of b std^4.
        self.scale = (EVEN_AT / self.bottleneck) ** 0.25 if config.even else 1.0
        self.suited = SUITED[0] * sqrt(SUITED[1] / self.width) * self.scale
        self.std = config.adapter_std * self.scale or self.suited
        self.bias_size = self.count * (self.width + self.bottleneck)

    def fixed(self, std: float | None = None) -> Tensor:
        """The frozen random weights, from the seed alone. [size] float32

        std: the same ones with this deviation instead of the usual one; inits with a size of their own keep it.
        """
        return self.draw(f"adapters/{self.config.adapter_seed}", self.config.adapter_init, std)

    def draw(self, key: str, init: str, std: float | None = None) -> Tensor:
        """Fresh weights. [size] float32"""
        std = self.std if std is None else std
        return torch.cat([self._matrix(f"{key}/{i}", s, init, std) for i, s in enumerate(self.segments)])

    def near_identity(self, key: str) -> Tensor:
        """A start for adapters that are trained themselves: N(0, 0.02^2), whatever the fixed weights are. [size]"""
        parts = [randomness.normal(f"{key}/{i}", s.stop - s.start, 0.02) for i, s in enumerate(self.segments)]
        return torch.cat(parts)

    def _matrix(self, key: str, segment: Segment, init: str, std: float) -> Tensor:
        count = segment.stop - segment.start
        if init == "normal002":
            return randomness.normal(key, count, std)
        if init == "signed_002":
            return randomness.signs(key, count, std)
        if init == "signed_const":
            return randomness.signs(key, count, sqrt(2.0 / segment.columns))
        return randomness.uniform(key, count, 1.0 / sqrt(segment.columns))  # kaiming, a = sqrt(5)

    def matrices(self, flat: Tensor) -> list[Tensor]:
        """Views of a flat vector [size] as W_down, W_up, W_down, … in site order."""
        parts = flat.split(self.width * self.bottleneck)
        return [part.view(s.rows, s.columns) for part, s in zip(parts, self.segments, strict=True)]

    def functions(self, weights: Tensor, biases: Tensor | None = None, linear=F.linear) -> Adapters:
        """One adapter function a site from flat weights [size] (and biases [bias_size]).

        `linear(x, weight, bias)` may be replaced, for instance by one that watches gradients per example.
        """
        weights = weights.to(self.dtype)
        matrices = self.matrices(weights)
        split: list[Tensor | None] = [None] * (2 * self.count)
        if biases is not None:
            split = list(biases.to(self.dtype).split([self.bottleneck, self.width] * self.count))
        made = [
            self._function(matrices[2 * i], split[2 * i], matrices[2 * i + 1], split[2 * i + 1], linear)
            for i in range(self.count)
        ]
        return Adapters(made, weights, biases)

    def _function(self, down, bias_down, up, bias_up, linear) -> AdapterFunction:
        def adapter(x: Tensor) -> Tensor:
            if self.config.own_ln:
                x = F.layer_norm(x, (self.width,))
            return linear(F.relu(linear(x, down, bias_down)), up, bias_up)

        return adapter
