"""The model while it is pretrained: losses of a batch, layers compiled one by one, and its files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional
from transformers import BartForConditionalGeneration, GenerationConfig
from transformers.models.bart.modeling_bart import BartDecoder, BartEncoder


class Denoiser(nn.Module):
    """A BART that returns the loss of every token of its target.

    Runs BART's own layers without attention masks, since windows are never padded: that keeps the fastest attention,
    and no step waits for the device. The same numbers as `BartForConditionalGeneration.forward` (a test compares
    them).
    """

    def __init__(self, bart: BartForConditionalGeneration):
        super().__init__()
        self.bart = bart
        self._losses = _token_losses

    def compile_layers(self) -> None:
        """Compile each kind of layer once for each shape of batch: seconds where a whole model takes minutes."""
        torch._dynamo.config.recompile_limit = 64  # a few window lengths, with and without deletion
        for layer in (*self.bart.model.encoder.layers, *self.bart.model.decoder.layers):
            layer.compile(dynamic=False)
        self._losses = torch.compile(_token_losses, dynamic=False)

    def forward(self, encoder_ids: torch.Tensor, decoder_ids: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Loss in nats of each token of `target`.

        [rows, read], [rows, length], [rows, length] -> [rows, length] float32
        """
        encoder, decoder = self.bart.model.encoder, self.bart.model.decoder
        read = _embedded(encoder, encoder_ids)
        for layer in encoder.layers:
            read = layer(read, None)
        written = _embedded(decoder, decoder_ids)
        for layer in decoder.layers:
            written = layer(written, encoder_hidden_states=read, use_cache=False)
        return self._losses(written, self.bart.lm_head.weight, target)


def _embedded(half: BartEncoder | BartDecoder, ids: torch.Tensor) -> torch.Tensor:
    """Tokens plus positions, normalised. [rows, length, width]"""
    table = half.embed_positions
    positions = table.weight[table.offset : table.offset + ids.shape[1]]
    return half.layernorm_embedding(half.embed_tokens(ids) + positions)


def _token_losses(written: torch.Tensor, vocabulary: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    logits = functional.linear(written, vocabulary).flatten(0, 1).float()
    return functional.cross_entropy(logits, target.flatten(), reduction="none").view(target.shape)


def export(bart: BartForConditionalGeneration, folder: Path) -> None:
    """Write weights (bfloat16, each tied tensor once), config and generation config for plain `from_pretrained`.

    The config says float32, so that the model loads as float32 unless something else is asked for.
    """
    tensors = {name: tensor.detach().to("cpu", torch.bfloat16) for name, tensor in bart.named_parameters()}
    tensors["final_logits_bias"] = bart.final_logits_bias.detach().to("cpu", torch.bfloat16)
    whole = folder / "model.safetensors"
    partial = whole.with_suffix(".partial")
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, partial, metadata={"format": "pt"})
    partial.chmod(0o644)  # safetensors writes for the owner alone
    os.replace(partial, whole)
    config = json.loads(bart.config.to_json_string(use_diff=True))
    config |= {"architectures": ["BartForConditionalGeneration"], "dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", "utf-8")
    GenerationConfig.from_model_config(bart.config).save_pretrained(folder)
