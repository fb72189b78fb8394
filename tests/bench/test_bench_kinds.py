"""A method that does not learn every kind in a mixed sequence, beside one that does; predictions that are no label."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_grid import small_grid, write_tasks

from tss.bench.collect import documents, read_runs, results
from tss.bench.examples import Sums, columns
from tss.bench.plan import make_plan
from tss.bench.run import run_grid
from tss.bench.table import tables
from tss.tasks.metrics import NO_ANSWER, classification_scores
from tss.tasks.task import Task


def test_tagging_is_left_out_of_what_lamol_learns(tmp_path: Path):
    listing = write_tasks(tmp_path)
    with (tmp_path / "tagging" / "test.jsonl").open("a") as file:  # longer than any limit: its end is not tagged
        file.write(json.dumps({"tokens": ["Anna"] * 200, "tags": ["O"] * 199 + ["B-X"]}) + "\n")
    plan = make_plan([str(listing)], [0], ["lamol", "tss"], [0])
    finished = run_grid(plan, small_grid(tmp_path / "runs"))
    assert finished.failed == {} and len(finished.done) == 2
    runs = read_runs(tmp_path / "runs")
    found = {one.method: one for one in results(runs)}
    assert found["lamol"].tasks == ["own/pair", "own/generation"] and found["lamol"].label == "LAMOL (port)"
    assert len(found["tss"].tasks) == 3
    assert len(tables(runs)) > 5
    assert found["tss"].examples[1]["fn"][-1] == 1
    (document,) = documents(runs, "mixed")
    assert list(document["methods"]) == ["tss"] and len(document["tasks"]) == 3


GOLD = ["a", "b", "b", "c"]


@pytest.mark.parametrize(
    ("predicted", "f1", "accuracy"),
    [
        (["a", "b", "b", "c"], 1.0, 1.0),
        (["a", NO_ANSWER, "b", NO_ANSWER], (1 + 2 / 3 + 0) / 3, 0.5),
        ([NO_ANSWER] * 4, 0.0, 0.0),
    ],
)
def test_no_answer_is_wrong_but_no_class(predicted: list[str], f1: float, accuracy: float):
    scores = classification_scores(predicted, GOLD, ("a", "b", "c"))
    assert (scores["macro_f1"], scores["accuracy"]) == pytest.approx((100 * f1, 100 * accuracy))
    task = Task("t", "classification", labels=("a", "b", "c"))
    again = Sums.of(columns(task, predicted, GOLD)).scores()
    assert {key: float(value[0]) for key, value in again.items()} == pytest.approx(scores)
