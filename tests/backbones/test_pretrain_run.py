"""A tiny pretraining run on the CPU: it learns, it resumes as the same run, and its files load."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tss.backbones import pretrain as recipe_module
from tss.backbones.pretrain import pretrain
from tss.backbones.recipe import Recipe
from tss.backbones.tokens import tokenise
from tss.errors import BackboneError, ConfigError

RECIPE = Recipe(
    tokens_per_step=512, lengths=((32, 0.7), (64, 0.3)), warmup=5, blind=6, in_place=12, seeing=20,
    log_every=5, score_every=20, checkpoint_seconds=0.0,
)  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    words = [
        "the",
        "a",
        "film",
        "phone",
        "battery",
        "is",
        "was",
        "good",
        "bad",
        "very",
        "not",
        "screen",
        "I",
        "you",
        "poor",
    ]
    dice = random.Random(0)
    sentences = [" ".join(dice.choices(words, k=8)) + "." for _ in range(900)]
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text("\n".join(" ".join(dice.choices(sentences, k=30)) for _ in range(201)), "utf-8")
    return path


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory) -> tuple[Path, dict]:
    out = tmp_path_factory.mktemp("whole")
    return out, pretrain([corpus], "tiny", out, steps=30, device="cpu", recipe=RECIPE)


def lines(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "log.jsonl").read_text("utf-8").splitlines()]


def test_loss_on_unseen_text_falls(finished):
    out, scores = finished
    steps = [line["loss"] for line in lines(out) if line["event"] == "step"]
    assert steps[-1] < steps[0] - 1.0
    assert scores["held_out"]["masked"] < steps[0] and scores["held_out"]["all"] < steps[0]
    assert scores["copy"]["texts"] == 3


def test_resumed_run_is_the_same_run(finished, corpus, tmp_path, monkeypatch):
    whole, _ = finished
    real, taken = recipe_module._step, 0

    def breaks(*arguments):
        nonlocal taken
        taken += 1
        if taken == 18:
            raise OSError("the machine went away")
        return real(*arguments)

    monkeypatch.setattr(recipe_module, "_step", breaks)
    with pytest.raises(OSError, match="went away"):
        pretrain([corpus], "tiny", tmp_path, steps=30, device="cpu", recipe=RECIPE)
    monkeypatch.undo()
    pretrain([corpus], "tiny", tmp_path, steps=30, device="cpu", recipe=RECIPE)
    unbroken, resumed = load_file(whole / "model.safetensors"), load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(unbroken[name], resumed[name]) for name in unbroken)
    assert [line["step"] for line in lines(tmp_path) if line["event"] == "step"] == [5, 10, 15, 20, 25, 30]
    assert not (tmp_path / "state.safetensors").exists()


def test_files_load_by_plain_from_pretrained(finished):
    from transformers import AutoTokenizer, BartForConditionalGeneration

    out, _ = finished
    tokenizer = AutoTokenizer.from_pretrained(out)
    model, report = BartForConditionalGeneration.from_pretrained(out, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert model.dtype == torch.float32 and len(tokenizer) == model.config.vocab_size
    assert model.generate(**tokenizer("the film", return_tensors="pt"), max_new_tokens=3).shape[1] <= 4


def test_wrong_arguments_are_explained(corpus, tmp_path):
    with pytest.raises(ConfigError, match="nano"):
        pretrain([corpus], "nanoo", tmp_path, steps=1)
    with pytest.raises(ConfigError, match="minutes or steps"):
        pretrain([corpus], "tiny", tmp_path)
    with pytest.raises(BackboneError, match="missing.txt"):
        pretrain([tmp_path / "missing.txt"], "tiny", tmp_path, steps=1, device="cpu")


def test_schedules():
    recipe = replace(Recipe(), blind=500, seeing=2500)
    assert [recipe.blindness(step) for step in (0, 499, 1500, 2500, 9000)] == [1.0, 1.0, 0.5, 0.0, 0.0]
    size = recipe_module.size_named("mini")
    assert recipe.learning_rate(size, 0, 0.0) < recipe.learning_rate(size, 399, 0.0) == pytest.approx(1e-3)
    assert recipe.learning_rate(size, 9999, 1.0) == pytest.approx(5e-5)


def test_nothing_is_overwritten_by_mistake(finished, corpus, tmp_path):
    out, _ = finished
    with pytest.raises(BackboneError, match="finished model"):
        pretrain([corpus], "tiny", out, steps=1, device="cpu", recipe=RECIPE)
    other = tmp_path / "other.txt"
    other.write_text(corpus.read_text("utf-8") + "\nOne more document.", "utf-8")
    tokenise([corpus], 300, tmp_path, RECIPE)
    with pytest.raises(BackboneError, match="other text"):
        pretrain([other], "tiny", tmp_path, steps=1, device="cpu", recipe=RECIPE)


def test_goes_on_from_a_finished_model(finished, corpus, tmp_path):
    start, before = finished
    after = pretrain([corpus], "tiny", tmp_path, steps=10, device="cpu", recipe=replace(RECIPE, seed=1), start=start)
    assert after["held_out"]["all"] < before["held_out"]["all"]
    assert (tmp_path / "tokenizer.json").read_bytes() == (start / "tokenizer.json").read_bytes()
    with pytest.raises(BackboneError, match="vocab_size|d_model"):
        pretrain([corpus], "nano", tmp_path / "other", steps=1, device="cpu", start=start)
