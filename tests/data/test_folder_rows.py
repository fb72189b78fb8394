"""Broken rows of task folders: an error with file and row, or skipped and counted."""

from __future__ import annotations

import csv

import pytest
from made_folders import CLASSIFY, GOOD, make

from tss.data import lines
from tss.data.folder import read_folder
from tss.errors import TaskError

BAD_ROWS = [
    (b'{"text": "a", "label": "x"\n', "the line is not JSON"),
    (b"[" * 100_000 + b"\n", "the line is not JSON"),
    (b'{"text": "a", "label": ' + b"1" * 5000 + b"}\n", "the line is not JSON"),
    (b'["a", "x"]\n', "expected an object"),
    (b'{"text": "a\xff", "label": "good"}\n', "byte 0xff is not UTF-8"),
    (b'{"text": "a", "lable": "good"}\n', "no column 'label' for the label; columns here: 'text', 'lable'"),
    (b'{"text": 7, "label": "good"}\n', "which is not text"),
    (b'{"text": null, "label": "good"}\n', "which is not text"),
    (b'{"text": "a", "label": ["good"]}\n', "expected a label"),
    (b'{"text": "a", "label": ""}\n', "the label is empty"),
    (b'{"text": "a\\ud800", "label": "good"}\n', "broken at character 2"),
    (b'{"text": "a", "pair": "b", "label": "good"}\n', "two fields but the first training example has one"),
    (b'{"text": "\0", "label": "good"}\n', "the line is not JSON"),
]


@pytest.mark.parametrize(("row", "message"), BAD_ROWS)
def test_bad_rows_stop_with_file_and_row_or_are_skipped_and_counted(folder, row, message):
    blank = b" " * 9000 + b"\n"  # beyond the part that tells text from binary
    (folder / "train.jsonl").write_bytes(GOOD + blank + row + GOOD + row)
    with pytest.raises(TaskError) as error:
        read_folder(folder)
    assert f"{folder / 'train.jsonl'}:4: " in str(error.value)
    assert message in str(error.value)
    assert len(str(error.value)) < 600
    task = read_folder(folder, on_error="skip")
    assert len(task.train) == 4
    assert task.warnings[0].startswith(f"2 rows were skipped; the first: {folder / 'train.jsonl'}:4: ")


BAD_CSV = [
    (b"a\n", "1 columns where the header has 2"),
    (b"a,b,good\n", "3 columns where the header has 2"),
    (b'"a"b,good\n', "the row is not CSV"),
    (b"a\xff,good\n", "byte 0xff is not UTF-8"),
    (b"a,\n", "the label is empty"),
]


@pytest.mark.parametrize(("row", "message"), BAD_CSV)
def test_bad_csv_rows(tmp_path, row, message):
    rows = b'text,label\n"good\nday",good\n' + row + b"bad day,bad\n"
    folder = make(tmp_path / "a", CLASSIFY, {"train.csv": rows, "valid.jsonl": GOOD})
    with pytest.raises(TaskError) as error:
        read_folder(folder)
    assert f"{folder / 'train.csv'}:4: " in str(error.value)
    assert message in str(error.value)
    task = read_folder(folder, on_error="skip")
    assert [example.target for example in task.train] == ["good", "bad"]
    assert "1 row was skipped" in task.warnings[0]


def test_a_quote_never_closed_does_not_swallow_the_rest(tmp_path):
    folder = make(tmp_path / "a", CLASSIFY, {"train.csv": b'text,label\na,good\n"b,bad\nc,good\nd,good\n'})
    with pytest.raises(TaskError, match=r"train\.csv:3: the row is not CSV"):
        read_folder(folder)


def test_long_csv_fields_are_read_and_the_csv_module_left_as_it_was(tmp_path):
    before = csv.field_size_limit()
    folder = make(tmp_path / "a", CLASSIFY, {"train.csv": b"text,label\n" + b"a" * 900_000 + b",x\n"})
    assert len(read_folder(folder).train[0].input[0]) == 900_000
    assert csv.field_size_limit() == before


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_over_long_lines(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(lines, "MAX_LINE", 1000)
    long = b'{"text": "' + b"a" * 5000 + b'", "label": "x"}\n' if suffix == "jsonl" else b"a" * 5000 + b",x\n"
    good = GOOD if suffix == "jsonl" else b"a,x\nb,y\n"
    head = b"" if suffix == "jsonl" else b"text,label\n"
    files = {f"train.{suffix}": head + good + long + good, f"valid.{suffix}": head + good}
    folder = make(tmp_path / "a", CLASSIFY, files)
    row = 3 if suffix == "jsonl" else 4
    with pytest.raises(TaskError, match=rf"train\.{suffix}:{row}: the line has more than 1,000 characters"):
        read_folder(folder)
    task = read_folder(folder, on_error="skip")
    assert (len(task.train), "1 row was skipped" in task.warnings[0]) == (4, True)
