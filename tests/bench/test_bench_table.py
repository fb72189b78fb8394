"""Tables against an independent reading of the same lines."""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
from pathlib import Path
from statistics import fmean, pstdev

import numpy as np
import pytest
from made_up_runs import answers, write_runs
from typer.testing import CliRunner

from tss.bench.collect import read_runs, results
from tss.bench.examples import Sums, interval, resampled
from tss.bench.formats import FORMATS, Table
from tss.bench.measured import Measured
from tss.bench.pack import pack
from tss.bench.table import tables
from tss.cli import app
from tss.config import resolve
from tss.data.sequences import FAMILIES, facts
from tss.errors import TssError

METHODS = ["tss", "ncl-adapter", "supsup", "one-adapter", "tss-no-sm", "mtl-adapter"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    return write_runs(tmp_path_factory.mktemp("made up") / "runs", [*FAMILIES, "heterogeneous"], [0, 1, 2], METHODS)


@pytest.fixture(scope="module")
def found(runs: Path) -> list[Table]:
    return tables(read_runs(runs))


def cells(found: list[Table], title: str, system: str) -> dict[str, str]:
    """One row of a table by its headings."""
    table = next(table for table in found if table.title == title)
    row = next(row for row in table.rows if row[0] == system)
    return dict(zip(table.columns, row, strict=True))


# --- the independent reading: JSON, scikit-learn and arithmetic, nothing of ours ---


def lines_of(runs: Path, cell: str) -> list[dict]:
    return [json.loads(line) for line in (runs / f"{cell}.jsonl").read_text().splitlines()[1:]]


def macro_f1(found: dict) -> float:
    from sklearn.metrics import f1_score

    return 100 * float(f1_score(found["gold"], found["predicted"], average="macro", zero_division=0))


def micro_f1(found: dict) -> float:
    tp, fp, fn = (sum(found[key]) for key in ("tp", "fp", "fn"))
    return 100 * 2 * tp / (2 * tp + fp + fn)


def test_the_main_table_recomputes_from_examples(runs: Path, found: list[Table]):
    main = cells(found, "Main metrics, heterogeneous", "TSS")
    for family, column, score in (("asc", "ASC MF1", macro_f1), ("ner", "NER F1", micro_f1)):
        orders = []
        for order in range(3):
            lines = lines_of(runs, f"tss.heterogeneous.o{order}.s0")
            orders.append(fmean(score(line["examples"]) for line in lines if line["task"].startswith(family)))
        assert main[column] == f"{fmean(orders):.2f} ± {pstdev(orders):.2f}"
    assert main["ASC MF1 (paper)"] == "90.61" and main["orders"] == "3" and main["FR"] == "0.00 ± 0.00"


def test_tiny_test_sets_are_also_counted_as_one(runs: Path, found: list[Table]):
    titles = [table.title for table in found if table.title.startswith("Right answers")]
    assert [title.split()[3] for title in titles] == ["ASC,", "CCD,"]  # the families with labels
    orders = []
    for order in range(3):
        lines = [one for one in lines_of(runs, f"tss.heterogeneous.o{order}.s0") if one["task"].startswith("asc")]
        said, gold = ([x for one in lines for x in one["examples"][key]] for key in ("predicted", "gold"))
        orders.append(100 * fmean(a == b for a, b in zip(said, gold, strict=True)))
    assert cells(found, titles[0], "TSS")["heterogeneous"] == f"{fmean(orders):.2f} ± {pstdev(orders):.2f}"


def test_test_sets_are_counted_as_one_only_where_all_were_run(runs: Path, tmp_path: Path):
    part = shutil.copytree(runs, tmp_path / "part")
    next(iter(sorted(part.glob("supsup.asc-*.jsonl")))).unlink()
    (table,) = (one for one in tables(read_runs(part)) if one.title.startswith("Right answers in ASC"))
    systems = [row[0] for row in table.rows]
    assert "TSS" in systems and not {"SupSup", "w/o SM"} & set(systems)


def test_averages_and_forgetting_recompute_from_rows(runs: Path, found: list[Table]):
    average, forgotten, families = [], [], {family: [] for family in FAMILIES}
    for order in range(3):
        lines = lines_of(runs, f"ncl-adapter.heterogeneous.o{order}.s0")
        names, last = [line["task"] for line in lines], lines[-1]["row"]
        lost = {name: line["row"][-1] - end for name, line, end in zip(names[:-1], lines, last, strict=False)}
        means = {f: fmean(end for name, end in zip(names, last, strict=True) if name.startswith(f)) for f in FAMILIES}
        average.append(fmean(means.values()))
        for family in FAMILIES:
            families[family].append(fmean(lost[name] for name in lost if name.startswith(family)))
        forgotten.append(fmean(families[family][-1] for family in FAMILIES))
    main = cells(found, "Main metrics, heterogeneous", "NCL (Adapter)")
    assert main["mean"] == f"{fmean(average):.2f} ± {pstdev(average):.2f}" and main["mean (paper)"] == "–"
    assert main["FR"] == f"{fmean(forgotten):.2f} ± {pstdev(forgotten):.2f}"
    by_family = cells(found, "Forgetting rate FR by family, heterogeneous", "NCL (Adapter)")
    assert by_family["DRG"] == f"{fmean(families['drg']):.2f} ± {pstdev(families['drg']):.2f}"
    # F′ needs the whole triangle, which only order 0 has.
    assert "±" not in by_family["mean F′"] and float(by_family["mean F′"]) >= forgotten[0]


def test_shared_cells_serve_every_sequence(runs: Path, found: list[Table]):
    wanted = fmean(macro_f1(lines_of(runs, f"supsup.{t.replace('/', '-')}.s0")[0]["examples"]) for t in _tasks("asc"))
    for title in ("Main metrics, heterogeneous", "Main metrics, homogeneous"):
        for system in ("SupSup", "w/o SM"):
            row = cells(found, title, system)
            assert (row["ASC MF1"], row["orders"]) == (f"{wanted:.2f}", "any")


def _tasks(family: str) -> list[str]:
    return [task for task in facts("tasks") if task.startswith(f"{family}/")]


def test_transfer_against_learning_alone(runs: Path, found: list[Table]):
    table = next(t for t in found if t.title.startswith("Forward transfer, homogeneous"))
    row = next(row for row in table.rows if row[:2] == ("TSS", "ONE (Adapter)"))
    forgets = next(row for row in table.rows if row[:2] == ("NCL (Adapter)", "ONE (Adapter)"))
    assert forgets[table.columns.index("NER final")] != forgets[table.columns.index("NER")]
    gains = []
    for order in range(3):
        lines = lines_of(runs, f"tss.ner.o{order}.s0")
        alone = [lines_of(runs, f"one-adapter.{line['task'].replace('/', '-')}.s0")[0] for line in lines]
        gains.append(
            fmean(micro_f1(a["examples"]) - micro_f1(b["examples"]) for a, b in zip(lines, alone, strict=True))
        )
    assert row[table.columns.index("NER")] == f"{fmean(gains):.2f} ± {pstdev(gains):.2f}"
    assert row[table.columns.index("NER final")] == row[table.columns.index("NER")]  # nothing is forgotten
    assert row[table.columns.index("NER final (paper)")] == f"{63.96 - 56.69:.2f}"


def test_a_partial_grid_shows_what_is_missing(runs: Path, tmp_path: Path):
    part = tmp_path / "part"
    part.mkdir()
    for file in (runs / "grid.json", *runs.glob("tss.heterogeneous.o[01]*"), *runs.glob("supsup.ner*")):
        text = file.read_text()
        if ".o1." in file.name:  # cut in the middle of a line
            text = text[: len(text) // 2]
        (part / file.name).write_text(text)
    found = tables(read_runs(part))
    assert cells(found, "Main metrics, heterogeneous", "TSS")["orders"] == "1"
    row = cells(found, "Main metrics, heterogeneous", "SupSup")
    assert row["NER F1"] != "–" and row["ASC MF1"] == row["mean"] == "–"
    interval = next(t for t in found if t.title.startswith("Paired"))
    assert interval.rows[0][3] != "–" and interval.rows[0][2] == "–"


def test_packed_runs_give_the_same_tables(runs: Path, tmp_path: Path, found: list[Table]):
    packed = pack([runs], tmp_path / "results" / "runs.jsonl.xz")
    assert packed.bytes < sum(log.stat().st_size for log in runs.glob("*.jsonl")) / 10
    assert tables(read_runs(tmp_path / "results" / "runs.jsonl.xz")) == found
    with pytest.raises(TssError, match="xz"):
        pack([runs], tmp_path / "runs.zip")


def test_formats_hold_the_same_cells(found: list[Table]):
    text = FORMATS["csv"](found)
    assert [found[0].title, *found[0].rows[3]] in list(csv.reader(io.StringIO(text)))
    assert f"| {' | '.join(found[0].rows[3])} |" in FORMATS["markdown"](found)
    assert r"\begin{tabular}" in FORMATS["latex"](found) and "±" not in FORMATS["latex"](found[:1])


def test_the_command_line(runs: Path, tmp_path: Path):
    page = tmp_path / "page.html"
    written = CliRunner().invoke(app, ["report", str(runs), "--out", str(page)])
    assert written.exit_code == 0 and (tmp_path / "page-heterogeneous.html").stat().st_size > 10_000
    shown = CliRunner().invoke(app, ["bench", "table", str(runs), "--format", "csv"])
    assert shown.exit_code == 0 and "Main metrics, heterogeneous" in shown.stdout
    missing = CliRunner().invoke(app, ["bench", "table", str(tmp_path)])
    assert missing.exit_code == 2 and "grid.json" in missing.output


def test_the_notes_say_what_is_noise(found: list[Table]):
    notes = " ".join(found[-1].notes)
    assert "ASC: 19 of 19 test sets have 12 to 12 examples" in notes and "60.41" in notes


@pytest.mark.parametrize("task", ["asc/laptop", "ccd/dbpedia", "ner/gum", "sum/ami", "drg/hotel"])
def test_columns_score_as_the_metrics_do(task: str):
    for seed in range(5):
        scores, found = answers(task, random.Random(seed), 0.5)
        ours = {key: float(value[0]) for key, value in Sums.of(found).scores().items()}
        assert ours == pytest.approx({key: scores[key] for key in ours}, abs=1e-3) and list(ours)[0] == list(scores)[0]


def test_a_sample_is_scored_like_the_examples_it_holds():
    _, found = answers("asc/laptop", random.Random(1), 0.5)
    chosen = [0, 0, 3, 5, 5, 5, 7, 8, 9, 10, 11, 11]
    sample = {**found, **{key: [found[key][i] for i in chosen] for key in ("gold", "predicted")}}
    weights = np.bincount(chosen, minlength=12)[None].astype(float)
    assert Sums.of(found).scores(weights)["macro_f1"][0] == pytest.approx(macro_f1(sample))


def test_paired_intervals():
    right, half = (answers("asc/laptop", random.Random(seed), share)[1] for seed, share in ((0, 1.0), (1, 0.2)))
    better = interval(resampled("t", right) - resampled("t", half))
    assert better.low > 0 and not better.is_noise and better.low <= better.difference <= better.high
    same = interval(resampled("t", half) - resampled("t", half))
    assert (same.difference, same.low, same.high) == (0.0, 0.0, 0.0) and same.is_noise
    assert interval(resampled("t", half) - resampled("u", half)).low < 0  # other draws


def test_an_interval_needs_the_same_examples(tmp_path: Path):
    runs = read_runs(write_runs(tmp_path / "runs", ["ner"], [0], ["tss", "supsup"]))
    sides = ("homogeneous", "tss"), ("homogeneous", "supsup")
    found = Measured(runs).interval(*sides, ["ner"])
    assert found and found.low <= found.difference <= found.high
    for column in runs.runs[0].lines[0]["examples"].values():
        column.pop()
    with pytest.raises(TssError, match="different examples"):
        Measured(runs).interval(*sides, ["ner"])


def test_costs_stand_beside_the_papers(found: list[Table]):
    ours = cells(found, "Cost of a task", "TSS")
    assert (ours["M (paper)"], ours["minutes (paper)"]) == ("896.9", "600")
    assert float(ours["minutes a task"]) == pytest.approx(1 / 60, rel=1e-3)  # made-up lines took one second each
    assert ours["head MB"] == "1e-06" and ours["tasks"] == str(3 * 80)
    together = float(cells(found, "Cost of a task", "MTL (Adapter)")["minutes a task"])
    assert together == pytest.approx(len(FAMILIES) / 40 / 60, rel=1e-3)  # five trainings for forty tasks
    assert cells(found, "Cost of a task", "CTR")["minutes (paper)"] == "48,000"
    notes = next(table.notes for table in found if table.title == "Cost of a task")
    assert "whole LM 3600 MB" in notes[1]


def test_what_a_method_does_beside_the_training_costs_time_too(tmp_path: Path):
    runs = read_runs(write_runs(tmp_path / "runs", ["ccd"], [0], ["cat", "mtl"]))
    for run in runs.runs:
        for line in run.lines:
            line["facts"]["seconds_beside"] = 3.0
    assert {run.header["method"]: run.seconds for run in runs.runs} == {"cat": [4.0] * 5, "mtl": [0.8] * 5}
    assert {one.method: one.entry["seconds"] for one in results(runs)} == {"cat": [4.0] * 5, "mtl": [0.8] * 5}


def test_options_of_single_systems_are_told(tmp_path: Path):
    runs = read_runs(write_runs(tmp_path / "runs", ["ccd"], [0, 1], ["tss", "one", "cuber"], options={"epochs": 7}))
    usual = resolve("cuber", "recommended").flat()["epochs"]
    for run in runs.runs:
        own = {"one": {"lm_lr": 2e-4}, "cuber": {"cuber_lr": 0.05, "epochs": usual} if run.header["order"] else {}}
        run.header["config"] = {**resolve(run.header["method"], "recommended").flat(), "epochs": 7}
        run.header["config"] |= {"gone": 1, **own.get(run.header["method"], {})}
    notes = " ".join(next(table.notes for table in tables(runs) if table.title == "Notes"))
    again = f"epochs {usual} in 1 of 2 cells"
    assert f"Options of single systems: ONE lm_lr 0.0002; CUBER cuber_lr 0.05 in 1 of 2 cells, {again}. " in f"{notes} "


def test_results_are_one_a_method_and_order(runs: Path):
    found = results(read_runs(runs))
    keys = [(one.method, one.sequence, one.order) for one in found]
    assert len(keys) == len(set(keys)) == len(METHODS) * 6 * 3
