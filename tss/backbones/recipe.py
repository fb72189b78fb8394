"""The pretraining recipe: its settings, and the batch each step learns from.

A step depends on (seed, step, share of the run done, worker) alone, so that a resumed run is the same run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from tss.backbones import denoise
from tss.backbones.shape import Size
from tss.randomness import seed_of, shuffler


@dataclass(frozen=True)
class Recipe:
    """How to pretrain. Steps before `seeing` are the curriculum that makes the decoder read the encoder."""

    tokens_per_step: int = 65_536
    lengths: tuple[tuple[int, float], ...] = ((256, 0.60), (128, 0.15), (512, 0.15), (1024, 0.10))  # share of tokens
    rate: float = 1.0  # times the learning rate of the size
    warmup: int = 400
    blind: int = 500  # until here the decoder sees nothing of its own past
    in_place: int = 1500  # until here hidden tokens are masked one by one, so that nothing moves
    seeing: int = 2500  # from here the decoder sees all its past, and sentences are shuffled
    in_place_share: float = 0.1  # of later steps: nothing moves, and half of the windows hide nothing
    shuffled_share: float = 0.1
    settle: float = 0.85  # from this share of the run on no sentence is shuffled, and plain text is copied in each step
    copy_weight: float = 4.0  # of the loss of copying, which is small once it can be done at all
    short_share: float = 0.3
    weight_decay: float = 0.01
    clip: float = 1.0
    final_rate: float = 0.05
    seed: int = 0
    log_every: int = 50
    score_every: int = 1000
    checkpoint_seconds: float = 90.0

    def learning_rate(self, size: Size, step: int, done: float) -> float:
        """Linear warm-up in steps, then a cosine over the share of the run that is `done`."""
        cosine = self.final_rate + (1 - self.final_rate) * 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
        return self.rate * size.learning_rate * min(1.0, (step + 1) / self.warmup) * cosine

    def blindness(self, step: int) -> float:
        """Share of the decoder's input that is hidden at `step`."""
        return min(1.0, max(0.0, (self.seeing - step) / max(1, self.seeing - self.blind)))


def batch(
    recipe: Recipe, text: denoise.Text, step: int, done: float, worker: int = 0, workers: int = 1
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What `worker` learns at `step`, when `done` of the run is done: encoder ids, decoder ids, target.

    [rows, read], [rows, length], [rows, length]
    """
    dice = shuffler(recipe.seed, step)
    main = recipe.lengths[0][0]
    settled = done >= recipe.settle
    in_place = step < recipe.in_place or dice.random() < recipe.in_place_share
    sizes, shares = zip(*recipe.lengths, strict=True)
    length = main if in_place else dice.choices(sizes, shares)[0]
    rows = max(1, recipe.tokens_per_step // (length * workers))
    generator = torch.Generator(text.stream.device).manual_seed(seed_of("pretrain", recipe.seed, step, worker))
    windows = denoise.draw_windows(text, rows, length, generator)
    hidden, first = denoise.draw_spans(rows, length, generator)
    if step < recipe.in_place:
        read = denoise.mask_in_place(windows, hidden)
    elif in_place:
        noised = torch.rand(rows, 1, generator=generator, device=windows.device) < 0.5
        read = denoise.mask_in_place(windows, hidden & noised)
    else:
        order = windows
        if step >= recipe.seeing and not settled:
            order = denoise.shuffle_sentences(windows, text.ends, recipe.shuffled_share, generator)
        read = denoise.infill(order, hidden, first)
    return read, denoise.decoder_input(windows, recipe.blindness(step), generator), windows


def plain_batch(recipe: Recipe, text: denoise.Text, step: int, worker: int = 0, workers: int = 1) -> torch.Tensor:
    """Windows for `worker` to copy at `step` once the run has settled. [rows, length]

    Of any length up to the main one, in steps of 8: a model that copies windows of one length only loses its place
    near the end of shorter texts.
    """
    main = recipe.lengths[0][0]
    length = shuffler("copy", recipe.seed, step).randrange(main // 4, main + 1, 8)
    generator = torch.Generator(text.stream.device).manual_seed(seed_of("copy", recipe.seed, step, worker))
    return denoise.draw_windows(text, max(1, recipe.tokens_per_step // (length * workers)), length, generator)
