"""`Backbone`: a frozen Hugging Face model, its tokenizer and its adapter sites. Knows no tasks and no methods.

Three families (`families.py`) share one face: `states` (what classification and tagging read), `target_logits` and
`generate` (what generation needs). What a method adds to a forward pass travels as a `Pass`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tss.backbones.added import Pass, Settled
from tss.backbones.packed import Laid
from tss.backbones.sites import Layout, Sites
from tss.backbones.stand_ins import StandIns
from tss.backbones.text import TextCodec
from tss.errors import BackboneError, ConfigError

LEAST_TEXT = 8  # positions that soft prompts must leave


class Backbone:
    """Common to the three families."""

    reads = "mean"  # default read-out for classification
    packs = False  # can compute rows that are laid one after another

    @staticmethod
    def auto() -> Any:
        """The class of `transformers` that loads such a model."""
        raise BackboneError("a backbone is loaded as one of its families")

    def __init__(self, name: str, model: Any, tokenizer, layout: Layout, places: str = "ffn"):
        self.name, self.model, self.layout = name, model, layout
        config = model.config
        self.width = config.hidden_size  # d_model under another name where the architecture has one
        if getattr(model, "generation_config", None) is not None:
            model.generation_config = type(model.generation_config)()  # what the checkpoint says would mix with ours
        self.text = TextCodec(tokenizer, config, layout.family)
        self.sites = Sites(model, layout, self.width, places)
        self.reserved = 0  # positions of the input that a method keeps for soft prompts
        self.autocast: torch.dtype | None = None  # compute in it while the weights stay in float32
        self.packing: Sequence[Laid] = ()
        self._stand_ins = StandIns(model)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def reserve(self, positions: int) -> None:
        """Keep positions of the input for soft prompts. Raises ConfigError if a text would have no room beside them."""
        self.reserved = positions
        if positions and self.longest is not None and self.longest < LEAST_TEXT:
            raise ConfigError(
                f"{positions} soft prompt vectors leave {self.longest} positions of {self.name} for a text; take fewer "
                f"or shorter prompts, so that at least {LEAST_TEXT} are left"
            )

    @property
    def longest(self) -> int | None:
        """Positions the model has for an input, or None where it has no limit of its own."""
        config = self.model.config
        limit = getattr(config, "max_position_embeddings", None)
        return limit if limit is None else limit - self.layout.positions_skipped - self.reserved

    @property
    def embeddings(self) -> nn.Module:
        """What turns the ids of an input into vectors."""
        return self.model.get_input_embeddings()

    @property
    def last(self) -> nn.Module:
        """The module whose output a head or the LM head reads."""
        return self.model.base_model

    @contextmanager
    def using(self, added: Settled) -> Iterator[None]:
        """What was added is active inside; after, whatever happens, it is as before."""
        if added.adapters is not None and len(added.adapters) != self.sites.count:
            raise ValueError(f"{len(added.adapters)} adapters for {self.sites.count} sites")
        computing = torch.autocast(self.device.type, self.autocast) if self.autocast else nullcontext()
        before, self.sites.active = self.sites.active, added.adapters
        hook = None if added.reading is None else self.last.register_forward_hook(partial(_read, added))
        try:
            with self._stand_ins.placed(added.parameters), computing:
                yield
        finally:
            self.sites.active = before
            if hook is not None:
                hook.remove()

    def _within(self, added: Pass, run: Callable[..., Any], *inputs: Tensor) -> Any:
        """`run(added, *inputs)` with what was added, each row as often as that says; the answers of the first copy."""
        rows = len(inputs[0])
        if added.copies > 1:
            inputs = tuple(each.repeat(added.copies, 1) for each in inputs)
        settled = added.settled(*inputs[:2])  # of source and mask alone: nothing may depend on a target
        with self.using(settled), self.packed(self.packing if _of_rows_alone(added) else ()):
            return run(settled, *inputs)[:rows]

    @contextmanager
    def packed(self, packing: Sequence[Laid]) -> Iterator[None]:
        """Inside, a batch is computed in fewer, fuller rows: its ids as the first says, its target as the second.

        States come out as of the padded rows. A target comes laid as the second says, and so do its logits: a
        vocabulary is too wide to be carried to and fro. What cannot be packed is computed padded.
        """
        before, self.packing = self.packing, packing
        try:
            yield
        finally:
            self.packing = before

    @contextmanager
    def full_precision(self) -> Iterator[None]:
        """Inside, forward passes compute in the weights' own type."""
        before, self.autocast = self.autocast, None
        try:
            yield
        finally:
            self.autocast = before

    def tensors(self) -> dict[str, Tensor]:
        """Every parameter and buffer by name, those kept out of checkpoints too."""
        return {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}

    def fingerprint(self) -> str:
        """SHA-256 over architecture, weights, buffers and tokenizer."""
        digest = hashlib.sha256()
        digest.update(self.model.config.model_type.encode())
        digest.update(self.text.fingerprint().encode())
        digest.update(hash_tensors(self.tensors()).encode())
        return digest.hexdigest()

    def states(self, ids: Tensor, mask: Tensor, added: Pass) -> Tensor:
        """Hidden states that a head reads. ids, mask [batch, length] -> [batch, length, d]"""
        return self._within(added, self._states, ids, mask)

    def target_logits(self, ids: Tensor, mask: Tensor, target: Tensor, added: Pass) -> Tensor:
        """Logits of each target token given those before it. target [batch, m] -> [batch, m, vocabulary]"""
        if len(self.packing) > 1 and not (self.packs and _of_rows_alone(added)):
            wanted = self.packing[1]
            with self.packed(()):
                return wanted.lay(self.target_logits(ids, mask, wanted.put_back(target), added))
        return self._within(added, self._target_logits, ids, mask, target)

    def generate(self, ids: Tensor, mask: Tensor, added: Pass, **limits: int) -> list[list[int]]:
        """Token ids without special tokens, one list a row; beam search, deterministic unless top_k is above 0.

        limits: max_tokens, min_tokens, beams, no_repeat; top_k: draw each token from so many likeliest ones.
        """
        with torch.no_grad():
            return self._within(added, partial(self._generate, limits), ids, mask)

    def _states(self, added: Settled, ids: Tensor, mask: Tensor) -> Tensor:
        raise BackboneError(f"{type(self).__name__} gives no states")

    def _target_logits(self, added: Settled, ids: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        raise BackboneError(f"{self.name} is an encoder and cannot generate; take an encoder-decoder or a decoder")

    def _generate(self, limits: dict[str, int], added: Settled, ids: Tensor, mask: Tensor) -> list[list[int]]:
        raise BackboneError(f"{self.name} is an encoder and cannot generate; take an encoder-decoder or a decoder")

    def _embedded(self, ids: Tensor, mask: Tensor, prefix: Tensor) -> tuple[Tensor, Tensor]:
        vectors = torch.cat([prefix.to(self.model.dtype), self.embeddings(ids)], dim=1)
        return vectors, torch.cat([mask.new_ones(prefix.shape[:2]), mask], dim=1)

    def _generation(
        self, max_tokens: int, min_tokens: int = 1, beams: int = 4, no_repeat: int = 0, top_k: int = 0, **fields
    ):
        from transformers import GenerationConfig

        if beams > 1:
            fields["early_stopping"] = True
        if top_k:
            fields["top_k"] = top_k
        return GenerationConfig(
            num_beams=beams,
            max_new_tokens=max_tokens,
            min_new_tokens=min(min_tokens, max_tokens),
            no_repeat_ngram_size=no_repeat,
            do_sample=top_k > 0,
            pad_token_id=self.text.pad,
            eos_token_id=self.text.end,
            **fields,
        )


def _of_rows_alone(added: Pass) -> bool:
    """Whether nothing that is added depends on which rows and columns a batch has."""
    return added.fitting is None and added.prefix is None and added.copies == 1 and added.reading is None


def _read(added: Settled, module: nn.Module, args: tuple, out: Any) -> Any:
    """A forward hook: what the model gives last, read as the pass says."""
    states = added.read(out[0])
    if isinstance(out, tuple):
        return states, *out[1:]
    out["last_hidden_state"] = states
    return out


def hash_tensors(tensors: dict[str, Tensor]) -> str:
    """SHA-256 over names, types, shapes and bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
