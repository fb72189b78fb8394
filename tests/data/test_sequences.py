"""The orders of the benchmark, the settings of its tasks, and one's own lists of tasks."""

from __future__ import annotations

import json
import random

import pytest

from tss.data import sequences
from tss.errors import TaskError
from tss.tasks.task import Lengths


def test_facts_equal_the_shared_files(shared):
    for name in ("sequences", "tasks"):
        assert sequences.facts(name) == json.loads((shared / f"data/{name}.json").read_text())


def test_every_order_holds_every_task_once():
    tasks = set(sequences.facts("tasks"))
    for order in sequences.ORDERS:
        together = [task for family in sequences.FAMILIES for task in sequences.sequence(family, order)]
        assert sorted(together) == sorted(tasks) and len(together) == 40
        assert sorted(sequences.sequence("heterogeneous", order)) == sorted(tasks)


def test_known_orders():
    assert sequences.sequence("asc")[:2] == ["asc/laptop", "asc/restaurant"]
    base = list(sequences.facts("sequences")["heterogeneous_base"])
    random.Random(3).shuffle(base)
    assert sequences.sequence("heterogeneous", 3) == base
    sequences.sequence("asc").clear()  # a copy: nobody can change the facts
    assert len(sequences.sequence("asc")) == 19


def test_unknown_names_and_orders():
    with pytest.raises(TaskError, match="unknown sequence 'hetero'; did you mean 'heterogeneous'"):
        sequences.sequence("hetero")
    with pytest.raises(TaskError, match="'asc' has the orders 0 to 4, not 5"):
        sequences.sequence("asc", 5)
    with pytest.raises(TaskError, match="unknown task 'asc/speakr'; did you mean 'asc/speaker'"):
        sequences.task_settings("asc/speakr")


@pytest.mark.parametrize(
    ("task", "kind", "metric", "labels", "lengths"),
    [
        ("asc/laptop", "classification", "macro_f1", ("positive", "negative", "neutral"), Lengths()),
        ("ccd/yelp", "classification", "macro_f1", ("negative", "positive"), Lengths()),
        ("sum/ami", "generation", "rouge1", (), Lengths(max_input=1024, min_target=30)),
        ("drg/taxi", "generation", "bleu", (), Lengths(max_input=128, min_target=30)),
    ],
)
def test_settings(task, kind, metric, labels, lengths):
    expected = sequences.Settings(task.split("/")[0], kind, metric, labels, lengths)
    assert sequences.task_settings(task) == expected


def test_settings_of_tagging_and_the_shorter_replies():
    settings = sequences.task_settings("ner/btc")
    assert (settings.kind, settings.metric, len(settings.labels)) == ("tagging", "entity_f1", 7)
    assert sequences.task_settings("drg/taxi", drg_min_length=1).lengths.min_target == 1
    assert sequences.task_settings("sum/ami", drg_min_length=1).lengths.min_target == 30


def test_load_task(shared):
    task = sequences.load_task(shared / "data/prepared", "asc/ipod")
    assert (task.name, task.family, task.metric) == ("asc/ipod", "asc", "macro_f1")
    assert (len(task.train), len(task.valid), len(task.test)) == (153, 19, 20)
    row = json.loads((shared / "data/prepared/asc/ipod/train.jsonl").read_text().split("\n")[0])
    assert task.train[0].input == (row["text"], row["aspect"]) and task.train[0].target == row["label"]
    tagged = sequences.load_task(shared / "data/prepared", "ner/re3d")
    assert len(tagged.labels) == 21 and "I-Nationality" in tagged.labels  # though train has none
    assert sequences.load_task(shared / "data/prepared", "sum/icsi").lengths.max_input == 1024


def test_load_task_tells_what_is_missing_or_wrong(tmp_path):
    with pytest.raises(TaskError, match=r"asc/ipod: no prepared file .*train\.jsonl; run tss data prepare"):
        sequences.load_task(tmp_path, "asc/ipod")
    folder = tmp_path / "asc/ipod"
    folder.mkdir(parents=True)
    for split in ("train", "valid", "test"):
        (folder / f"{split}.jsonl").write_text('{"aspect":"a","text":"b","label":"awful"}\n')
    with pytest.raises(TaskError, match=r"train\.jsonl.*'awful'"):
        sequences.load_task(tmp_path, "asc/ipod")


def test_own_list_of_tasks(tmp_path, shared):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "task.json").write_text('{"name": "mine", "kind": "classification"}')
    (folder / "train.jsonl").write_text('{"text": "a", "label": "x"}\n{"text": "b", "label": "y"}\n')
    file = tmp_path / "list.txt"
    file.write_text("# my order\n\nasc/ipod\n mine \n")
    names = sequences.own_sequence(file)
    assert names == ["asc/ipod", str(folder)]
    assert [task.name for task in sequences.load_tasks(names, shared / "data/prepared")] == ["asc/ipod", "mine"]
    file.write_text("\n".join("abcdefgh"))
    orders = [sequences.own_sequence(file, order) for order in range(3)]
    assert sorted(orders[1]) == orders[0] != orders[1] != orders[2]
    assert orders[1] == sequences.own_sequence(file, 1)


def test_own_list_that_cannot_be_used(tmp_path):
    file = tmp_path / "list.txt"
    with pytest.raises(TaskError, match="cannot read the list of tasks"):
        sequences.own_sequence(file)
    file.write_text("# nothing\n")
    with pytest.raises(TaskError, match="names no task"):
        sequences.own_sequence(file)
    file.write_text("a\nb\na\n")
    with pytest.raises(TaskError, match="names a more than once"):
        sequences.own_sequence(file)
