"""How large runs are when they are packed, and that a folder does not grow beyond its limit."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from made_up_runs import write_runs
from typer.testing import CliRunner

from tss.bench.pack import pack
from tss.cli import app
from tss.data.sequences import facts, task_settings
from tss.errors import TssError


def columns(task: str, chance: random.Random) -> dict[str, list]:
    """As many test examples as the benchmark has, with numbers that cannot be guessed from each other."""
    settings, count = task_settings(task), facts("tasks")[task]["counts"]["test"]
    if settings.kind == "classification":
        labels = range(len(settings.labels))
        gold = random.Random(task).choices(labels, k=count)  # the same in every cell
        predicted = [label if chance.random() < 0.8 else chance.choice(labels) for label in gold]
        return {"labels": list(settings.labels), "predicted": predicted, "gold": gold}
    if settings.kind == "tagging":
        return {key: [min(int(chance.expovariate(1)), 9) for _ in range(count)] for key in ("tp", "fp", "fn")}
    if settings.metric == "bleu":
        four = {key: [[chance.randrange(25) for _ in range(4)] for _ in range(count)] for key in ("correct", "total")}
        return {**{key: [chance.randrange(30) for _ in range(count)] for key in ("sys_len", "ref_len")}, **four}
    return {key: [round(100 * chance.random(), 4) for _ in range(count)] for key in ("rouge1", "rouge2", "rougeL")}


def fill(log: Path) -> None:
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    chance = random.Random(log.name)
    for line in (line for line in lines if "task" in line):
        line["examples"] = columns(line["task"], chance)
        line["row"] = [100 * chance.random() for _ in line["row"]]
        line["curve"] = [[step, round(chance.random(), 4), round(chance.random(), 4)] for step in range(12)]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_size_of_a_cell_of_forty_tasks(tmp_path: Path):
    runs = write_runs(tmp_path / "runs", ["heterogeneous"], [0, 1], ["tss"])
    logs = sorted(runs.glob("*.jsonl"))
    for log in logs:
        fill(log)
    two = pack(runs, tmp_path / "two" / "runs.jsonl.xz")
    logs[1].unlink()
    one = pack(runs, tmp_path / "one" / "runs.jsonl.xz")
    assert (one.cells, one.tasks, two.cells, two.tasks) == (1, 40, 2, 80)
    more = two.bytes - one.bytes  # what another cell really adds
    assert 0.9 * more < two.per_task * 40 < 1.5 * more
    assert 60 * 1024 > more > 20 * 1024, f"{more} bytes a cell"


def test_a_folder_does_not_grow_beyond_its_limit(tmp_path: Path):
    runs = write_runs(tmp_path / "runs", ["ner"], [0], ["tss"])
    raw = tmp_path / "raw"
    size = pack(runs, raw / "one.jsonl.xz").bytes
    (raw / "older").mkdir()
    (raw / "older" / "file.xz").write_bytes(bytes(1000))
    assert pack(runs, raw / "two.jsonl.xz").beside == size + 1000
    before = sorted(raw.rglob("*"))
    with pytest.raises(TssError, match="at most"):
        pack(runs, raw / "three.jsonl.xz", most=2 * size + 1000)
    assert sorted(raw.rglob("*")) == before
    assert pack(runs, raw / "two.jsonl.xz", most=2 * size + 1000).bytes == size  # its old self does not count
    given = ["bench", "pack", str(runs), "--out", str(raw / "three.jsonl.xz")]
    told = CliRunner().invoke(app, given)
    assert told.exit_code == 0 and "1 cells, 5 tasks" in told.stdout and "of 5 MiB" in told.stdout
    assert CliRunner().invoke(app, [*given, "--most", "0.001"]).exit_code == 2
