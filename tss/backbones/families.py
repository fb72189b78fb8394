"""The three families of backbones, each with its own way to give states, target logits and texts."""

from __future__ import annotations

import warnings
from functools import cache

import torch
from torch import Tensor, nn

from tss.backbones.added import Settled
from tss.backbones.backbone import Backbone
from tss.backbones.packed import Positions


class EncoderDecoder(Backbone):
    """BART, mBART, T5. Heads read the decoder, which is fed the input shifted right."""

    packs = True

    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        self._positions = Positions(self.model.get_encoder(), self.model.get_decoder())

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

    @property
    def last(self) -> nn.Module:
        return self.model.get_decoder()

    def _encode(self, ids: Tensor, mask: Tensor, prefix: Tensor | None):
        encoder = self.model.get_encoder()
        if prefix is None:
            return encoder(input_ids=ids, attention_mask=mask), mask
        vectors, mask = self._embedded(ids, mask, prefix)
        return encoder(inputs_embeds=vectors, attention_mask=mask), mask

    def _states(self, added: Settled, ids: Tensor, mask: Tensor) -> Tensor:
        if self.packing:
            return self._packed_states(ids)
        encoded, mask = self._encode(ids, mask, added.prefix)
        decoder = self.model.get_decoder()
        return decoder(
            input_ids=self._shifted(ids),
            encoder_hidden_states=encoded[0],
            encoder_attention_mask=mask,
            use_cache=False,
        )[0]

    def _target_logits(self, added: Settled, ids: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        if len(self.packing) > 1:
            return self._packed_target_logits(ids, target)
        encoded, mask = self._encode(ids, mask, added.prefix)
        return self.model(
            encoder_outputs=encoded,
            attention_mask=mask,
            decoder_input_ids=self._shifted(target),
            use_cache=False,
        ).logits

    def _packed_states(self, ids: Tensor) -> Tensor:
        laid, dtype = self.packing[0], self.model.dtype
        mask = laid.sees(laid, dtype)
        with self._positions.within(laid):
            encoded = self.model.get_encoder()(input_ids=laid.lay(ids), attention_mask=mask)
            decoded = self.model.get_decoder()(
                input_ids=laid.lay(self._shifted(ids)),
                attention_mask=laid.sees(laid, dtype, causal=True),
                encoder_hidden_states=encoded[0],
                encoder_attention_mask=mask,
                use_cache=False,
            )
        return laid.put_back(decoded[0])

    def _packed_target_logits(self, ids: Tensor, target: Tensor) -> Tensor:
        source, wanted, dtype = *self.packing, self.model.dtype
        with self._positions.within(source):
            encoded = self.model.get_encoder()(input_ids=source.lay(ids), attention_mask=source.sees(source, dtype))
        with self._positions.within(wanted):
            return self.model(
                encoder_outputs=encoded,
                attention_mask=wanted.sees(source, dtype),
                decoder_input_ids=torch.where(wanted.positions == 0, self.start, self._shifted(target)),
                decoder_attention_mask=wanted.sees(wanted, dtype, causal=True),
                use_cache=False,
            ).logits

    def _generate(self, limits: dict[str, int], added: Settled, ids: Tensor, mask: Tensor) -> list[list[int]]:
        from transformers import DynamicCache

        encoded, mask = self._encode(ids, mask, added.prefix)
        out = self.model.generate(
            encoder_outputs=encoded,
            attention_mask=mask,
            past_key_values=_beam_cache()(DynamicCache(), DynamicCache()),
            generation_config=self._generation(**limits, decoder_start_token_id=self.start),
        )
        return [self.text.plain(row) for row in out[:, 1:].tolist()]


@cache
def _beam_cache() -> type:
    """What generation remembers. All beams of an input read the same encoder states, so that putting those in the
    beams' new order, as transformers does after each token, copies equal rows: most of the time for long inputs."""
    from transformers import EncoderDecoderCache

    class BeamCache(EncoderDecoderCache):
        def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
            self.self_attention_cache.reorder_cache(beam_idx)

    return BeamCache


class Encoder(Backbone):
    """BERT, RoBERTa, DistilBERT. For classification and tagging."""

    reads = "first"

    @staticmethod
    def auto():
        from transformers import AutoModel

        return AutoModel

    def _states(self, added: Settled, ids: Tensor, mask: Tensor) -> Tensor:
        if added.prefix is None:
            return self.model(input_ids=ids, attention_mask=mask)[0]
        vectors, mask = self._embedded(ids, mask, added.prefix)
        return self.model(inputs_embeds=vectors, attention_mask=mask)[0][:, added.prefix.shape[1] :]


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

    def _states(self, added: Settled, ids: Tensor, mask: Tensor) -> Tensor:
        return self._run(self.model.base_model, ids, mask, added)[:, -ids.shape[1] :]

    def _left(self, ids: Tensor, mask: Tensor, added: Settled) -> tuple[Tensor, Tensor]:
        """Source tokens moved to the right end, the separator (if there is to be one) after them."""
        order = mask.argsort(dim=1, stable=True)
        ids, mask = ids.gather(1, order), mask.gather(1, order)
        if not added.separated:
            return ids, mask
        sep, one = ids.new_full((len(ids), 1), self.text.separator), mask.new_ones((len(ids), 1))
        return torch.cat([ids, sep], dim=1), torch.cat([mask, one], dim=1)

    def _target_logits(self, added: Settled, ids: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        source, seen = self._left(ids, mask, added)
        whole = torch.cat([source, target[:, :-1]], dim=1)
        seen = torch.cat([seen, seen.new_ones(target[:, :-1].shape)], dim=1)  # padding after the end is causal
        return self._run(self.model, whole, seen, added)[:, -target.shape[1] :]

    def _generate(self, limits: dict[str, int], added: Settled, ids: Tensor, mask: Tensor) -> list[list[int]]:
        source, seen = self._left(ids, mask, added)
        # As vectors, not ids: the ban on repeated n-grams then sees the output alone and copying stays possible.
        with warnings.catch_warnings():
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
