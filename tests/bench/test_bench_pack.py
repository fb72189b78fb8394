"""How large runs are when they are packed, and that a folder does not grow beyond its limit."""

from __future__ import annotations

import json
import lzma
import random
from pathlib import Path

import pytest
from made_up_runs import write_runs
from typer.testing import CliRunner

from tss.bench.collect import read_runs
from tss.bench.compact import squeezed, unsqueezed
from tss.bench.pack import LIMIT, pack
from tss.cli import app
from tss.data.sequences import facts, task_settings
from tss.errors import TssError


def columns(task: str, chance: random.Random) -> dict[str, list]:
    """As many test examples as the benchmark has, with numbers that cannot be guessed from each other."""
    settings, count = task_settings(task), facts("tasks")[task]["counts"]["test"]
    given = random.Random(task)  # what is the same in every cell
    if settings.kind == "classification":
        labels = range(len(settings.labels))
        gold = given.choices(labels, k=count)
        predicted = [label if chance.random() < 0.8 else chance.choice(labels) for label in gold]
        return {"labels": list(settings.labels), "predicted": predicted, "gold": gold}
    if settings.kind == "tagging":
        entities = [min(int(given.expovariate(0.6)), 9) for _ in range(count)]
        hits = [sum(chance.random() < 0.5 for _ in range(number)) for number in entities]
        missed = [number - hit for number, hit in zip(entities, hits, strict=True)]
        return {"tp": hits, "fp": [min(int(chance.expovariate(1)), 9) for _ in entities], "fn": missed}
    if settings.metric == "bleu":
        lengths = [chance.randint(25, 120) for _ in range(count)]  # beyond the letters of one byte
        correct = [sorted((chance.randrange(25) for _ in range(4)), reverse=True) for _ in lengths]
        total = [[length - n for n in range(4)] for length in lengths]
        return {"sys_len": lengths, "ref_len": given.choices(range(30), k=count), "correct": correct, "total": total}
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
    two = pack([runs], tmp_path / "two" / "runs.jsonl.xz")
    logs[1].unlink()
    one = pack([runs], tmp_path / "one" / "runs.jsonl.xz")
    assert (one.cells, one.tasks, two.cells, two.tasks) == (1, 40, 2, 80)
    more = two.bytes - one.bytes  # what another cell really adds
    assert 0.9 * more < two.per_task * 40 < 1.5 * more
    assert 200 * more < LIMIT, f"{more} bytes a cell"


@pytest.mark.parametrize("method", ["tss", "ncl"])
def test_lines_come_back_as_they_were(tmp_path: Path, method: str):
    runs = write_runs(tmp_path / "runs", ["heterogeneous"], [0, 1], [method])
    if method == "tss":
        for log in runs.glob("*.jsonl"):
            fill(log)
            with log.open("a") as file:
                file.write(json.dumps({"overlap": [[1.0, 0.25], [0.25, 1.0]]}) + "\n")
    pack([runs], tmp_path / "runs.jsonl.xz")
    for one, other in zip(
        *(sorted(read_runs(p).runs, key=by_cell) for p in (runs, tmp_path / "runs.jsonl.xz")), strict=True
    ):
        assert (one.header, one.overlap) == (other.header, other.overlap)
        again = one.lines[-1].get("final_examples", {})
        for line, back in zip(one.lines, other.lines, strict=True):
            if line["task"] in again:  # what no table reads
                assert "examples" not in back
                del line["examples"]
            assert back == line


def by_cell(run) -> str:
    return run.header["cell"]


@pytest.mark.parametrize(
    "found",
    [
        {"labels": ["a", "b"], "predicted": [0, 2, 1], "gold": [0, 1, 1]},
        {"labels": ["a"], "predicted": [0, 10**6], "gold": [0, 0]},
        {"tp": [1, 0], "fp": [0, 700], "fn": [2, 0]},
        {
            "sys_len": [5, 300],
            "ref_len": [5, 1],
            "correct": [[1, 0, 0, 0]] * 2,
            "total": [[5, 4, 3, 2], [300, 299, 298, 297]],
        },
        {"sys_len": [5], "ref_len": [5], "correct": [[1, 0, 0, 0]], "total": [[5, 4, 3, 1]]},
        {"rouge1": [1.5], "rouge2": [0.0], "rougeL": [1.25]},
        {"another": [1]},
    ],
)
def test_columns_of_any_form_come_back(found: dict):
    assert unsqueezed(json.loads(json.dumps(squeezed(found)))) == found


def test_files_of_other_releases(tmp_path: Path):
    runs = read_runs(write_runs(tmp_path / "runs", ["ner"], [0], ["tss"]))
    lines = [{"grid": runs.grid}, runs.runs[0].header, *runs.runs[0].lines]  # as the first release packed them
    for name, first in (("old", {}), ("new", {"form": 99})):
        with lzma.open(tmp_path / f"{name}.jsonl.xz", "wt") as file:
            file.writelines(json.dumps(line) + "\n" for line in [{**lines[0], **first}, *lines[1:]])
    assert read_runs(tmp_path / "old.jsonl.xz").runs[0].lines == runs.runs[0].lines
    with pytest.raises(TssError, match="later release"):
        read_runs(tmp_path / "new.jsonl.xz")


def test_a_folder_does_not_grow_beyond_its_limit(tmp_path: Path):
    runs = write_runs(tmp_path / "runs", ["ner"], [0], ["tss"])
    raw = tmp_path / "raw"
    size = pack([runs], raw / "one.jsonl.xz").bytes
    (raw / "older").mkdir()
    (raw / "older" / "file.xz").write_bytes(bytes(1000))
    assert pack([runs], raw / "two.jsonl.xz").beside == size + 1000
    before = sorted(raw.rglob("*"))
    with pytest.raises(TssError, match="at most"):
        pack([runs], raw / "three.jsonl.xz", most=2 * size + 1000)
    assert sorted(raw.rglob("*")) == before
    assert pack([runs], raw / "two.jsonl.xz", most=2 * size + 1000).bytes == size  # its old self does not count
    given = ["bench", "pack", str(runs), "--out", str(raw / "three.jsonl.xz")]
    told = CliRunner().invoke(app, given)
    assert told.exit_code == 0 and "1 cells, 5 tasks" in told.stdout and "of 5 MiB" in told.stdout
    assert CliRunner().invoke(app, [*given, "--most", "0.001"]).exit_code == 2


def test_grids_are_put_together_cell_by_cell(tmp_path: Path):
    first = write_runs(tmp_path / "first", ["ner"], [0, 1], ["tss"])
    pack([first], tmp_path / "kept" / "grid.jsonl.xz")
    more = write_runs(tmp_path / "more", ["ner"], [1, 2], ["tss", "supsup"])
    longer = next(log for log in sorted(more.glob("*.jsonl")) if ".o1." in log.name)
    longer.write_text("".join(longer.read_text().splitlines(keepends=True)[:-1]))  # cut: the whole one must stay
    changed = next(log for log in sorted(more.glob("*.jsonl")) if ".o2." in log.name)
    pack([tmp_path / "kept" / "grid.jsonl.xz", more], tmp_path / "kept" / "grid.jsonl.xz")
    found = read_runs(tmp_path / "kept" / "grid.jsonl.xz")
    cells = {run.header["cell"]: run for run in found.runs}
    assert {"tss.ner.o0.s0", "tss.ner.o1.s0", changed.stem} <= set(cells)
    assert all(run.whole for run in found.runs)
    assert set(found.grid["asked"]) == {"ner/0", "ner/1", "ner/2"}
    assert found.grid["methods"] == ["tss", "supsup"]


def test_grids_of_other_backbones_are_not_put_together(tmp_path: Path):
    runs = [write_runs(tmp_path / name, ["ner"], [0], ["tss"]) for name in ("one", "two")]
    whole = json.loads((runs[1] / "grid.json").read_text())
    whole["settings"]["backbone"] = "bart-large"
    (runs[1] / "grid.json").write_text(json.dumps(whole))
    with pytest.raises(TssError, match="bart-large"):
        pack(runs, tmp_path / "out" / "grid.jsonl.xz")
    assert not (tmp_path / "out" / "grid.jsonl.xz").exists()
