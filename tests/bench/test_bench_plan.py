"""What a grid consists of, and that what can be shared is run once."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tss.bench.plan import make_plan, runs_as
from tss.data.sequences import FAMILIES, facts, sequence
from tss.errors import ConfigError, TaskError

EVERYTHING = (*FAMILIES, "heterogeneous")


def test_a_sequential_method_has_a_cell_an_order():
    plan = make_plan(EVERYTHING, range(5), ["tss"], [0, 1])
    assert len(plan.cells) == 6 * 5 * 2
    assert len({cell.key for cell in plan.cells}) == 60
    cell = next(cell for cell in plan.cells if cell.key == "tss.heterogeneous.o3.s1")
    assert list(cell.tasks) == sequence("heterogeneous", 3) and len(cell.tasks) == 40


def test_order_free_tasks_are_shared_by_all_orders_and_sequences():
    plan = make_plan(EVERYTHING, range(5), ["supsup", "one-adapter"], [0])
    assert Counter(cell.method for cell in plan.cells) == {"supsup": 40, "one-adapter": 40}
    assert {cell.tasks for cell in plan.cells} == {(task,) for task in facts("tasks")}
    assert len(plan.asked) == 30


def test_two_names_of_one_method_are_run_once():
    assert runs_as("tss-no-sm") == "supsup"
    plan = make_plan(["ner"], [0], ["tss-no-sm", "supsup"], [0])
    assert {cell.method for cell in plan.cells} == {"supsup"} and len(plan.cells) == 5
    assert plan.methods == ("tss-no-sm", "supsup")


def test_a_joint_method_has_a_cell_a_family():
    plan = make_plan(["heterogeneous", "asc"], range(5), ["mtl-adapter"], [0])
    assert {cell.key for cell in plan.cells} == {f"mtl-adapter.{family}-together.s0" for family in FAMILIES}
    few = make_plan(["asc"], [0], ["mtl-adapter"], [0], first=3).cells
    assert len(few) == 1 and set(few[0].tasks) == set(sequence("asc")[:3]) and few[0].key not in plan.cells


def test_folders_are_learnt_together_by_the_family_that_they_name(tmp_path: Path):
    told = {"toys": {"family": "asc"}, "pets": {"family": "asc"}, "goals": {"family": "my own"}, "cars": {}}
    for name, about in told.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "task.json").write_text(json.dumps({"name": name, "kind": "classification", **about}))
    listing = tmp_path / "mine.txt"
    listing.write_text("\n".join([*told, "asc/laptop", "ccd/yelp"]))
    cells = make_plan([str(listing)], [0], ["mtl-adapter"], [0]).cells
    groups = {frozenset(Path(task).name for task in cell.tasks) for cell in cells}
    assert groups == {frozenset(one) for one in (["toys", "pets", "laptop"], ["goals"], ["cars"], ["yelp"])}
    assert len({cell.key for cell in cells}) == 4 and all("/" not in cell.key and " " not in cell.key for cell in cells)


def test_the_whole_triangle_is_run_for_one_order_of_what_forgets():
    cells = make_plan(["ner"], range(5), ["ncl-adapter", "tss"], [0]).cells
    assert [cell.key for cell in cells if cell.triangle] == ["ncl-adapter.ner.o0.s0"]
    cells = make_plan(["ner"], range(5), ["ncl-adapter", "tss"], [0], triangle=False).cells
    assert not any(cell.triangle for cell in cells)


def test_the_first_tasks_only():
    cells = make_plan(["asc", "heterogeneous"], [0, 2], ["tss"], [0], first=3).cells
    assert [cell.tasks for cell in cells[:2]] == [tuple(sequence("asc", order)[:3]) for order in (0, 2)]


def test_tasks_of_kinds_that_a_method_does_not_learn_are_left_out(tmp_path: Path):
    cells = {cell.key: cell for cell in make_plan(EVERYTHING, [0], ["lamol", "tss"], [0]).cells}
    assert "lamol.ner.o0.s0" not in cells and "tss.ner.o0.s0" in cells
    learnt = [task for task in sequence("heterogeneous", 0) if not task.startswith("ner/")]
    assert list(cells["lamol.heterogeneous.o0.s0"].tasks) == learnt and len(learnt) == 35
    for name, kind in (("words", "tagging"), ("texts", "generation")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "task.json").write_text(f'{{"kind": "{kind}"}}')
    (tmp_path / "mine.txt").write_text("words\ntexts\nnot-there\n")
    (own,) = make_plan([str(tmp_path / "mine.txt")], [0], ["lamol"], [0]).cells
    assert own.tasks == (str(tmp_path / "texts"), str(tmp_path / "not-there"))


def test_own_lists_of_tasks(tmp_path: Path):
    (tmp_path / "mine.txt").write_text("asc/laptop\nfolder\n")
    asked = make_plan([str(tmp_path / "mine.txt")], [0], ["tss"], [0]).asked[0]
    assert (asked.sequence, asked.tasks) == ("mine", ("asc/laptop", str(tmp_path / "folder")))


@pytest.mark.parametrize(
    ("sequences", "methods", "orders", "error"),
    [(["ascc"], ["tss"], [0], TaskError), (["asc"], ["tsss"], [0], ConfigError), (["asc"], ["tss"], [5], TaskError)]
    + [(["asc"], [], [0], ConfigError)],
)
def test_mistakes_are_told(sequences, methods, orders, error):
    with pytest.raises(error):
        make_plan(sequences, orders, methods, [0])
