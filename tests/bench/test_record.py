"""The record of the benchmark: pages written from packed grids, and that the pages kept say what the grids kept say."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from made_up_runs import write_runs

from tss.bench import examples
from tss.bench.collect import Runs, read_runs
from tss.bench.pack import pack

ROOT = Path(__file__).parents[2]
PAGE = "# Title\n\n<!-- record -->\n<!-- end record -->\n\n## After\n"


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The script, on pages in a folder of its own."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import record

    monkeypatch.setattr(record, "ROOT", tmp_path)
    (tmp_path / "results" / "raw").mkdir(parents=True)
    for page in ("README.md", "results/README.md"):
        (tmp_path / page).write_text(PAGE)
    yield record
    sys.modules.pop("record", None)
    sys.modules.pop("record_picture", None)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(examples, "ROUNDS", 50)
    examples._drawn.cache_clear()
    yield
    examples._drawn.cache_clear()


def grid(folder: Path, methods: list[str], orders: list[int], **options) -> Runs:
    """A small grid with an option or two, which its runs' headers tell."""
    runs = write_runs(folder, ["ner"], orders, methods, options=options)
    for log in runs.glob("*.jsonl"):
        head, *lines = log.read_text().splitlines()
        config = {"epochs": 15, "precision": "bfloat16", **options}
        told = {**json.loads(head), "config": config, "parameters": 11_400_000, "backbone": "bart-mini"}
        log.write_text("\n".join([json.dumps(told), *lines]) + "\n")
    return read_runs(runs)


def test_both_pages(record, quick, tmp_path: Path):
    grid(tmp_path / "one", ["tss", "supsup", "one-adapter"], [0, 1, 3], max_steps=600, impt_heat=10.0)
    grid(tmp_path / "two", ["tss+"], [0, 1], max_steps=600, race_steps=40)
    for name in ("one", "two"):
        pack([tmp_path / name], tmp_path / "results" / "raw" / f"{name}.jsonl.xz")
    record.main([])
    page, results = ((tmp_path / name).read_text() for name in ("README.md", "results/README.md"))
    assert page.startswith("# Title\n\n<!-- record -->\n## The benchmark") and page.endswith("\n\n## After\n")
    assert "`python benchmarks/record.py results/raw/one.jsonl.xz results/raw/two.jsonl.xz`" in page
    assert "`bart-mini` (11.4 M parameters), not BART-large" in page and "as context" in page
    assert "epochs 15, max_steps 600, precision bfloat16, impt_heat 10.0, race_steps 40" in page
    assert page.count("ours / published") == 1  # nothing was run heterogeneously
    row = next(line for line in page.splitlines() if line.startswith("| TSS |"))
    assert row.split(" | ")[2].endswith(" / 63.96") and row.endswith("| 2 |")  # orders 0 and 1
    assert any(line.startswith("| TSS+ |") for line in page.splitlines()) and "Goals of TSS+" in page
    assert "<summary>The paper's 13 claims, one by one: " in page and "\n| 13 | TSS is as small" in page
    assert "\n| At least SupSup in every family. |" in page
    assert "### bart-mini, orders 0, 1" in results and "all orders, also those that served tuning" in results
    wanted = ("Main metrics, homogeneous", "Forgetting rate", "Paired bootstrap", "Cost", "Claims", "Numbers behind")
    assert all(f"#### {title}" in results for title in wanted)
    record.main(["--check"])
    (tmp_path / "README.md").write_text(page.replace("63.96", "64.96"))
    with pytest.raises(SystemExit, match="README.md does not say what one.jsonl.xz, two.jsonl.xz say"):
        record.main(["--check"])


def test_the_picture(record, tmp_path: Path):
    """Only what has all five families is in it, and a picture that was changed is noticed."""
    from tss.data.sequences import FAMILIES

    whole = write_runs(tmp_path / "whole", [*FAMILIES, "heterogeneous"], [0, 1], ["tss", "supsup"])
    part = write_runs(tmp_path / "part", ["ner"], [0, 1], ["ewc"])
    pack([whole, part], tmp_path / "results" / "raw" / "grid.jsonl.xz")
    record.main([])
    drawn = (tmp_path / "results" / "record.svg").read_text()
    assert ">TSS<" in drawn and ">SupSup<" in drawn and ">EWC<" not in drawn
    assert drawn.count("<circle") == 2 + 2 * 2 and "-0.0" not in drawn  # the key, and two settings of two systems
    assert "(results/record.svg)" in (tmp_path / "README.md").read_text()
    record.main(["--check"])
    (tmp_path / "results" / "record.svg").write_text(drawn.replace("TSS", "TTS"))
    with pytest.raises(SystemExit, match="record.svg does not say"):
        record.main(["--check"])


def test_without_a_grid_nothing_is_said(record, tmp_path: Path):
    record.main([])
    assert (tmp_path / "README.md").read_text() == PAGE
    (tmp_path / "README.md").write_text("# Title\n")
    with pytest.raises(SystemExit, match="no place for the record"):
        record.main([])


def test_grids_are_read_as_one_where_they_fit(record, tmp_path: Path):
    one = grid(tmp_path / "one", ["tss"], [0], max_steps=600, impt_heat=10.0)
    plus = grid(tmp_path / "plus", ["tss+"], [0, 1], max_steps=600, impt_heat=4.0)
    longer = grid(tmp_path / "longer", ["supsup"], [0], max_steps=900)
    (both, apart) = record.merged([one, longer, plus])
    assert both.grid["methods"] == ["tss", "tss+"] and apart.grid["methods"] == ["supsup"]
    assert set(both.grid["asked"]) == {"ner/0", "ner/1"} and len(both.runs) == 3
    assert both.grid["settings"]["options"] == {"max_steps": 600, "impt_heat of tss": 10.0, "impt_heat of tss+": 4.0}
    again = grid(tmp_path / "again", ["tss"], [0], max_steps=600, impt_heat=4.0)
    assert len(record.merged([one, again])) == 2  # the same cell, made differently
    for run in plus.runs:
        run.header["tasks"][0]["hash"] = "other data"
    assert len(record.merged([one, plus])) == 2


def test_the_pages_kept_say_what_the_grids_kept_say(monkeypatch: pytest.MonkeyPatch):
    assert list((ROOT / "results" / "raw").glob("*.jsonl.xz"))
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import record

    record.main(["--check"])
