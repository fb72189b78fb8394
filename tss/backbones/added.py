"""What a method adds to a forward pass of the backbone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from tss.backbones.sites import AdapterFunction

Functions = Sequence[AdapterFunction]


@dataclass(frozen=True)
class Pass:
    """What a method adds to one forward pass.

    adapters: one function a site, or None for the bare backbone.
    prefix: soft prompt vectors [batch, p, d] put before the input's embeddings, or None; or a function that gives them
    for the ids and mask [batch, length] of whatever input comes.
    parameters: tensors that stand in for the model's own, by their names, or None. Tied weights follow.
    separated: a decoder reads source, separator, target; False: the target follows the source directly.
    fitting: gives the adapters for the ids and mask of whatever input comes, where they depend on it; or None.
    copies: every row is run so many times, as [copies * batch, …] with the copies outermost; the first is the answer.
    reading: makes the states that a head or the LM head reads out of the last hidden ones of all copies,
    [copies, batch, length, d] -> [batch, length, d], or None.
    """

    adapters: Functions | None = None
    prefix: Tensor | Callable[[Tensor, Tensor], Tensor] | None = None
    parameters: Mapping[str, Tensor] | None = None
    separated: bool = True
    fitting: Callable[[Tensor, Tensor], Functions] | None = None
    copies: int = 1
    reading: Callable[[Tensor], Tensor] | None = None

    def settled(self, ids: Tensor, mask: Tensor) -> Settled:
        """The same for one input, with no function of the input left."""
        adapters, prefix = self.adapters, self.prefix
        if self.fitting is not None:
            adapters = self.fitting(ids, mask)
        prefix = prefix if prefix is None or isinstance(prefix, Tensor) else prefix(ids, mask)
        return Settled(adapters, prefix, self.parameters, self.separated, None, self.copies, self.reading)

    def read(self, states: Tensor) -> Tensor:
        """The last hidden states [copies * batch, length, d] as they are read, the same for each copy."""
        if self.reading is None:
            return states
        return self.reading(states.unflatten(0, (self.copies, -1))).repeat(self.copies, 1, 1)


@dataclass(frozen=True)
class Settled(Pass):
    """A pass for one input."""

    prefix: Tensor | None = None
