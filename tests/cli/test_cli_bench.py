"""`tss bench run`: settings of all methods, and of single ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny import tiny_path
from toy_tasks import toy
from typer.testing import CliRunner

from tss.bench.collect import read_runs
from tss.cli import app
from tss.cli.bench import of_methods
from tss.errors import ConfigError

SHORT = ("max_steps=2", "eval_steps=2", "batch_size=8", "bottleneck=4")


def write_task(folder: Path) -> Path:
    """A task folder, and a list with its name."""
    task = toy("classification")
    (folder / "words").mkdir(parents=True)
    (folder / "words" / "task.json").write_text(json.dumps({"name": "words", "kind": task.kind}))
    for split in ("train", "valid", "test"):
        rows = [{"text": example.input[0], "label": example.target} for example in getattr(task, split)]
        (folder / "words" / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "mine.txt").write_text("words\n")
    return folder / "mine.txt"


def words(listing: Path, runs: Path, methods: str, *pairs: str) -> list[str]:
    given = {"data": ".", "out": runs, "sequences": listing, "orders": 0, "methods": methods, "device": "cpu"}
    given["backbone"] = tiny_path("bart")
    out = ["bench", "run", *(f"--{key}={value}" for key, value in given.items())]
    return [*out, *(word for pair in (*SHORT, *pairs) for word in ("--set", pair))]


def test_a_setting_goes_to_all_that_have_it_or_to_the_one_named(tmp_path: Path):
    own = ("adapter_lr=0.01", "ncl-adapter:adapter_lr=0.02", "tss-no-sm:score_lr=0.5")
    given = words(write_task(tmp_path / "tasks"), tmp_path / "runs", "one-adapter,ncl-adapter,tss-no-sm", *own)
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 0, done.output
    configs = {run.header["label"]: run.header["config"] for run in read_runs(tmp_path / "runs").runs}
    rates = {label: config.get("adapter_lr", config.get("score_lr")) for label, config in configs.items()}
    assert rates == {"ONE (Adapter)": 0.01, "NCL (Adapter)": 0.02, "SupSup": 0.5}
    assert {config["max_steps"] for config in configs.values()} == {2}
    other = CliRunner().invoke(app, [*given[:-1], "tss-no-sm:score_lr=0.6"])
    assert other.exit_code == 2 and "was made with each" in other.output


def test_settings_of_methods_that_are_not_run_or_have_none_such_are_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="--set hat:adapter_lr: hat is not among the methods to run: tss, ewc"):
        of_methods({"hat:adapter_lr": 1.0}, ["tss", "ewc"])
    given = words(write_task(tmp_path / "tasks"), tmp_path / "runs", "one-adapter", "one-adapter:adaptr_lr=0.1")
    refused = CliRunner().invoke(app, given)
    assert refused.exit_code == 2 and "adaptr_lr" in refused.output and not (tmp_path / "runs").exists()
