"""Pretrain a small BART from plain text: tokenizer, denoising, held-out scores, files that `from_pretrained` loads.

One GPU in minutes, several under `accelerate launch`, or a tiny size on the CPU. The run can be stopped at any moment
and goes on from its last checkpoint; every step draws its windows and noise from (seed, step, worker) alone, so a
resumed run is the same run. What each setting is for, and which others fail: docs/pretraining.md.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import BartForConditionalGeneration

from tss.backbones import denoise, heldout
from tss.backbones.checkpoint import load_checkpoint, save_checkpoint
from tss.backbones.denoiser import Denoiser, export
from tss.backbones.recipe import Recipe, batch, plain_batch
from tss.backbones.runlog import NAME as LOG
from tss.backbones.runlog import Progress, logger, trim_log
from tss.backbones.shape import Size, new_model, size_named
from tss.backbones.tokens import NAME as TOKENS
from tss.backbones.tokens import Tokens, take_tokenizer, tokenise
from tss.errors import BackboneError, ConfigError, TrainingError

if TYPE_CHECKING:
    from accelerate import Accelerator

_STATE = "state.safetensors"


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
    progress: dict[str, float]
    log: Progress = lambda line: None  # noqa: E731 - only the first worker writes


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

    shape, recipe = size_named(size), recipe or Recipe()
    if minutes is None and steps is None:
        raise ConfigError("say how long to pretrain: give minutes or steps")
    if start:
        recipe = replace(recipe, blind=0, in_place=0, seeing=0)  # it reads its encoder already
    accelerator = Accelerator(cpu=device == "cpu")
    main = accelerator.is_main_process
    with accelerator.main_process_first():
        if main:
            _prepare(out, resume, start)
        tokens = tokenise(corpus, shape.vocabulary, out, recipe, on_progress if main else None)
    shape = replace(shape, vocabulary=tokens.vocabulary)
    bart = _trained(start, shape) if start else new_model(shape, recipe.seed)
    run = _begin(accelerator, out, shape, recipe, bart, tokens)
    if main:
        run.log = logger(out, on_progress)
    run.log({"event": "begin", "size": size, "continued": bool(start), **_facts(run)})
    _train(run, minutes, steps)
    scores = _finish(run, tokens) if main else {}
    accelerator.wait_for_everyone()
    return scores


def _prepare(out: Path, resume: bool, start: Path | None) -> None:
    """Make `out` ready. Raises: BackboneError if a finished model is in it, which another run would overwrite."""
    out.mkdir(parents=True, exist_ok=True)
    if not resume:
        for name in (_STATE, TOKENS, LOG, "tokenizer.json", "model.safetensors"):
            (out / name).unlink(missing_ok=True)
    if not (out / _STATE).exists():
        if (out / "model.safetensors").exists():
            raise BackboneError(f"{out} holds a finished model; choose another folder, or replace it (--fresh)")
        (out / LOG).unlink(missing_ok=True)
    if start:
        take_tokenizer(start, out)


def _begin(
    accelerator: Accelerator, out: Path, shape: Size, recipe: Recipe, bart: BartForConditionalGeneration, tokens: Tokens
) -> _Run:
    """The run on its device, as far as its last checkpoint."""
    device = accelerator.device
    cuda = device.type == "cuda"
    denoiser = Denoiser(bart).to(device)
    optimizer = torch.optim.AdamW(
        denoiser.parameters(), lr=0.0, betas=(0.9, 0.98), weight_decay=recipe.weight_decay, fused=cuda
    )
    progress = {"step": 0.0, "tokens": 0.0, "seconds": 0.0}
    if (out / _STATE).exists():
        progress = load_checkpoint(out / _STATE, bart, optimizer)
        if accelerator.is_main_process:
            trim_log(out, progress["step"])
    if cuda:
        torch.backends.cuda.matmul.allow_tf32 = True
        denoiser.compile_layers()
    training, unseen = (denoise.Text.on(device, ids, tokens.ends) for ids in (tokens.training, tokens.held_out))
    return _Run(
        out, shape, recipe, denoiser, accelerator.prepare(denoiser), optimizer, training, unseen,
        accelerator.process_index, accelerator.num_processes, progress,
    )  # fmt: skip


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
        progress["seconds"] = _agreed(run, time.monotonic() - began)
        if (step + 1) % recipe.log_every == 0:
            _report(run, losses, rate, done)
            losses = []
        if (step + 1) % recipe.score_every == 0 and run.worker == 0:
            run.log({"event": "held-out", **progress, **_score(run, batches=1)})
        if run.worker == 0 and time.monotonic() - saved > recipe.checkpoint_seconds:
            _checkpoint(run)
            saved = time.monotonic()


def _agreed(run: _Run, seconds: float) -> float:
    """The first worker's clock, so that all workers stop after the same step."""
    if run.workers == 1:
        return seconds
    clock = torch.tensor(seconds, dtype=torch.float64, device=run.training.stream.device)
    torch.distributed.broadcast(clock, src=0)
    return clock.item()


def _done(progress: dict[str, float], minutes: float | None, steps: int | None) -> float:
    by_time = progress["seconds"] / (60.0 * minutes) if minutes else 0.0
    by_steps = progress["step"] / steps if steps else 0.0
    return max(by_time, by_steps)


def _step(run: _Run, step: int, rate: float, done: float) -> tuple[torch.Tensor, int]:
    """One step of the optimiser; returns the loss of denoising (on the device) and the tokens seen by all workers."""
    recipe = run.recipe
    encoder_ids, decoder_ids, windows = batch(recipe, run.training, step, done, run.worker, run.workers)
    for group in run.optimizer.param_groups:
        group["lr"] = rate
    with torch.autocast("cuda", torch.bfloat16, enabled=windows.is_cuda):
        loss = run.wrapped(encoder_ids, decoder_ids, windows).mean()
        total, tokens = loss, windows.numel()
        if done >= recipe.settle:
            plain = plain_batch(recipe, run.training, step, run.worker, run.workers)
            with torch.compiler.set_stance("force_eager"):  # almost every step has another length
                copying = run.wrapped(plain, denoise.decoder_input(plain), plain).mean()
            total, tokens = loss + recipe.copy_weight * copying, tokens + plain.numel()
    total.backward()
    torch.nn.utils.clip_grad_norm_(run.denoiser.parameters(), recipe.clip)
    run.optimizer.step()
    run.optimizer.zero_grad(set_to_none=True)
    return loss.detach(), tokens * run.workers


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
        save_checkpoint(run.out / _STATE, run.denoiser.bart, run.optimizer, run.progress)
        export(run.denoiser.bart, run.out)


def _finish(run: _Run, tokens: Tokens) -> dict:
    """Export, score what was exported, and drop what only a resumed run needs."""
    export(run.denoiser.bart, run.out)
    scores = {"held_out": _score(run, batches=max(1, len(tokens.held_out) // run.recipe.tokens_per_step))}
    to_copy = heldout.documents_to_copy(tokens.held_out, count=48)
    if len(to_copy):
        scores["copy"] = heldout.copy_score(run.out, to_copy, run.training.stream.device)
    run.log({"event": "end", **run.progress, **scores})
    for name in (_STATE, TOKENS):
        (run.out / name).unlink(missing_ok=True)
    return scores


def _facts(run: _Run) -> dict:
    device = run.training.stream.device
    return {
        "shape": asdict(run.size),
        "recipe": asdict(run.recipe),
        "parameters": sum(p.numel() for p in run.denoiser.parameters()),
        "training_tokens": len(run.training.stream),
        "held_out_tokens": len(run.unseen.stream),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "workers": run.workers,
        "torch": torch.__version__,
    }
