"""Tasks that are not among the forty, made from prepared ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tss.tasks.task import Task

FOLDER = Path(__file__).parents[2] / "benchmarks"
ROWS = {
    "asc": {"text": "The Screen size of {} is good , the price too", "aspect": "screen size", "label": "positive"},
    "ccd": {"text": "a text from {} number", "label": "LABEL"},
    "drg": {"source": "{}_inform(name)", "target": "{} is a nice one"},
    "ner": {"tokens": ["Ann", "Lee", "saw", "{}"], "tags": ["B-PER", "I-PER", "O", "B-LOC"]},
}

SIGNS = ("positive", "negative")
LABELS = {"yelp": SIGNS, "amazon": SIGNS, "agnews": ("Sports", "x"), "yahoo": ("Entertainment & Music", "x")}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Task]:
    monkeypatch.syspath_prepend(str(FOLDER))
    import new_tasks

    names = {
        "asc": ("laptop", "restaurant", *new_tasks.PRODUCTS),
        "ccd": ("yelp", "amazon", "agnews", "yahoo"),
        "drg": new_tasks.DOMAINS,
        "ner": ("conll2003", "btc"),
    }
    for family, tasks in names.items():
        for name in tasks:
            (tmp_path / "data" / family / name).mkdir(parents=True)
            for split in ("train", "valid", "test"):
                rows = [json.dumps(ROWS[family]).replace("{}", f"{name} {split} {i}") for i in range(4)]
                rows = [
                    row.replace("LABEL", LABELS[name][i % 2]) if family == "ccd" else row for i, row in enumerate(rows)
                ]
                rows.append(rows[0].replace("screen size", "price"))  # the same text, another aspect
                (tmp_path / "data" / family / name / f"{split}.jsonl").write_text("\n".join(rows))
    new_tasks.write(tmp_path / "data", tmp_path / "new")
    files = [tmp_path / "new" / f"{name}.txt" for name in ("order", "questions", "opposites")]
    listed = [one for file in files for one in file.read_text().split()]
    return {task.name: task for task in (Task.from_folder(tmp_path / "new" / one) for one in listed)}


def test_each_can_be_learnt_and_says_what_it_should(made: dict[str, Task]):
    assert [task.kind for task in made.values()].count("tagging") == 4 and len(made) == 9 + 5 + 2
    assert set(made["site"].labels) == {"yelp", "amazon"} and len(made["product"].labels) == 6
    assert set(made["news names"].labels) == {"O", "B-NAME", "I-NAME"}
    assert {one.target for one in made["hotel acts"].test if "0" in one.input[0]} == {"hotel test 0_inform(name)"}


def test_questions_are_answered_by_yes_and_no_as_often(made: dict[str, Task], monkeypatch: pytest.MonkeyPatch):
    import new_tasks

    assert all(set(made[name].labels) == {"yes", "no"} for name in new_tasks.QUESTIONS)
    yes = [one.input[0] for one in made["hotel"].train if one.target == "yes"]
    no = [one.input[0] for one in made["hotel"].train if one.target == "no"]
    assert yes and all("hotel" in text for text in yes) and all("restaurant" in text for text in no)
    assert len(yes) == len(no)


def test_opposites_answer_the_same_texts_the_other_way(made: dict[str, Task]):
    praise, complaint = (
        {one.input[0]: one.target for one in made[name].train} for name in ("praise of goods", "complaint about goods")
    )
    both = praise.keys() & complaint.keys()
    assert len(both) > 1 and all({praise[text], complaint[text]} == {"yes", "no"} for text in both)


def test_rows_of_a_label_are_set_against_as_many_others(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import new_tasks

    rows = [{"text": f"{label} {i}", "label": label} for label in "abc" for i in range(3)]
    found = new_tasks.is_it(lambda task, split: rows, "train", "any", of="b")
    assert sorted(row["text"] for row in found if row["label"] == "yes") == ["b 0", "b 1", "b 2"]
    assert len([row for row in found if row["label"] == "no" and row["text"][0] in "ac"]) == 3


def test_all_aspects_of_a_sentence_are_tagged_once(made: dict[str, Task]):
    (both,) = [one for one in made["laptop aspects"].test if "0" in one.input]
    tagged = [word for word, tag in zip(both.input, both.target, strict=True) if tag != "O"]
    assert tagged == ["Screen", "size", "price"] and both.target.count("B-ASPECT") == 2
    assert len(made["laptop aspects"].test) == 4  # one row a sentence


def test_the_table_has_the_mean_over_orders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.syspath_prepend(str(FOLDER))
    import new_tasks

    (tmp_path / "grid.json").write_text("{}")
    for order, score in ((0, 60.0), (1, 70.0)):
        lines = [{"cell": f"tss.order.o{order}.s0", "label": "TSS"}, {"task": "site", "scores": {"macro_f1": score}}]
        (tmp_path / f"tss.order.o{order}.s0.jsonl").write_text("\n".join(map(json.dumps, lines)))
    told = new_tasks.table(tmp_path)
    assert told[0] == "| task | TSS |" and "| site | 65.0 |" in told and told[-1] == "| mean | 65.0 |"
