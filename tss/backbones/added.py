"""What a method adds to a forward pass of the backbone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from tss.backbones.sites import AdapterFunction


@dataclass(frozen=True)
class Pass:
    """What a method adds to one forward pass.

    adapters: one function a site, or None for the bare backbone.
    prefix: soft prompt vectors [batch, p, d] put before the input's embeddings, or None; or a function that gives them
    for the ids and mask [batch, length] of whatever input comes.
    parameters: tensors that stand in for the model's own, by their names, or None. Tied weights follow.
    """

    adapters: Sequence[AdapterFunction] | None = None
    prefix: Tensor | Callable[[Tensor, Tensor], Tensor] | None = None
    parameters: Mapping[str, Tensor] | None = None

    def settled(self, ids: Tensor, mask: Tensor) -> Settled:
        """The same for one input, its prefix in numbers."""
        prefix = self.prefix
        prefix = prefix if prefix is None or isinstance(prefix, Tensor) else prefix(ids, mask)
        return Settled(self.adapters, prefix, self.parameters)


@dataclass(frozen=True)
class Settled(Pass):
    """A pass for one input: no function is left in its prefix."""

    prefix: Tensor | None = None
