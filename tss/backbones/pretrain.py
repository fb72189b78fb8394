"""Pretrain a small BART from plain text: tokenizer, denoising, held-out scores, files that `from_pretrained` loads.

One GPU in minutes, several under `accelerate launch`, or a tiny size on the CPU. The run can be stopped at any moment
and goes on from its last checkpoint; every step draws its windows and noise from (seed, step, worker) alone, so a
resumed run is the same run. What each setting is for, and which others fail: docs/pretraining.md.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from transformers import BartForConditionalGeneration

from tss.backbones import corpus as texts
from tss.backbones import denoise, heldout
from tss.backbones.checkpoint import load_checkpoint, save_checkpoint
from tss.backbones.denoiser import Denoiser, export
from tss.backbones.recipe import Recipe, batch
from tss.backbones.runlog import Progress, logger, trim_log
from tss.backbones.shape import Size, new_model, size_named
from tss.errors import BackboneError, ConfigError, TrainingError


@dataclass
class _Run:
    """One pretraining run: where it writes, what it trains, how far it is."""

    out: Path
    size: Size
    recipe: Recipe
    denoiser: Denoiser
    wrapped: torch.nn.Module
    optimizer: torch.optim.AdamW
    training: denoise.Text
    unseen: denoise.Text
    worker: int
    workers: int
    log: Callable[[dict], None]
    progress: dict[str, float] = field(default_factory=lambda: {"step": 0, "tokens": 0, "seconds": 0.0})


def pretrain(
    corpus: Sequence[Path],
    size: str,
    out: Path,
    *,
    minutes: float | None = None,
    steps: int | None = None,
    device: str | None = None,
    resume: bool = True,
    start: Path | None = None,
    on_progress: Progress | None = None,
    recipe: Recipe | None = None,
) -> dict:
    """Pretrain a BART of `size` on the files of `corpus` into the folder `out`; returns the scores on held-out text.

    Ends after `minutes` of training or `steps`, whichever is first; one must be given. `out` receives weights,
    config, tokenizer, `log.jsonl` and, until the run is done, what it needs to `resume`. A `tokenizer.json` already
    in `out` is used as it is. `on_progress` is called with each line of the log. `device`: None for the GPU if there
    is one. `start`: go on from the finished model in that folder, with its tokenizer and without the curriculum.

    Raises: ConfigError for an unknown size or no limit; BackboneError for an unusable corpus; TrainingError if the
    loss is not a number; DamagedError if the checkpoint cannot be used.
    """
    from accelerate import Accelerator

    shape = size_named(size)
    if minutes is None and steps is None:
        raise ConfigError("say how long to pretrain: give minutes or steps")
    recipe = recipe or Recipe()
    accelerator = Accelerator(cpu=device == "cpu")
    main = accelerator.is_main_process
    out.mkdir(parents=True, exist_ok=True)
    if not resume:
        _forget(out)
    if start:
        recipe = replace(recipe, blind=0, in_place=0, seeing=0)  # it reads its encoder already
    with accelerator.main_process_first():
        if start:
            _take_tokenizer(start, out)
        stream, unseen, ends, shape = _tokens(corpus, shape, out, recipe, on_progress if main else None)
    model = _trained(start, shape) if start else new_model(shape, recipe.seed)
    denoiser = Denoiser(model).to(accelerator.device)
    cuda = accelerator.device.type == "cuda"
    optimizer = torch.optim.AdamW(
        denoiser.parameters(), lr=0.0, betas=(0.9, 0.98), weight_decay=recipe.weight_decay, fused=cuda
    )
    if cuda:
        torch.backends.cuda.matmul.allow_tf32 = True
        denoiser.compile_layers()
    run = _Run(
        out, shape, recipe, denoiser, denoiser, optimizer,
        denoise.Text.on(accelerator.device, stream, ends), denoise.Text.on(accelerator.device, unseen, ends),
        accelerator.process_index, accelerator.num_processes, logger(out, on_progress) if main else (lambda line: None),
    )  # fmt: skip
    state = out / "state.safetensors"
    if state.exists():
        run.progress = load_checkpoint(state, denoiser.bart, optimizer)
        trim_log(out, run.progress["step"])
    run.wrapped = accelerator.prepare(denoiser)
    run.log(
        {
            "event": "begin",
            "size": size,
            "continued": bool(start),
            "shape": asdict(shape),
            "recipe": asdict(recipe),
            **_facts(run, stream),
        }
    )
    _train(run, minutes, steps)
    scores = _finish(run, unseen) if main else {}
    accelerator.wait_for_everyone()
    return scores


def _tokens(
    corpus: Sequence[Path], shape: Size, out: Path, recipe: Recipe, on_progress: Progress | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Size]:
    """Training stream, held-out stream, tokens that end a sentence, and the size with the tokenizer's vocabulary."""
    from safetensors.numpy import load_file, save_file

    kept = out / "tokens.safetensors"
    if kept.exists() and (out / "tokenizer.json").exists():
        tokenizer, tokens = texts.load_tokenizer(out), load_file(kept)
    else:
        training, held_out = texts.read_documents(corpus)
        if on_progress:
            on_progress({"event": "read", "documents": len(training), "held_out": len(held_out)})
        if not (out / "tokenizer.json").exists():
            texts.save_tokenizer(texts.train_tokenizer(training, shape.vocabulary), out)
        tokenizer = texts.load_tokenizer(out)
        stream = texts.encode_documents(tokenizer, training)
        stream = texts.cut_short(stream, texts.sentence_ends(tokenizer), recipe.short_share, recipe.seed)
        tokens = {"training": stream, "held_out": texts.encode_documents(tokenizer, held_out)}
        save_file(tokens, kept)
    shape = replace(shape, vocabulary=tokenizer.get_vocab_size())
    return tokens["training"], tokens["held_out"], texts.sentence_ends(tokenizer), shape


def _take_tokenizer(start: Path, out: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if not (start / name).is_file():
            raise BackboneError(f"{start} has no {name}; give the folder of a finished pretraining run")
        shutil.copyfile(start / name, out / name)


def _trained(start: Path, shape: Size) -> BartForConditionalGeneration:
    """The model in `start`. Raises: BackboneError if its shape is another one."""
    model = BartForConditionalGeneration.from_pretrained(start, dtype=torch.float32, use_safetensors=True)
    wanted = shape.config()
    for key in ("vocab_size", "d_model", "encoder_layers", "decoder_layers", "encoder_ffn_dim"):
        if getattr(model.config, key) != getattr(wanted, key):
            raise BackboneError(
                f"{start} has {key} {getattr(model.config, key)}, not {getattr(wanted, key)}; "
                "name the size it was trained with"
            )
    return model.train()


def _train(run: _Run, minutes: float | None, steps: int | None) -> None:
    """Take steps until the limit; log, score and checkpoint on the way."""
    recipe, progress = run.recipe, run.progress
    began = time.monotonic() - progress["seconds"]
    saved = time.monotonic()
    losses: list[torch.Tensor] = []
    while (done := _done(progress, minutes, steps)) < 1.0:
        step = int(progress["step"])
        rate = recipe.learning_rate(run.size, step, done)
        loss, tokens = _step(run, step, rate, done)
        losses.append(loss)
        progress["step"], progress["tokens"] = step + 1, progress["tokens"] + tokens
        progress["seconds"] = time.monotonic() - began
        if (step + 1) % recipe.log_every == 0:
            _report(run, losses, rate, done)
            losses = []
        if (step + 1) % recipe.score_every == 0 and run.worker == 0:
            run.log({"event": "held-out", **progress, **_score(run, batches=1)})
        if run.worker == 0 and time.monotonic() - saved > recipe.checkpoint_seconds:
            _checkpoint(run)
            saved = time.monotonic()


def _done(progress: dict[str, float], minutes: float | None, steps: int | None) -> float:
    by_time = progress["seconds"] / (60.0 * minutes) if minutes else 0.0
    by_steps = progress["step"] / steps if steps else 0.0
    return max(by_time, by_steps)


def _step(run: _Run, step: int, rate: float, done: float) -> tuple[torch.Tensor, int]:
    """One step of the optimiser; returns the loss (on the device) and the tokens seen by all workers."""
    recipe = run.recipe
    encoder_ids, decoder_ids, windows = batch(recipe, run.training, step, done, run.worker, run.workers)
    for group in run.optimizer.param_groups:
        group["lr"] = rate
    with torch.autocast("cuda", torch.bfloat16, enabled=windows.is_cuda):
        loss = run.wrapped(encoder_ids, decoder_ids, windows).mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(run.denoiser.parameters(), recipe.clip)
    run.optimizer.step()
    run.optimizer.zero_grad(set_to_none=True)
    return loss.detach(), windows.numel() * run.workers


def _score(run: _Run, batches: int) -> dict[str, float]:
    length = run.recipe.lengths[0][0]
    return heldout.held_out_loss(
        run.denoiser, run.unseen, max(1, run.recipe.tokens_per_step // length), length, batches
    )


def _report(run: _Run, losses: list[torch.Tensor], rate: float, done: float) -> None:
    loss = torch.stack(losses).mean().item()
    run.log({"event": "step", **run.progress, "loss": loss, "learning_rate": rate, "done": done})
    if not math.isfinite(loss):
        raise TrainingError(
            f"the loss is {loss} at step {run.progress['step']:.0f}; the last checkpoint in {run.out} is from before. "
            "Lower the learning rate of this size and resume"
        )


def _checkpoint(run: _Run) -> None:
    if run.worker == 0 and run.progress["step"]:
        save_checkpoint(run.out / "state.safetensors", run.denoiser.bart, run.optimizer, run.progress)
        export(run.denoiser.bart, run.out)


def _finish(run: _Run, unseen: np.ndarray) -> dict:
    """Export, score what was exported, and drop what only a resumed run needs."""
    export(run.denoiser.bart, run.out)
    scores = {"held_out": _score(run, batches=8)}
    to_copy = heldout.documents_to_copy(unseen, count=48)
    if len(to_copy):
        scores["copy"] = heldout.copy_score(run.out, to_copy, run.training.stream.device)
    run.log({"event": "end", **run.progress, **scores})
    for name in ("state.safetensors", "tokens.safetensors"):
        (run.out / name).unlink(missing_ok=True)
    return scores


def _forget(out: Path) -> None:
    for name in ("state.safetensors", "tokens.safetensors", "tokenizer.json", "log.jsonl"):
        (out / name).unlink(missing_ok=True)


def _facts(run: _Run, stream: np.ndarray) -> dict:
    device = run.training.stream.device
    return {
        "parameters": sum(p.numel() for p in run.denoiser.parameters()),
        "training_tokens": len(stream),
        "held_out_tokens": len(run.unseen.stream),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "workers": run.workers,
        "torch": torch.__version__,
    }
