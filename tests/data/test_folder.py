"""Task folders: what is read, and for each kind of broken folder an error with file and row."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_folders import CLASSIFY, GOOD, make

from tss.data.folder import read_folder, read_prepared, write_folder
from tss.errors import TaskError
from tss.tasks.task import Example, Lengths, Task


def test_the_three_kinds(tmp_path):
    tagging = b'{"tokens": ["Ann", "sings"], "tags": ["B-per", "O"]}\n'
    talk = b'{"source": "act", "target": "reply", "id": 7}\n'
    pairs = b'{"aspect": "screen", "text": "nice", "label": "pos"}\n{"aspect": "b", "text": "a", "label": "neg"}'
    cases = {
        "classification": (pairs, Example(("nice", "screen"), "pos")),
        "tagging": (tagging, Example(("Ann", "sings"), ("B-per", "O"))),
        "generation": (talk, Example(("act",), "reply")),
    }
    for kind, (rows, example) in cases.items():
        task = Task.from_folder(make(tmp_path / kind, {"name": kind, "kind": kind}, {"train.jsonl": rows}))
        assert task.train[0] == example


def test_csv(tmp_path):
    rows = b'text,label,more\r\n"good, ""very"" good",good,1\r\n\r\n"two\nlines",bad,2\r\n'
    task = read_folder(make(tmp_path / "a", CLASSIFY, {"train.csv": rows}))
    assert task.train == (Example(('good, "very" good',), "good"), Example(("two\nlines",), "bad"))
    tags = b"tokens,tags\nAnn sings,B-per O\n"
    task = read_folder(make(tmp_path / "b", {"name": "n", "kind": "tagging"}, {"train.csv": tags}))
    assert task.train == (Example(("Ann", "sings"), ("B-per", "O")),)


def test_all_of_task_json(tmp_path):
    described = {
        "name": "cafe\u0301",
        "kind": "classification",
        "labels": ["good", "bad"],
        "lengths": {"max_input": 32},
        "family": "moods",
        "metric": "accuracy",
        "columns": {"text": "review", "pair": "about", "label": "stars"},
    }
    rows = b'{"review": "a", "about": "b", "stars": "bad"}\n' * 3
    task = read_folder(make(tmp_path / "a", described, {"train.jsonl": rows, "dev.jsonl": rows}))
    assert (task.name, task.labels, task.lengths) == ("caf\u00e9", ("good", "bad"), Lengths(max_input=32))
    assert (task.family, task.metric, task.valid[0]) == ("moods", "accuracy", Example(("a", "b"), "bad"))


def test_repair_tags(tmp_path):
    rows = b'{"tokens": ["a"], "tags": ["I-x"]}\n'
    with pytest.raises(TaskError, match=r"train\.jsonl:1: tag 1 is 'I-x' but continues no x"):
        read_folder(make(tmp_path / "a", {"name": "n", "kind": "tagging"}, {"train.jsonl": rows}))
    described = {"name": "n", "kind": "tagging", "repair_tags": True}
    assert read_folder(make(tmp_path / "b", described, {"train.jsonl": rows})).train[0].target == ("B-x",)


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_byte_order_mark_and_mixed_line_ends(tmp_path, start, suffix):
    rows = {
        "jsonl": b'{"text": "a\xe2\x80\xa8b", "label": "x"}\r\n{"text": "c", "label": "y"}\r'
        b'{"text": "d", "label": "y"}\n\n',
        "csv": b"text,label\r\na\xe2\x80\xa8b,x\rc,y\nd,y",
    }[suffix]
    files = {f"train.{suffix}": start + rows, f"valid.{suffix}": start + rows}
    task = read_folder(make(tmp_path / "a", CLASSIFY, files))
    assert [example.input[0] for example in task.train] == ["a\u2028b", "c", "d"]  # U+2028 ends no line


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("train.jsonl", b"", "train.jsonl is empty"),
        ("valid.jsonl", b"\xef\xbb\xbf\r\n \n", "valid.jsonl is empty"),
        ("train.jsonl", b"\x89PNG\r\n\x1a\n\0\0\0", "not a text file"),
        ("train.jsonl", '{"text": "a"}'.encode("utf-16"), "UTF-16"),
        ("train.csv", b"text,label\n", "both train.jsonl and train.csv"),
        ("dev.csv", b"text,label\n", "both valid.jsonl and dev.csv"),
        ("task.json", b"", "task.json is not JSON"),
        ("task.json", b"{'name': 1}", "task.json is not JSON"),
        ("task.json", b'{"name": "\xff"}', "task.json is not JSON in UTF-8"),
        ("task.json", b"[" * 100_000, "task.json is not JSON"),
        ("task.json", b"[]", "must hold a JSON object"),
        ("task.json", b'{"kind": "tagging"}', "does not say the task's name"),
        ("task.json", b'{"name": "x"}', "does not say the task's kind"),
        ("task.json", b'{"name": "x", "kind": "taging"}', "task.json: there is no kind of task 'taging'; did you mean"),
        ("task.json", b'{"name": "x", "kind": "tagging", "lables": []}', "no key 'lables'; did you mean 'labels'"),
        ("task.json", b'{"name": 7, "kind": "tagging"}', "name must be a JSON string, not 7"),
        ("task.json", b'{"name": "\\u202e", "kind": "tagging"}', "task.json: task name '\\u202e' holds"),
        ("task.json", b'{"name": "x", "kind": "tagging", "lengths": {"beam": 2}}', "did you mean 'beams'"),
        ("task.json", b'{"name": "x", "kind": "tagging", "metric": "bleu"}', "tagging has no metric 'bleu'"),
        ("task.json", b'{"name": "x", "kind": "tagging", "labels": [null]}', "labels must be texts"),
        ("task.json", b'{"name": "x", "kind": "tagging", "columns": {"token": "w"}}', "did you mean 'tokens'"),
        ("task.json", b'{"name": "x", "kind": "tagging", "columns": {"tokens": 3}}', "must be a name, not 3"),
    ],
)
@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_broken_files_are_never_skipped(folder, file, content, message, on_error):
    (folder / file).write_bytes(content)
    with pytest.raises(TaskError) as error:
        read_folder(folder, on_error=on_error)
    assert message in str(error.value)
    assert len(str(error.value)) < 600


def test_missing_things(folder, tmp_path):
    with pytest.raises(TaskError, match="there is no folder"):
        read_folder(tmp_path / "nowhere")
    with pytest.raises(TaskError, match="is a file; give the folder"):
        read_folder(folder / "task.json")
    with pytest.raises(TaskError, match="cannot read the folder|there is no folder"):
        read_folder("a\0b")
    with pytest.raises(TaskError, match="on_error is 'ignore'"):
        read_folder(folder, on_error="ignore")
    (folder / "train.jsonl").unlink()
    with pytest.raises(TaskError, match="has no train.jsonl or train.csv; there is task.json, test.jsonl, valid.jsonl"):
        read_folder(folder)
    (folder / "task.json").unlink()
    with pytest.raises(TaskError, match='the smallest is {"name": "my task", "kind": "classification"}'):
        read_folder(folder)


def test_the_smallest_description_is_a_valid_one(tmp_path):
    assert read_folder(make(tmp_path / "a", '{"name": "my task", "kind": "classification"}', {"train.jsonl": GOOD}))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_what_is_no_regular_file_is_refused_at_once(folder):
    (folder / "train.jsonl").unlink()
    os.mkfifo(folder / "train.jsonl")
    with pytest.raises(TaskError, match="train.jsonl is not a file"):
        read_folder(folder)


def test_a_bad_header_names_the_columns(tmp_path):
    for name, rows, message in [
        ("a", b"text;label\na;b\n", r"train\.csv:2: no column 'text' for the text; columns here: 'text;label'"),
        ("b", b"text,text\na,b\n", "names a column twice"),
        ("c", b"text,label\n", "no training examples"),
    ]:
        with pytest.raises(TaskError, match=message):
            read_folder(make(tmp_path / name, CLASSIFY, {"train.csv": rows}))


def test_an_unknown_label_in_test_is_named_with_file_and_row(folder):
    (folder / "test.jsonl").write_bytes(GOOD + b'{"text": "x", "label": "ugly"}\n')
    with pytest.raises(TaskError, match=r"test\.jsonl:3: label 'ugly' is not among the task's labels"):
        read_folder(folder)
    task = read_folder(folder, on_error="skip")
    assert (len(task.test), "label 'ugly'" in task.warnings[0]) == (2, True)


def test_skipping_every_row_is_an_error_that_says_why(folder):
    (folder / "train.jsonl").write_bytes(b"nonsense\n" * 3)
    with pytest.raises(TaskError, match=r"no training examples. 3 rows were skipped; the first: .*train\.jsonl:1"):
        read_folder(folder, on_error="skip")


def test_missing_valid_and_test_are_allowed(tmp_path):
    task = read_folder(make(tmp_path / "a", CLASSIFY, {"train.jsonl": GOOD * 10}))
    assert (len(task.train), len(task.valid), task.test) == (18, 2, ())
    assert "there are no test examples" in task.warnings


@settings(max_examples=30, deadline=None)
@given(rows=st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20), st.sampled_from("xyz")), min_size=2))
def test_what_is_written_is_read_back(tmp_path_factory, rows):
    train = [((text, pair), label) for text, pair, label in rows]
    task = Task.from_lists("../a b", "classification", train, train[:1], train[:2], family="f", lengths={"beams": 2})
    again = read_folder(write_folder(task, tmp_path_factory.mktemp("w") / "new"))
    assert again == task
    assert again.fingerprint() == task.fingerprint()


def test_other_kinds_are_read_back_and_nothing_is_overwritten(tmp_path):
    tagging = Task.from_lists("n", "tagging", [(["New York", "a"], ["B-x", "O"])] * 2, labels=["B-y", "B-x"])
    talk = Task.from_lists("t", "generation", [("a\r\nb", "c\u2028d")] * 2, metric="bleu")
    for task in (tagging, talk):
        assert read_folder(write_folder(task, tmp_path / task.name)).fingerprint() == task.fingerprint()
    with pytest.raises(TaskError, match="is not empty"):
        write_folder(talk, tmp_path / "n")
    assert read_folder(tmp_path / "n").fingerprint() == tagging.fingerprint()
    (tmp_path / "file").write_text("")
    with pytest.raises(TaskError, match="cannot write task 't'"):
        write_folder(talk, tmp_path / "file" / "x")


def test_prepared_folders(tmp_path):
    folder = make(tmp_path / "speaker", None, {f"{split}.jsonl": GOOD for split in ("train", "valid", "test")})
    task = read_prepared(folder, "asc/speaker", "asc", kind="classification", labels=["good", "bad"])
    assert (task.name, task.family, task.labels, len(task.test)) == ("asc/speaker", "asc", ("good", "bad"), 2)


def test_prepared_tasks_of_the_benchmark(shared):
    kinds = {"asc": "classification", "ccd": "classification", "ner": "tagging"}
    facts = json.loads((shared / "data" / "tasks.json").read_text())
    for name in ("asc/laptop", "ccd/agnews", "sum/ami", "drg/taxi", "ner/re3d"):
        family, fact = name.split("/")[0], facts[name]
        kind = kinds.get(family, "generation")
        task = read_prepared(shared / "data" / "prepared" / name, name, family, kind=kind, labels=fact.get("labels"))
        assert {split: len(getattr(task, split)) for split in fact["counts"]} == fact["counts"]
        assert set(task.labels) == set(fact.get("labels", ()))
