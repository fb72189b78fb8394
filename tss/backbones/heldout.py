"""How well a pretrained BART reads text it has never seen: the loss, and whether it can copy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from tss.backbones import denoise
from tss.backbones.corpus import BOS, EOS

COPY_TOKENS = 200


@torch.no_grad()
def held_out_loss(denoiser: nn.Module, text: denoise.Text, rows: int, length: int, batches: int) -> dict[str, float]:
    """Loss in nats a token of infilling on `text`: over the hidden tokens (`masked`) and over all (`all`).

    Windows and noise are the same in every call.
    """
    device = text.stream.device
    generator = torch.Generator(device).manual_seed(0)
    sums = torch.zeros(2, dtype=torch.float64, device=device)
    hidden_count = 0
    with torch.enable_grad():  # the graph compiled for training serves here too; nothing is backpropagated
        for _ in range(batches):
            windows = denoise.draw_windows(text, rows, length, generator)
            hidden, first = denoise.draw_spans(rows, length, generator)
            noised = denoise.infill(windows, hidden, first)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                losses = denoiser(noised, denoise.decoder_input(windows), windows).detach()
            sums += torch.stack([losses[hidden].double().sum(), losses.double().sum()])
            hidden_count += rows * denoise.hidden_tokens(length)[0]
    masked, everything = sums.tolist()
    return {"masked": masked / hidden_count, "all": everything / (rows * length * batches)}


def documents_to_copy(stream: np.ndarray, count: int) -> torch.Tensor:
    """The first `COPY_TOKENS` tokens of up to `count` documents long enough, each `<s> … </s>`. [texts, tokens]"""
    begins = np.flatnonzero(stream == BOS)
    ends = np.flatnonzero(stream == EOS)
    long_enough = begins[ends - begins > COPY_TOKENS][:count]
    inside = stream[long_enough[:, None] + np.arange(COPY_TOKENS + 2)].astype(np.int64)
    inside[:, -1] = EOS
    return torch.from_numpy(inside)


@torch.no_grad()
def copy_score(folder: Path, texts: torch.Tensor, device: torch.device | str) -> dict[str, float]:
    """How the model in `folder` copies `texts` [texts, tokens] when it writes freely, the likeliest token at each step.

    `equal`: share of positions where output and input agree; `stopped`: share of outputs that end with `</s>` by
    themselves; `exact`: share of outputs that are the input.
    """
    from transformers import BartForConditionalGeneration

    bart = BartForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    torch.nn.Module.to(bart, device)
    count, length = texts.shape
    room = 2 * length
    written = bart.generate(
        texts.to(device), attention_mask=torch.ones_like(texts, device=device), do_sample=False, num_beams=1,
        max_new_tokens=room, forced_eos_token_id=None,
    ).cpu()[:, 1:]  # fmt: skip
    padded = torch.full((count, max(length, written.shape[1])), bart.config.pad_token_id)
    padded[:, : written.shape[1]] = written
    equal = padded[:, :length] == texts
    stopped = (written == EOS).any(dim=1)
    ends = torch.where(stopped, (written == EOS).int().argmax(dim=1) + 1, room)
    return {
        "texts": count,
        "tokens": COPY_TOKENS,
        "equal": equal.float().mean().item(),
        "stopped": stopped.float().mean().item(),
        "exact": (equal.all(dim=1) & (ends == length)).float().mean().item(),
    }
