"""The sizes of our own BARTs, and the weights they start from.

With the usual start (everything N(0, 0.02^2)) a small BART never learns to read its encoder and ends as a plain
language model. What works: both position tables start as the same sinusoids, and cross-attention starts by looking
from each output position at the same input position, because queries equal keys and the keys are large enough to make
that look sharp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from transformers import BartConfig, BartForConditionalGeneration

from tss.backbones.corpus import BOS, EOS, PAD
from tss.errors import ConfigError, nearest

POSITIONS = 1024
_POSITION_SCALE = 0.05
_OWN_POSITION_LOGIT = (
    20.0  # of a position with itself at the start; keys of N(0, 0.08^2) give 16 at width 320, heads of 64
)


@dataclass(frozen=True)
class Size:
    """Shape of a BART and how fast it may learn."""

    vocabulary: int
    width: int
    ffn: int
    heads: int
    encoder_layers: int
    decoder_layers: int
    learning_rate: float = 1e-3

    def config(self) -> BartConfig:
        """The Hugging Face config; no dropout, since the model is frozen when it is used."""
        return BartConfig(
            vocab_size=self.vocabulary,
            d_model=self.width,
            max_position_embeddings=POSITIONS,
            encoder_layers=self.encoder_layers,
            decoder_layers=self.decoder_layers,
            encoder_ffn_dim=self.ffn,
            decoder_ffn_dim=self.ffn,
            encoder_attention_heads=self.heads,
            decoder_attention_heads=self.heads,
            dropout=0.0,
            attention_dropout=0.0,
            activation_dropout=0.0,
            bos_token_id=BOS,
            pad_token_id=PAD,
            eos_token_id=EOS,
            decoder_start_token_id=EOS,
            forced_eos_token_id=EOS,
        )


SIZES = {
    "tiny": Size(512, 32, 64, 2, 1, 1, learning_rate=3e-3),  # for tests: seconds on a CPU
    "nano": Size(6144, 160, 512, 5, 3, 2, learning_rate=1.5e-3),
    "mini": Size(14336, 288, 1152, 9, 4, 2),
}


def size_named(name: str) -> Size:
    """The size called `name`. Raises: ConfigError if there is none."""
    if name not in SIZES:
        raise ConfigError(f"no backbone size is called {name!r}{nearest(name, list(SIZES))}")
    return SIZES[name]


def new_model(size: Size, seed: int) -> BartForConditionalGeneration:
    """An untrained BART of this size whose cross-attention already looks at its own position."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = BartForConditionalGeneration(size.config())
        with torch.no_grad():
            positions = _POSITION_SCALE * _sinusoids(POSITIONS, size.width)
            for half in (model.model.encoder, model.model.decoder):
                half.embed_positions.weight[half.embed_positions.offset :] = positions
            deviation = math.sqrt(_OWN_POSITION_LOGIT / (size.width * math.sqrt(size.width / size.heads)))
            for layer in model.model.decoder.layers:
                layer.encoder_attn.k_proj.weight.normal_(0.0, deviation)
                layer.encoder_attn.q_proj.weight.copy_(layer.encoder_attn.k_proj.weight)
    return model


def _sinusoids(positions: int, width: int) -> torch.Tensor:
    """Sines in the first half of each row, cosines in the second. [positions, width]"""
    rate = torch.exp(torch.arange(width // 2) * (-math.log(10_000.0) / (width // 2)))
    angle = torch.arange(positions)[:, None] * rate[None, :]
    return torch.cat([angle.sin(), angle.cos()], dim=1)
