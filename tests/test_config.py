"""Options: flat keys, checked before any model is loaded."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tss.config import PRESETS, resolve
from tss.errors import ConfigError
from tss.methods import METHODS


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_every_preset(method, preset):
    flat = resolve(method, preset).flat()
    assert json.loads(json.dumps(flat)) == flat
    assert resolve(method, given=flat).flat() == flat  # a record of a run makes the same run


def test_defaults_are_the_recommended_ones():
    flat = resolve("tss").flat()
    expected = {
        "bottleneck": 64,
        "adapter_sites": "ffn",
        "adapter_init": "normal002",
        "head": "linear",
        "threshold": "gt",
        "softmask_apply": "update",
        "impt_reduce": "signed_mean",
        "impt_norm": "abs_tanh",
        "impt_unit": "matrix",
        "impt_target": "score",
        "score_lr": 3e-2,
        "head_lr": 2.75e-3,
        "epochs": 50,
        "min_steps": 200,
        "batch_size": 32,
        "warmup": 0.1,
        "patience": 5,
        "eval_steps": 50,
        "dev_examples": 500,
        "precision": "float32",
        "clip": 0.0,
    }
    assert {key: flat[key] for key in expected} == expected


def test_presets_follow_the_table_of_disagreements():
    paper, code = (resolve("tss", preset).flat() for preset in ("paper", "code"))
    assert (paper["head"], paper["pool"], paper["asc_pool"], paper["head_lr"]) == ("two-layer", "last", "mean", 3e-2)
    assert (paper["threshold"], paper["score_lr"], paper["impt_reduce"]) == ("gt", 3e-2, "signed_mean")
    assert (code["head"], code["pool"], code["asc_pool"]) == ("two-layer", "last", "")
    assert (code["threshold"], code["score_lr"], code["impt_target"]) == ("ge", 5e-4, "alpha")
    assert (code["softmask_apply"], code["adam_eps"], code["adam_eps_uncorrected"]) == ("grad", 1e-6, True)
    assert (code["warmup"], code["precision"]) == (0.5, "float16")


def test_a_method_may_usually_want_an_option_otherwise():
    assert resolve("tss+").adapter.adapter_std == 0.0 and resolve("tss").adapter.adapter_std == 0.02
    assert resolve("tss+", given={"adapter_std": 0.1}).adapter.adapter_std == 0.1


def test_given_options_win_over_the_preset():
    assert resolve("tss", "code", {"threshold": "gt", "warmup": 0.2}).flat()["threshold"] == "gt"


def test_a_preset_leaves_out_what_a_method_has_not():
    flat = resolve("one-adapter", "code").flat()
    assert flat["adapter_lr"] == 5e-4 and "threshold" not in flat


@pytest.mark.parametrize(
    ("key", "meant"), [("scor_lr", "score_lr"), ("softmask", "softmask_apply"), ("batchsize", "batch_size")]
)
def test_an_unknown_key_names_the_nearest(key, meant):
    with pytest.raises(ConfigError) as error:
        resolve("tss", given={key: 1})
    assert repr(key) in str(error.value) and repr(meant) in str(error.value)


def test_a_key_of_another_method_is_unknown():
    with pytest.raises(ConfigError, match="one-adapter"):
        resolve("one-adapter", given={"softmask_apply": "grad"})


def test_unknown_method_and_preset_name_the_nearest():
    with pytest.raises(ConfigError, match="'supsup'"):
        resolve("supsub")
    with pytest.raises(ConfigError, match="'paper'"):
        resolve("tss", "papr")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("epochs", "three"),
        ("epochs", 2.5),
        ("epochs", "2.5"),
        ("epochs", True),
        ("epochs", None),
        ("score_lr", "fast"),
        ("score_lr", True),
        ("score_lr", "nan"),
        ("score_lr", [0.1]),
        ("own_ln", 2),
        ("own_ln", "maybe"),
        ("head", 3),
        ("head", None),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(key, value):
    with pytest.raises(ConfigError, match=key):
        resolve("tss", given={key: value})


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("epochs", "3", 3),
        ("score_lr", "1e-3", 1e-3),
        ("score_lr", 1, 1.0),
        ("own_ln", "true", True),
        ("own_ln", "no", False),
        ("head", "two-layer", "two-layer"),
    ],
)
def test_text_of_the_command_line_is_read(key, text, value):
    found = resolve("tss", given={key: text}).flat()[key]
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    "given",
    [
        {"threshold": "lt"},
        {"softmask_apply": "none"},
        {"impt_reduce": "median"},
        {"impt_norm": "tanh"},
        {"impt_unit": "layer"},
        {"impt_target": "weight"},
        {"impt_heat": 0.0},
        {"impt_batch": 0},
        {"score_lr": 0.0},
        {"score_lr": "inf"},
        {"adapter_sites": "moon"},
        {"adapter_init": "zeros"},
        {"bottleneck": 0},
        {"head": "deep"},
        {"pool": "max"},
        {"ner_shift": 3},
        {"head_dropout": 1.5},
        {"warmup": 1.0},
        {"checkpoint_steps": 0},
        {"precision": "int8"},
    ],
    ids=str,
)
def test_an_impossible_value_is_refused(given):
    with pytest.raises(ConfigError, match=next(iter(given))):
        resolve("tss", given=given)


def test_fewer_steps_than_the_least_number_are_allowed():
    config = resolve("tss", given={"max_steps": 10}).learning
    assert config.planned(1000) == 10 and config.min_steps == 10


def test_no_model_library_is_loaded():
    """Mistakes in options are found without waiting for transformers."""
    code = "import sys, tss.config; tss.config.resolve('tss'); sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
