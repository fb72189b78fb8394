"""Tasks from Hugging Face data sets, loaded from local files only."""

from __future__ import annotations

import builtins
import json

import pytest

from tss.data.hub import load_hub_task
from tss.errors import TaskError
from tss.tasks.task import Example, Task

datasets = pytest.importorskip("datasets")


def class_set(rows: dict, names: list[str], column: str = "label", listed: bool = False):
    feature = datasets.ClassLabel(names=names)
    built = datasets.Dataset.from_dict(rows)
    return built.cast_column(column, datasets.Sequence(feature) if listed else feature)


def test_class_numbers_become_names():
    train = class_set({"sentence": ["a", "b", "c"], "label": [1, 0, 1]}, ["neg", "pos", "other"])
    valid = class_set({"sentence": ["d"], "label": [0]}, ["neg", "pos", "other"])
    both = datasets.DatasetDict({"train": train, "validation": valid})
    task = Task.from_dataset(both, "mood", "classification", {"text": "sentence"}, family="f")
    assert task.labels == ("neg", "pos", "other")
    assert (task.train[0], task.valid, task.family) == (Example(("a",), "pos"), (Example(("d",), "neg"),), "f")
    assert "no training example for label 'other'" in task.warnings


def test_lists_of_class_numbers_become_tags():
    rows = {"tokens": [["Ann", "sings"], ["hm"]], "ner_tags": [[1, 0], [0]]}
    built = class_set(rows, ["O", "B-per", "I-per"], "ner_tags", listed=True)
    task = Task.from_dataset({"train": built, "dev": built}, "names", "tagging", {"tags": "ner_tags"})
    assert task.train[0] == Example(("Ann", "sings"), ("B-per", "O"))
    assert task.labels == ("O", "B-per", "I-per")


def test_a_single_data_set_is_the_training_split():
    built = datasets.Dataset.from_dict({"source": ["a", "b"], "target": ["c", "d"]})
    task = Task.from_dataset(built, "talk", "generation", metric="bleu")
    assert (len(task.train), len(task.valid), task.metric) == (1, 1, "bleu")


def test_a_plain_dict_of_rows_will_do():
    rows = [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]
    task = Task.from_dataset({"train": rows}, "t", "classification")
    assert task.labels == ("x", "y")


def test_what_cannot_be_used_is_named():
    names = ["neg", "pos"]
    train = class_set({"text": ["a", "b"], "label": [1, 0]}, names)
    blind = class_set({"text": ["c"], "label": [-1]}, names)
    with pytest.raises(TaskError, match=r"test\[0\]: class number -1 has no name"):
        Task.from_dataset({"train": train, "test": blind}, "t", "classification")
    skipped = Task.from_dataset({"train": train, "test": blind}, "t", "classification", on_error="skip")
    assert "1 row was skipped" in skipped.warnings[0]
    with pytest.raises(TaskError, match=r"train\[0\]: no column 'sentence' .*; columns here: 'text', 'label'"):
        Task.from_dataset(train, "t", "classification", {"text": "sentence"})
    with pytest.raises(TaskError, match="no split 'train'"):
        Task.from_dataset({"training": train}, "t", "classification")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def test_a_local_folder_of_the_hubs_layout(tmp_path, cache):
    folder = tmp_path / "reviews"
    folder.mkdir()
    for split, count in (("train", 6), ("validation", 2), ("test", 3)):
        rows = [{"text": f"text {i}", "label": "xy"[i % 2]} for i in range(count)]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = load_hub_task(folder, "classification", labels=["y", "x"])
    assert (task.name, task.labels) == ("reviews", ("y", "x"))
    assert (len(task.train), len(task.valid), len(task.test)) == (6, 2, 3)


def test_a_data_set_that_is_not_there(tmp_path, cache):
    with pytest.raises(TaskError, match="cannot load the data set"):
        load_hub_task(tmp_path / "nothing", "classification")


def test_without_the_extra_the_error_names_it(monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.split(".")[0] == "datasets":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(TaskError, match=r"pip install 'tss\[hub\]'"):
        load_hub_task("some/set", "classification")
