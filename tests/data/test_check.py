"""`check` sees every row that is missing, new or changed, and shows counts, labels, lengths and overlaps."""

from __future__ import annotations

import json
import shutil

import pytest

from tss.data.check import Words, _words, check, digest, read_rows
from tss.data.sequences import facts
from tss.errors import TaskError


def copied(shared, folder, *families):
    for family in families:
        shutil.copytree(shared / "data/prepared" / family, folder / family, copy_function=shutil.copyfile)
    for entry in folder.rglob("*"):
        entry.chmod(0o755 if entry.is_dir() else 0o644)
    return folder


@pytest.fixture
def replies(shared, tmp_path):
    """The family drg, free to be damaged."""
    return copied(shared, tmp_path, "drg")


@pytest.fixture
def data(shared, tmp_path):
    """Two families, free to be damaged."""
    return copied(shared, tmp_path, "drg", "ner")


def test_the_shared_data_is_as_the_recipes_make_it(shared):
    report = check(shared / "data/prepared")
    assert report.ok and not report.problems and not report.absent
    found = {task.task: task for task in report.tasks}
    assert list(found["ccd/yahoo"].rows.values()) == [4500, 500, 3485]
    assert list(found["ccd/yahoo"].paper.values()) == [4500, 500, 4840]
    assert found["ner/conll2003"].overlaps == {"train-valid": 0, "train-test": 0, "valid-test": 25}
    assert sum(sum(task.overlaps.values()) for task in report.tasks) == 25
    assert found["ccd/yahoo"].input_words.longest == 942  # as the recipe book says
    assert found["sum/icsi"].input_words.longest == 21606
    assert found["asc/canond500"].labels == {"positive": 121, "negative": 27}
    text = report.text()
    assert "4500 / 500 / 3485 (4500 / 500 / 4840)" in text
    assert "the paper's row 'hotel'" in text and "scores are not comparable" in text
    assert "every row is as the recipes make it" in text
    for task, known in facts("tasks").items():
        differs = known["counts"] != known["paper_counts"]
        assert not differs or facts("deviations")[task], f"{task} differs from the paper without a word"


def test_families_apart(data):
    report = check(data)
    assert report.ok and report.absent == ["asc", "ccd", "sum"] and len(report.tasks) == 10
    assert "not prepared: asc" in report.text()


def change(file, edit):
    lines = file.read_text().split("\n")
    edit(lines)
    file.write_text("\n".join(lines))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda lines: lines.pop(3), "251 rows, 1 fewer than the recipe makes"),
        (lambda lines: lines.insert(3, '{"source":"x()","target":"y"}'), "253 rows, 1 more than the recipe makes"),
        (lambda lines: lines.__setitem__(3, lines[3].replace("e", "a")), "not the same ones in the same order"),
        (lambda lines: lines.__setitem__(slice(0, 2), lines[1::-1]), "not the same ones in the same order"),
        (lambda lines: lines.__setitem__(3, "{"), "row 4 is not JSON"),
        (lambda lines: lines.__setitem__(3, '{"source":"x"}'), "row 4: not the fields of drg (KeyError"),
        (lambda lines: lines.__setitem__(3, '{"source":"x","target":7}'), "row 4: "),
        (lambda lines: lines.__setitem__(3, "[]"), "row 4: not the fields of drg"),
    ],
)
def test_one_row_that_is_not_as_it_was(replies, edit, message):
    change(replies / "drg/hotel/test.jsonl", edit)
    report = check(replies)
    assert not report.ok
    assert all("hotel" in problem and "test.jsonl" in problem for problem in report.problems)
    assert message in report.text()


def test_unknown_tags_leaks_and_many_bad_rows(data):
    change(data / "ner/gum/valid.jsonl", lambda lines: lines.__setitem__(0, '{"tokens":["a"],"tags":["B-ghost"]}'))
    file = data / "drg/taxi/valid.jsonl"
    leaked = (data / "drg/taxi/train.jsonl").read_text().split("\n")[0]
    change(file, lambda lines: lines.__setitem__(slice(0, 5), [leaked] + ["{}"] * 4))
    problems = "\n".join(check(data).problems)
    assert "gum/valid.jsonl, row 1" in problems and "'B-ghost'" in problems
    assert "drg/taxi: 1 examples are in both train and valid" in problems
    assert "1 more rows like these" in problems


def test_missing_and_foreign_files(data):
    (data / "drg/taxi/test.jsonl").unlink()
    shutil.rmtree(data / "ner/btc")
    (data / "ner/mine").mkdir()
    problems = "\n".join(check(data).problems)
    assert "prepared file not readable" in problems and "taxi/test.jsonl" in problems
    assert problems.count("btc") >= 3
    assert "mine: not one of the 40 tasks" in problems


def test_no_data_at_all(tmp_path):
    with pytest.raises(TaskError, match="no prepared data in .*run tss data prepare"):
        check(tmp_path)


def test_lengths():
    assert _words(range(1, 101)) == Words(50, 95, 100)
    assert _words([7]) == Words(7, 7, 7)
    assert _words([]) == Words(0, 0, 0)
    assert str(Words(1, 2, 3)) == "1/2/3"


def test_digest_sees_rows_and_order_not_layout(tmp_path):
    rows = [{"text": "é", "label": "x"}, {"text": "b", "label": "y"}]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows))
    assert digest(row for _, row in read_rows(file)) == digest(rows) != digest(rows[::-1])
