"""A backbone of the shape that a benchmark asks for, in a store without tasks, and a lesson for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from tss import Learner, randomness
from tss.backbones.load import available
from tss.learning.compiled import VARIANTS
from tss.tasks.batches import Row
from tss.tasks.kind import ReadingConfig, kind_of
from tss.tasks.lesson import Lesson, Split
from tss.tasks.task import Lengths

LABELS = 3
STORED = {"nano": "bart-nano", "mini": "bart-mini"}
TOY = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128}
DRAWN = {"bart-large": {}, "toy": TOY}  # the defaults of transformers are BART-large


def opened(folder: Path, shape: str, device: str, method: str | None = None, precision: str = "") -> Learner:
    """A learner with an empty store and a backbone of the shape, by default in the precision of such benchmarks.

    Random weights are drawn on the device itself: BART-large's, made on a CPU and passed through a file, take a minute.
    """
    from transformers import AutoModelForSeq2SeqLM, BartConfig

    options = {"precision": precision or ("bfloat16" if device == "cuda" else "float32")}
    name = STORED.get(shape, str(folder / "random"))
    learner = Learner.open(folder / "store", name, method, device=device, config=options)
    if shape in DRAWN:
        BartConfig(decoder_start_token_id=2, **DRAWN[shape]).save_pretrained(name)
        for file in available()["bart-nano"].glob("tokenizer*.json"):
            Path(name, file.name).write_bytes(file.read_bytes())

        def drawn(*_: Any, config: Any, **__: Any) -> tuple[nn.Module, dict[str, set]]:
            return random_bart(config, device, options["precision"]), {"missing_keys": set()}

        with patch.object(AutoModelForSeq2SeqLM, "from_pretrained", drawn):
            _ = learner.backbone
    return learner


def many_variants() -> None:
    """A layer more is a variant more of the same code: the compiler shall not give up on peers either."""
    from torch import _dynamo  # here, as it takes seconds and others import this file

    _dynamo.config.recompile_limit = VARIANTS


def random_bart(config: Any, device: str, precision: str) -> nn.Module:
    """Weights as transformers draws them, but once and in place: nn.Linear's own start is never computed."""
    from transformers import BartForConditionalGeneration

    with torch.device("meta"):
        model = BartForConditionalGeneration(config)
    model.to(getattr(torch, precision)).to_empty(device=device).tie_weights()
    draw = torch.Generator(device).manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(0.0, config.init_std, generator=draw)
            else:
                parameter.fill_(float(name.endswith("norm.weight") or name.endswith("norm_embedding.weight")))
        for buffer in model.buffers():
            buffer.zero_()
    return model


def made_lesson(learner: Learner, rows: int, length: int) -> Lesson:
    """Random texts of exactly `length` tokens: no padding, so that all sides compute the same."""
    kind = kind_of("classification")([str(n) for n in range(LABELS)], Lengths(), "", ReadingConfig())
    lesson = Lesson(learner.backbone, kind, "texts", "0/texts")
    words = min(4000, learner.backbone.model.config.vocab_size - 10)
    ids = (randomness.words("texts", rows * length) % words + 10).astype(int).reshape(rows, length).tolist()
    lesson.train = Split([Row(one, [i % LABELS]) for i, one in enumerate(ids)], [str(i % LABELS) for i in range(rows)])
    lesson.valid = lesson.train.first(8)
    return lesson
