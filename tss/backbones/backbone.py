"""`Backbone`: a frozen Hugging Face model, its tokenizer and its adapter sites. Knows no tasks and no methods.

Three families share one face: `states` (what classification and tagging read), `target_logits` and `generate`
(what generation needs). What a method adds to a forward pass travels as a `Pass`.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from tss.backbones.added import Pass, Settled
from tss.backbones.sites import Layout, Sites
from tss.backbones.stand_ins import StandIns
from tss.backbones.text import TextCodec
from tss.errors import BackboneError, ConfigError

LEAST_TEXT = 8  # positions that soft prompts must leave


class Backbone:
    """Common to the three families."""

    reads = "mean"  # default read-out for classification

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

    @contextmanager
    def using(self, added: Pass) -> Iterator[None]:
        """What was added is active inside; after, whatever happens, it is as before."""
        if added.adapters is not None and len(added.adapters) != self.sites.count:
            raise ValueError(f"{len(added.adapters)} adapters for {self.sites.count} sites")
        computing = torch.autocast(self.device.type, self.autocast) if self.autocast else nullcontext()
        before, self.sites.active = self.sites.active, added.adapters
        try:
            with self._stand_ins.placed(added.parameters), computing:
                yield
        finally:
            self.sites.active = before

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
        raise BackboneError(f"{type(self).__name__} gives no states")

    def target_logits(self, ids: Tensor, mask: Tensor, target: Tensor, added: Pass) -> Tensor:
        """Logits of each target token given those before it. target [batch, m] -> [batch, m, vocabulary]"""
        raise BackboneError(f"{self.name} is an encoder and cannot generate; take an encoder-decoder or a decoder")

    def generate(self, ids: Tensor, mask: Tensor, added: Pass, **limits: int) -> list[list[int]]:
        """Token ids without special tokens, one list a row; beam search, deterministic.

        limits: max_tokens, min_tokens, beams, no_repeat.
        """
        raise BackboneError(f"{self.name} is an encoder and cannot generate; take an encoder-decoder or a decoder")

    def _embedded(self, ids: Tensor, mask: Tensor, prefix: Tensor) -> tuple[Tensor, Tensor]:
        vectors = torch.cat([prefix.to(self.model.dtype), self.embeddings(ids)], dim=1)
        return vectors, torch.cat([mask.new_ones(prefix.shape[:2]), mask], dim=1)

    def _generation(self, max_tokens: int, min_tokens: int = 1, beams: int = 4, no_repeat: int = 0, **fields):
        from transformers import GenerationConfig

        if beams > 1:
            fields["early_stopping"] = True
        return GenerationConfig(
            num_beams=beams,
            max_new_tokens=max_tokens,
            min_new_tokens=min(min_tokens, max_tokens),
            no_repeat_ngram_size=no_repeat,
            do_sample=False,
            pad_token_id=self.text.pad,
            eos_token_id=self.text.end,
            **fields,
        )


class EncoderDecoder(Backbone):
    """BART, mBART, T5. Heads read the decoder, which is fed the input shifted right."""

    @staticmethod
    def auto():
        from transformers import AutoModelForSeq2SeqLM

        return AutoModelForSeq2SeqLM

    @property
    def start(self) -> int:
        start = getattr(self.model.config, "decoder_start_token_id", None)
        return self.text.end if start is None else start

    def _shifted(self, ids: Tensor) -> Tensor:
        return torch.cat([ids.new_full((len(ids), 1), self.start), ids[:, :-1]], dim=1)

    @property
    def embeddings(self) -> nn.Module:
        return self.model.get_encoder().get_input_embeddings()

    def _encode(self, ids: Tensor, mask: Tensor, added: Pass):
        encoder, prefix = self.model.get_encoder(), added.settled(ids, mask).prefix
        if prefix is None:
            return encoder(input_ids=ids, attention_mask=mask), mask
        vectors, mask = self._embedded(ids, mask, prefix)
        return encoder(inputs_embeds=vectors, attention_mask=mask), mask

    def states(self, ids: Tensor, mask: Tensor, added: Pass) -> Tensor:
        with self.using(added):
            encoded, mask = self._encode(ids, mask, added)
            decoder = self.model.get_decoder()
            return decoder(
                input_ids=self._shifted(ids),
                encoder_hidden_states=encoded[0],
                encoder_attention_mask=mask,
                use_cache=False,
            )[0]

    def target_logits(self, ids: Tensor, mask: Tensor, target: Tensor, added: Pass) -> Tensor:
        with self.using(added):
            encoded, mask = self._encode(ids, mask, added)
            return self.model(
                encoder_outputs=encoded,
                attention_mask=mask,
                decoder_input_ids=self._shifted(target),
                use_cache=False,
            ).logits

    def generate(self, ids: Tensor, mask: Tensor, added: Pass, **limits: int) -> list[list[int]]:
        with self.using(added), torch.no_grad():
            encoded, mask = self._encode(ids, mask, added)
            out = self.model.generate(
                encoder_outputs=encoded,
                attention_mask=mask,
                generation_config=self._generation(**limits, decoder_start_token_id=self.start),
            )
        return [self.text.plain(row) for row in out[:, 1:].tolist()]


class Encoder(Backbone):
    """BERT, RoBERTa, DistilBERT. For classification and tagging."""

    reads = "first"

    @staticmethod
    def auto():
        from transformers import AutoModel

        return AutoModel

    def states(self, ids: Tensor, mask: Tensor, added: Pass) -> Tensor:
        with self.using(added):
            prefix = added.settled(ids, mask).prefix
            if prefix is None:
                return self.model(input_ids=ids, attention_mask=mask)[0]
            vectors, mask = self._embedded(ids, mask, prefix)
            return self.model(inputs_embeds=vectors, attention_mask=mask)[0][:, prefix.shape[1] :]


class Decoder(Backbone):
    """GPT-2, Llama, Qwen. Generation: source, separator, target; the source is padded on the left."""

    reads = "last"

    @staticmethod
    def auto():
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM

    def _run(self, module: nn.Module, ids: Tensor, mask: Tensor, added: Settled):
        vectors = None
        if added.prefix is not None:
            vectors, mask = self._embedded(ids, mask, added.prefix)
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
        words = {"input_ids": ids} if vectors is None else {"inputs_embeds": vectors}
        return module(**words, attention_mask=mask, position_ids=positions, use_cache=False)[0]

    def states(self, ids: Tensor, mask: Tensor, added: Pass) -> Tensor:
        added = added.settled(ids, mask)
        with self.using(added):
            return self._run(self.model.base_model, ids, mask, added)[:, -ids.shape[1] :]

    def _left(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Source tokens moved to the right end, the separator after them."""
        order = mask.argsort(dim=1, stable=True)
        ids, mask = ids.gather(1, order), mask.gather(1, order)
        sep, one = ids.new_full((len(ids), 1), self.text.separator), mask.new_ones((len(ids), 1))
        return torch.cat([ids, sep], dim=1), torch.cat([mask, one], dim=1)

    def target_logits(self, ids: Tensor, mask: Tensor, target: Tensor, added: Pass) -> Tensor:
        added = added.settled(ids, mask)  # before the target joins the input: a prefix must not see it
        source, seen = self._left(ids, mask)
        whole = torch.cat([source, target[:, :-1]], dim=1)
        seen = torch.cat([seen, seen.new_ones(target[:, :-1].shape)], dim=1)  # padding after the end is causal
        with self.using(added):
            logits = self._run(self.model, whole, seen, added)
        return logits[:, -target.shape[1] :]

    def generate(self, ids: Tensor, mask: Tensor, added: Pass, **limits: int) -> list[list[int]]:
        added = added.settled(ids, mask)
        source, seen = self._left(ids, mask)
        # As vectors, not ids: the ban on repeated n-grams then sees the output alone and copying stays possible.
        with self.using(added), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            if added.prefix is None:
                vectors = self.embeddings(source)
            else:
                vectors, seen = self._embedded(source, seen, added.prefix)
            out = self.model.generate(
                inputs_embeds=vectors, attention_mask=seen, generation_config=self._generation(**limits)
            )
        return [self.text.plain(row) for row in out.tolist()]


FAMILIES: dict[str, type[Backbone]] = {"encoder-decoder": EncoderDecoder, "encoder": Encoder, "decoder": Decoder}


def hash_tensors(tensors: dict[str, Tensor]) -> str:
    """SHA-256 over names, types, shapes and bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
