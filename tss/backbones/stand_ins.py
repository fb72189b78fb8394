"""Tensors that stand in for a model's own parameters during a forward pass; the model itself is never written to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn


class StandIns:
    """Knows every place that holds a parameter of `model`; tied weights are one name in several places."""

    def __init__(self, model: nn.Module):
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        self._places = [
            (module, slot, names[id(parameter)])
            for module in model.modules()
            for slot, parameter in module._parameters.items()
            if parameter is not None
        ]

    @contextmanager
    def placed(self, tensors: Mapping[str, Tensor] | None) -> Iterator[None]:
        """Inside, the model computes with `tensors`, by parameter name; after, whatever happens, with its own."""
        given = tensors or {}
        own = [(module, slot, module._parameters[slot]) for module, slot, name in self._places if name in given]
        try:
            for module, slot, name in self._places:
                if name in given:
                    module._parameters[slot] = given[name]  # type: ignore[assignment]  # as functional_call does
            yield
        finally:
            for module, slot, parameter in own:
                module._parameters[slot] = parameter
