"""The backbones we ship load by plain `from_pretrained`, keep to their sizes and read their input; and their cards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tss.backbones import heldout
from tss.backbones.card import model_card, write_card
from tss.backbones.curve import loss_curve
from tss.backbones.denoiser import Denoiser
from tss.backbones.runlog import read_log, whole_curve
from tss.errors import BackboneError

ROOT = Path(__file__).parents[2]
NANO = ROOT / "tss" / "backbones" / "embedded" / "bart-nano"
MINI = ROOT / "weights" / "bart-mini"
TEXT = (
    "I bought this phone two weeks ago and I am very happy with it. The screen is bright, the battery lasts two days, "
    "and the sound is clear. My only complaint is that the camera is slow in the dark. I would buy it again."
)


@pytest.fixture(scope="module")
def nano():
    from transformers import AutoTokenizer, BartForConditionalGeneration

    model, report = BartForConditionalGeneration.from_pretrained(NANO, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    return model.eval(), AutoTokenizer.from_pretrained(NANO)


@pytest.mark.parametrize(
    ("folder", "most_bytes", "most_parameters"), [(NANO, 6_000_000, 3e6), (MINI, 24_000_000, 12e6)]
)
def test_sizes(folder, most_bytes, most_parameters):
    from safetensors import safe_open

    if not folder.exists():
        pytest.skip("bart-mini is in the repository, not in the wheel")
    assert sum(file.stat().st_size for file in folder.iterdir()) <= most_bytes
    with safe_open(folder / "model.safetensors", framework="pt") as weights:
        shapes = [weights.get_slice(name).get_shape() for name in weights.keys()]  # noqa: SIM118 - not a mapping
        assert weights.get_slice("model.shared.weight").get_dtype() == "BF16"
    assert sum(torch.Size(shape).numel() for shape in shapes) <= most_parameters


def test_nano_is_float32_and_its_vocabulary_fits(nano):
    model, tokenizer = nano
    assert model.dtype == torch.float32 and len(tokenizer) == model.config.vocab_size
    assert model.config.max_position_embeddings == 1024 and model.config.dropout == 0.0


def test_nano_copies_a_text_and_stops(nano):
    model, tokenizer = nano
    batch = tokenizer(TEXT, return_tensors="pt")
    written = model.generate(**batch, num_beams=1, do_sample=False, max_new_tokens=120, forced_eos_token_id=None)
    assert tokenizer.decode(written[0], skip_special_tokens=True) == TEXT


def test_nano_fills_a_gap(nano):
    model, tokenizer = nano
    whole = tokenizer("The film was very good and I liked it.", return_tensors="pt").input_ids
    gap = tokenizer("The film was very good and I <mask> it.", return_tensors="pt").input_ids
    with torch.no_grad():
        logits = model(input_ids=gap, labels=whole).logits[0]
    position = (gap[0] == tokenizer.mask_token_id).nonzero().item()
    guesses = tokenizer.convert_ids_to_tokens(logits[position].topk(20).indices)
    assert any(guess.strip("Ġ") in {"liked", "loved", "enjoyed"} for guess in guesses)


def test_denoiser_gives_the_losses_of_bart(nano):
    model, tokenizer = nano
    ids = tokenizer([TEXT[:120], TEXT[:120]], return_tensors="pt").input_ids
    with torch.no_grad():
        ours = Denoiser(model)(ids, torch.cat([ids[:, :1] * 0 + 2, ids[:, :-1]], 1), ids)
        theirs = model(input_ids=ids, labels=ids).loss
    assert ours.mean().item() == pytest.approx(theirs.item(), rel=1e-4)


def test_copy_score_of_texts(nano):
    _, tokenizer = nano
    ids = tokenizer([TEXT[:60]], return_tensors="pt").input_ids
    assert heldout.copy_score(NANO, ids, "cpu")["exact"] == 1.0


@pytest.mark.parametrize("name", ["nano", "mini"])
def test_logged_scores(name):
    end = [line for line in read_log(ROOT / "results" / "backbone" / f"{name}.jsonl") if line["event"] == "end"][-1]
    assert end["copy"]["equal"] >= 0.95 and end["copy"]["stopped"] == 1.0


LOG = [
    {
        "event": "begin",
        "parameters": 2e6,
        "training_tokens": 5e6,
        "held_out_tokens": 5e4,
        "workers": 1,
        "device": "a GPU",
    }
    | {"shape": dict.fromkeys(("encoder_layers", "decoder_layers", "width", "ffn", "heads", "vocabulary"), 4)}
    | {"recipe": {"lengths": [[256, 0.5], [1024, 0.5]], "shuffled_share": 0.1}},
    {"event": "step", "step": 50, "tokens": 100, "seconds": 1.0, "loss": 7.5},
    {"event": "held-out", "step": 60, "tokens": 120, "seconds": 1.1, "masked": 4.0, "all": 1.5},
    {"event": "end", "step": 60, "tokens": 120e6, "seconds": 120.0, "held_out": {"masked": 3.9, "all": 1.25}}
    | {"copy": {"texts": 48, "tokens": 200, "equal": 0.987, "stopped": 1.0, "exact": 0.5}},
]

SCORES = {"cells": {"bart-x one": {"asc": 66.61, "ccd": 80, "ner": 40, "mean": 65, "deviation": 1.5, "seeds": 3}}}


def test_card_is_written_from_the_log(tmp_path):
    log = tmp_path / "nano.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in LOG), "utf-8")
    (tmp_path / "weights").mkdir()
    write_card("bart-x", log, tmp_path / "weights", "Some text (CC0).")
    card = (tmp_path / "weights" / "README.md").read_text("utf-8")
    assert "Some text (CC0)." in card and "98.7%" in card and "1.250" in card and "| 2.0 | 1 x a GPU |" in card
    assert "](../nano.svg)" in card and "Not measured" in card and (tmp_path / "nano.svg").exists()
    (tmp_path / "tasks.json").write_text(json.dumps(SCORES), "utf-8")
    write_card("bart-x", log, tmp_path / "weights", "Some text (CC0).")
    assert "| bart-x one | 66.6 | 80.0 | 40.0 | 65.0 ± 1.5 | 3 |" in (tmp_path / "weights" / "README.md").read_text(
        "utf-8"
    )


def test_further_training_is_counted_on():
    twice = [*LOG, *LOG]
    assert whole_curve(twice)[-1]["step"] == 120 and whole_curve(twice)[-1]["seconds"] == 240.0
    assert model_card("bart-x", twice, "", "x.svg").count("| 60 | 120.0 |") == 2
    assert loss_curve(twice, "x").count("<polyline") == 3


def test_an_unfinished_log_has_no_card(tmp_path):
    (tmp_path / "log.jsonl").write_text(json.dumps(LOG[0]) + "\n", "utf-8")
    with pytest.raises(BackboneError, match="no finished run"):
        read_log(tmp_path / "log.jsonl")
    with pytest.raises(BackboneError, match="cannot read"):
        read_log(tmp_path / "none.jsonl")
