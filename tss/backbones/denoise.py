"""Windows of text and the noise put on them, all on the device that trains, without waiting for it.

A window is `<s> … </s>` of exactly `length` tokens that begins at the start of a sentence. The encoder reads it with
about 30 % of the tokens hidden in spans; the decoder must write the whole window. Number and total length of the
spans are the same in every row (lengths are Poisson given their sum), so every batch of a kind has one shape and
needs no padding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from tss.backbones.corpus import BOS, EOS, MASK

HIDDEN_SHARE = 0.30
MEAN_SPAN = 3


@dataclass(frozen=True)
class Text:
    """A corpus on a device: `stream` [tokens], `starts` of its sentences, `ends` [vocabulary]: may it end one."""

    stream: torch.Tensor
    starts: torch.Tensor
    ends: torch.Tensor

    @staticmethod
    def on(device: torch.device | str, stream: np.ndarray, ends: np.ndarray) -> Text:
        previous = np.concatenate([[BOS], stream[:-1]])
        starts = np.flatnonzero((ends[previous] | (previous == BOS)) & (stream != EOS) & (stream != BOS))
        return Text(
            torch.from_numpy(stream.astype(np.int32)).to(device),
            torch.from_numpy(starts).to(device),
            torch.from_numpy(ends).to(device),
        )


def draw_windows(text: Text, rows: int, length: int, generator: torch.Generator) -> torch.Tensor:
    """`rows` windows at random places of the text. Returns [rows, length]."""
    device = text.stream.device
    picked = torch.randint(len(text.starts), (rows, 1), generator=generator, device=device)
    begin = text.starts[picked].clamp(max=max(len(text.stream) - (length - 2), 0))
    inside = text.stream[(begin + torch.arange(length - 2, device=device)) % len(text.stream)].long()
    edge = inside.new_full((rows, 1), BOS)
    return torch.cat([edge, inside, torch.full_like(edge, EOS)], dim=1)


def hidden_tokens(length: int) -> tuple[int, int]:
    """How many tokens of a window of `length` are hidden, in how many spans."""
    hidden = max(1, round((length - 2) * HIDDEN_SHARE))
    return hidden, max(1, round(hidden / MEAN_SPAN))


def infilled_length(length: int) -> int:
    """Tokens the encoder reads of a window of `length` when each hidden span has become one `<mask>`."""
    hidden, spans = hidden_tokens(length)
    return length - hidden + spans


def draw_spans(rows: int, length: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Spans to hide: (in a span, first of a span), both bool [rows, length]; never the first or last token of a row."""
    device = generator.device
    hidden, spans = hidden_tokens(length)
    visible = length - 2 - hidden
    extra = torch.randint(spans, (rows, hidden - spans), generator=generator, device=device)
    lengths = torch.ones(rows, spans, dtype=torch.long, device=device)
    lengths.scatter_add_(1, extra, torch.ones_like(extra))
    # Distinct gaps between visible tokens, so that no two spans touch and each stays one `<mask>`.
    gaps = torch.rand(rows, visible + 1, generator=generator, device=device).topk(spans).indices.sort().values
    begin = 1 + gaps + lengths.cumsum(1) - lengths
    edges = torch.zeros(rows, length + 1, dtype=torch.long, device=device)
    edges.scatter_add_(1, begin, torch.ones_like(begin))
    edges.scatter_add_(1, begin + lengths, -torch.ones_like(begin))
    first = torch.zeros(rows, length, dtype=torch.bool, device=device).scatter_(1, begin, True)
    return edges.cumsum(1)[:, :length] > 0, first


def mask_in_place(windows: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """Each hidden token becomes one `<mask>`; nothing moves. [rows, length]"""
    return windows.masked_fill(hidden, MASK)


def infill(windows: torch.Tensor, hidden: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
    """Each hidden span becomes one `<mask>`, so its length is hidden too. [rows, infilled_length(length)]"""
    rows, length = windows.shape
    kept = infilled_length(length)
    keep = ~hidden | first
    place = torch.where(keep, keep.cumsum(1) - 1, kept)  # what is dropped lands in one column too many
    short = windows.new_empty(rows, kept + 1)
    return short.scatter_(1, place, windows.masked_fill(first, MASK))[:, :kept]


def shuffle_sentences(
    windows: torch.Tensor, ends: torch.Tensor, share: float, generator: torch.Generator
) -> torch.Tensor:
    """In a `share` of the rows, the sentences of each text in another order; `<s>` and `</s>` stay. [rows, length]"""
    rows, length = windows.shape
    device = windows.device
    text = (windows == BOS).cumsum(1)
    ended = ends[windows] | (windows == BOS)
    sentence = ended.cumsum(1) - ended.long()
    place = torch.rand(rows, length + 1, generator=generator, device=device).gather(1, sentence) + 1.0
    place = place.masked_fill(windows == BOS, 0.0).masked_fill(windows == EOS, 3.0) + 4.0 * text
    order = place.argsort(dim=1, stable=True)
    shuffled = torch.rand(rows, 1, generator=generator, device=device) < share
    return torch.where(shuffled, windows.gather(1, order), windows)


def decoder_input(windows: torch.Tensor, blind: float = 0.0, generator: torch.Generator | None = None) -> torch.Tensor:
    """The windows one step to the right after `</s>`, each token hidden with probability `blind`. [rows, length]

    A decoder that sees its own past learns to continue it and never looks at the encoder; one that is blind must look.
    """
    shifted = torch.cat([torch.full_like(windows[:, :1], EOS), windows[:, :-1]], dim=1)
    if blind <= 0:
        return shifted
    unseen = torch.rand(windows.shape, generator=generator, device=windows.device) < blind
    return shifted.masked_fill(unseen, MASK)
