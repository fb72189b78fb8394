"""Units of BART-shaped layers: attention heads (self and cross), intermediate and output units of the feed-forward
block. Which weights make a unit, and which lead out of it.

A group of units is named by the path of what makes it: an attention, `fc1` or `fc2` of a layer. Factors of a group are
a vector, one number a unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from tss.backbones.backbone import Backbone
from tss.errors import BackboneError


class Units:
    """The units of one backbone. Raises BackboneError if its layers have another shape."""

    def __init__(self, backbone: Backbone):
        self.attentions: dict[str, int] = {}  # path -> numbers of one head
        self.layers: list[str] = []
        for stack in backbone.layout.stacks:
            layers: Any = backbone.model.get_submodule(stack.layers)
            for i, layer in enumerate(layers):
                path = f"{stack.layers}.{i}"
                self.layers.append(path)
                for name in filter(None, (stack.attention, stack.cross)):
                    attention = layer.get_submodule(name)
                    if not (hasattr(attention, "out_proj") and hasattr(layer, "fc2")):
                        raise BackboneError(
                            f"{backbone.name}: units are known for BART-shaped layers (bart, mbart), not for those of "
                            f"{backbone.model.config.model_type}"
                        )
                    self.attentions[f"{path}.{name}"] = attention.head_dim
        self.leading = [f"{path}.out_proj.weight" for path in self.attentions]  # weights that lead out of units
        self.leading += [f"{path}.fc2.{part}" for path in self.layers for part in ("weight", "bias")]

    def gradients(self, weights: Mapping[str, Tensor], gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """dL/da at a = 1 for a factor a on each unit's output, from w and dL/dw of the `leading` weights.

        A factor on a unit is the same as a factor on the weights that lead out of it: dL/da = sum of w * dL/dw.
        """
        pull = {name: weights[name].detach().double() * gradients[name].double() for name in self.leading}
        out = {path: pull[f"{path}.out_proj.weight"].sum(0).view(-1, n).sum(1) for path, n in self.attentions.items()}
        for path in self.layers:
            out[f"{path}.fc1"] = pull[f"{path}.fc2.weight"].sum(0)
            out[f"{path}.fc2"] = pull[f"{path}.fc2.weight"].sum(1) + pull[f"{path}.fc2.bias"]
        return out

    def scaled(self, weights: Mapping[str, Tensor], factors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The weights with which every unit's output is its factor times what it was."""
        out = dict(weights)
        for path, n in self.attentions.items():
            name = f"{path}.out_proj.weight"
            out[name] = weights[name] * factors[path].repeat_interleave(n)
        for path in self.layers:
            made = factors[f"{path}.fc2"]
            out[f"{path}.fc2.weight"] = weights[f"{path}.fc2.weight"] * factors[f"{path}.fc1"] * made[:, None]
            out[f"{path}.fc2.bias"] = weights[f"{path}.fc2.bias"] * made
        return out

    def spread(self, factors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The factor that meets each weight of a unit: [rows, 1], [1, columns] or, for biases, [rows].

        A head: rows of q, k, v, columns of the output projection. An intermediate unit: its row of fc1. An output
        unit: its row of fc2.
        """
        out: dict[str, Tensor] = {}
        for path, n in self.attentions.items():
            each = factors[path].repeat_interleave(n)
            for part in ("q_proj", "k_proj", "v_proj"):
                out |= {f"{path}.{part}.weight": each[:, None], f"{path}.{part}.bias": each}
            out[f"{path}.out_proj.weight"] = each[None, :]
        for path in (f"{layer}.{part}" for layer in self.layers for part in ("fc1", "fc2")):
            out |= {f"{path}.weight": factors[path][:, None], f"{path}.bias": factors[path]}
        return out
