"""Raw public files to prepared tasks: the recipes' words, the whole benchmark byte for byte, and what goes wrong."""

from __future__ import annotations

import json
import random
import shutil
import sys

import pytest

from tss.data import drg, ner, prepare, recipe
from tss.errors import TaskError


def test_words_of_the_recipes():
    assert recipe.squeeze("  a\u00a0b \n\t c\u2028") == "a b c"
    assert recipe.key("Été, No. 7!") == "éténo7"
    assert recipe.clean("a\\nb \\\\ c\\u00e9") == "a b c u00e9"
    assert recipe.first_of_each(["b", "a", "B"], str.lower) == ["b", "a"]
    assert recipe.draws("ner", "btc").random() == random.Random("2021/ner/btc").random()


def test_lines_are_cut_at_line_feed_only(tmp_path):
    file = tmp_path / "x.txt"
    file.write_bytes("one\u2028still one\r\ntwo\n\nlast".encode())
    assert recipe.read_lines(file) == ["one\u2028still one\r", "two", "", "last"]
    file.write_bytes(b"one\n")
    assert recipe.read_lines(file) == ["one"]


@pytest.mark.parametrize(
    ("tags", "bio"),
    [
        (["I-PER", "I-PER", "O", "I-LOC"], ["B-PER", "I-PER", "O", "B-LOC"]),
        (["I-PER", "I-ORG", "B-ORG", "I-ORG"], ["B-PER", "B-ORG", "B-ORG", "I-ORG"]),
        (["O", "O"], ["O", "O"]),
    ],
)
def test_tags_become_bio(tags, bio):
    assert ner.to_bio(tags) == bio


def test_sentences_skip_document_marks_and_empty_tokens(tmp_path):
    file = tmp_path / "x.conll"
    file.write_bytes(b"-DOCSTART-\tO\n\nBo \tB-PER\n\xff\tO\n\xc2\xa0\tO\n\n\nend\tO")
    rows = ner.read_sentences(file, "\t")
    assert rows == [
        {"tokens": ["Bo", "\ufffd"], "tags": ["B-PER", "O"]},
        {"tokens": ["end"], "tags": ["O"]},
    ]


def test_acts_become_one_source_string():
    line = (
        "multi | hotel_inform ( area-1 = north ) | booking_nobook ( day-1 = monday ) | hotel_request ( stars-? ) | "
        'hotel_inform ( internet-yes = none ) | hotel_select ( none-none = none ) | hotel_inform ( name-1 = "a" )'
    )
    turn = drg.Turn(drg._acts(line, "here"), "reply")
    assert turn.source == """hotel_inform(area="north",internet="yes",name="'a'") booking_nobook() hotel_select()"""
    assert turn.domains == {"hotel"}
    with pytest.raises(TaskError, match="here: not an act"):
        drg._acts("multi | hotel_inform", "here")


def test_whole_benchmark_is_reproduced_byte_for_byte(shared, tmp_path):
    seen = []
    done = prepare.prepare(shared / "data/raw", tmp_path, progress=lambda *step: seen.append(step))
    expected = sorted((shared / "data/prepared").rglob("*.jsonl"))
    names = [file.relative_to(shared / "data/prepared") for file in expected]
    assert sorted(f.relative_to(tmp_path) for f in tmp_path.rglob("*") if f.is_file()) == names
    for name in names:
        assert (tmp_path / name).read_bytes() == (shared / "data/prepared" / name).read_bytes(), name
    assert len(done) == 40 and len(names) == 120
    assert done[0].rows == {"train": 352, "valid": 44, "test": 44}
    assert [step[1:] for step in seen] == [(n, 40) for n in range(41)]


def asc_raw(folder, tasks=None):
    """A tiny raw folder of the whole ASC family."""
    for task in tasks or prepare.FAMILIES["asc"].TASKS:
        (folder / "asc" / task).mkdir(parents=True)
        for name in ("train", "dev", "test"):
            rows = {"1": {"id": 1, "polarity": "+", "sentence": f"a {name}  text ", "term": " it"}}
            rows["2"] = {"id": 2, "polarity": "-", "sentence": "same", "term": name if name != "train" else "test"}
            (folder / "asc" / task / f"{name}.json").write_text(json.dumps(rows))
    return folder


def test_one_family_alone_and_leaks_left_out(tmp_path):
    done = prepare.prepare(asc_raw(tmp_path / "raw"), tmp_path / "out", families=["asc", "asc"])
    assert len(done) == 19 and [p.name for p in (tmp_path / "out").iterdir()] == ["asc"]
    train = (tmp_path / "out/asc/ipod/train.jsonl").read_text()
    assert train == '{"aspect":"it","text":"a train text","label":"positive"}\n'
    assert done[0].rows == {"train": 1, "valid": 2, "test": 2}


def test_missing_raw_file_names_file_and_task(tmp_path):
    raw = asc_raw(tmp_path / "raw")
    (raw / "asc/router/dev.json").unlink()
    with pytest.raises(TaskError, match=r"asc/router: raw file not readable: .*router.dev\.json"):
        prepare.prepare(raw, tmp_path / "out", ["asc"])
    assert (tmp_path / "out/asc/speaker/test.jsonl").is_file()  # what was done stays


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "asc/speaker: raw file is not JSON: .*train.json, line 1"),
        (b"\xff", "not UTF-8: .*train.json, byte 0"),
        (b'{"1": {}}', "asc/speaker: the raw files in .* are not of the expected form .KeyError: 'term'."),
        (b"[]", "not of the expected form"),
        (b'{"1": {"term": "x", "sentence": "y", "polarity": "?"}}', "unknown label '.'; known"),
    ],
)
def test_damaged_raw_file_is_told_plainly(tmp_path, content, message):
    raw = asc_raw(tmp_path / "raw")
    (raw / "asc/speaker/train.json").write_bytes(content)
    with pytest.raises(TaskError, match=message):
        prepare.prepare(raw, tmp_path / "out", ["asc"])


def test_other_damaged_families(shared, tmp_path):
    for name in ("sum/icsi", "drg/all"):
        shutil.copytree(shared / "data/raw" / name, tmp_path / name, copy_function=shutil.copyfile)
    (tmp_path / "drg/all/dev.src").write_text("multi | x\n")
    with pytest.raises(TaskError, match=r"drg/taxi: .*dev.src has 1 lines but .*dev.trg has \d+"):
        prepare.prepare(tmp_path, tmp_path / "out", ["drg"])
    cut = tmp_path / "sum/icsi/test/split_0.jsonl.gz"
    cut.write_bytes(cut.read_bytes()[:-20])
    with pytest.raises(TaskError, match=r"sum/icsi: raw file is damaged: .*split_0"):
        prepare.prepare(tmp_path, tmp_path / "out", ["sum"])
    shutil.rmtree(tmp_path / "sum/icsi/dev")
    with pytest.raises(TaskError, match=r"sum/icsi: no raw files split_<n>.jsonl.gz .*dev"):
        prepare.prepare(tmp_path, tmp_path / "out", ["sum"])


def test_unknown_or_absent_family(tmp_path):
    with pytest.raises(TaskError, match="unknown family 'asd'; did you mean 'asc'"):
        prepare.prepare(tmp_path, tmp_path / "out", ["asd"])
    with pytest.raises(TaskError, match="no folder .*ner with the raw files of the family ner"):
        prepare.prepare(tmp_path, tmp_path / "out", ["ner"])
    assert not (tmp_path / "out").exists()


def test_a_write_that_fails_leaves_the_old_file_and_no_half_one(tmp_path):
    file = tmp_path / "train.jsonl"
    prepare.write_rows(file, [{"text": "old"}])
    with pytest.raises(UnicodeEncodeError):
        prepare.write_rows(file, [{"text": "\ud800"}])
    assert file.read_text() == '{"text":"old"}\n'
    assert [entry.name for entry in tmp_path.iterdir()] == ["train.jsonl"]


def hub_copy(folder, family, rows, lists_of_labels=None):
    """A copy of each repository of a family as the hub lays it out: parquet files named by split."""
    datasets = pytest.importorskip("datasets")
    for repository in prepare.FAMILIES[family].HUB.values():
        for split, content in rows.items():
            data = datasets.Dataset.from_list(content)
            for column, names in (lists_of_labels or {}).items():
                data = data.cast_column(column, datasets.Sequence(datasets.ClassLabel(names=names)))
            (folder / repository / "data").mkdir(parents=True, exist_ok=True)
            data.to_parquet(folder / repository / "data" / f"{split}-00000-of-00001.parquet")
    return folder


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))


def test_ner_from_a_copy_of_the_hub(tmp_path, hub_cache):
    names = ["O", "B-PER", "I-PER"]
    rows = {
        "train": [{"tokens": ["-DOCSTART-"], "ner_tags": [0]}, {"tokens": ["Bo", "B"], "ner_tags": [1, 2]}] * 2
        + [{"tokens": ["held", "out"], "ner_tags": [0, 0]}],
        "validation": [{"tokens": ["held", "out"], "ner_tags": [0, 0]}],
        "test": [{"tokens": ["Al"], "ner_tags": [1]}],
    }
    copy = hub_copy(tmp_path / "hub", "ner", rows, {"ner_tags": names})
    ((task, splits),) = prepare.from_hub("ner", copy)
    assert task == "conll2003"
    assert splits["train"] == [{"tokens": ["Bo", "B"], "tags": ["B-PER", "I-PER"]}]
    assert splits["valid"] == [{"tokens": ["held", "out"], "tags": ["O", "O"]}]
    assert splits["test"] == [{"tokens": ["Al"], "tags": ["B-PER"]}]


def test_asc_and_sum_from_a_copy_of_the_hub(tmp_path, hub_cache):
    labels = ("positive", "conflict", "neutral", "negative")
    rows = [{"text": f"text  {i}", "span": "it", "label": labels[i % 4], "ordinal": 0} for i in range(240)]
    copy = hub_copy(tmp_path / "hub", "asc", {"train": rows, "test": rows[:1]})
    found = dict(prepare.from_hub("asc", copy))
    assert list(found) == ["restaurant", "laptop"]
    held_out = {recipe.squeeze("text 0")}
    kept = {row["text"] for row in found["laptop"]["train"]} | {row["text"] for row in found["laptop"]["valid"]}
    assert len(found["laptop"]["valid"]) == 150 and len(kept | held_out) == 180
    assert found["laptop"]["test"] == [{"aspect": "it", "text": "text 0", "label": "positive"}]
    meeting = [{"id": "1", "transcript": "<A> hm ", "summary": "they  hum"}]
    copy = hub_copy(tmp_path / "hub", "sum", dict.fromkeys(("train", "validation", "test"), meeting))
    done = prepare.prepare_from_hub(tmp_path / "out", ["sum"], copy)
    assert [(d.task, d.source) for d in done] == [("sum/ami", "TalTechNLP/AMIsum")]
    assert (tmp_path / "out/sum/ami/test.jsonl").read_text() == '{"source":"<A> hm","target":"they hum"}\n'


def test_ccd_from_a_copy_of_the_hub(tmp_path, hub_cache):
    field = {"yahoo": "question_title", "agnews": "text", "amazon": "title", "dbpedia": "title", "yelp": "text"}
    empty = dict.fromkeys(("text", "title", "content", "question_title", "question_content", "best_answer"), "")
    ccd = prepare.FAMILIES["ccd"]
    datasets = pytest.importorskip("datasets")
    for task, repository in ccd.HUB.items():
        folder = tmp_path / "hub" / repository
        folder.mkdir(parents=True)
        for split in ("train", "test"):
            rows = [
                empty | {field[task]: f"{split}\\n {i}", "label": i % 2, "topic": i % 2}
                for i in (*range(20), 0 if split == "train" else 1)
            ]
            names = datasets.ClassLabel(names=["1", "2"] if task == "yelp" else ["first", "second"])
            data = datasets.Dataset.from_list(rows).cast_column("label", names).cast_column("topic", names)
            data.to_parquet(folder / f"{split}.parquet")
    found = dict(prepare.from_hub("ccd", tmp_path / "hub"))
    assert list(found) == list(ccd.HUB)
    for task, splits in found.items():
        assert {split: len(rows) for split, rows in splits.items()} == {"train": 18, "valid": 2, "test": 20}
        labels = {"negative", "positive"} if task == "yelp" else {"first", "second"}
        assert {row["label"] for row in splits["test"]} == labels
        assert {row["text"] for row in splits["test"]} == {f"test {i}" for i in range(20)}


def test_a_whole_preparation_from_the_hub_says_what_it_leaves_out(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from tss.cli import app

    monkeypatch.setattr(prepare, "prepare_from_hub", lambda out, families, progress: [])
    told = CliRunner().invoke(app, ["data", "prepare", "--hub", "--out", str(tmp_path)])
    assert told.exit_code == 0 and "not prepared: drg: MultiWOZ" in told.stderr
    assert "not prepared: sum: icsi" in told.stderr and "ccd" not in told.stderr
    told = CliRunner().invoke(app, ["data", "prepare", "--hub", "--out", str(tmp_path), "--family", "ccd"])
    assert told.exit_code == 0 and "not prepared" not in told.stderr


def test_what_the_hub_has_not_is_said(tmp_path, monkeypatch, hub_cache):
    with pytest.raises(TaskError, match="drg cannot be taken from the hub: MultiWOZ"):
        list(prepare.from_hub("drg"))
    with pytest.raises(TaskError, match="drg cannot be taken"):
        prepare.prepare_from_hub(tmp_path, ["drg"])
    with pytest.raises(TaskError, match="sum/ami: no copy of TalTechNLP/AMIsum in"):
        list(prepare.from_hub("sum", tmp_path))
    copy = hub_copy(tmp_path / "hub", "sum", {"train": [{"text": "x"}]})
    with pytest.raises(TaskError, match="sum/ami: the rows of .* not of the expected form .KeyError: 'transcript'"):
        list(prepare.from_hub("sum", copy))
    assert "17 domains" in prepare.on_hub("asc")[1]
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(TaskError, match=r"sum/ami: .*pip install 'tss\[hub\]'"):
        list(prepare.from_hub("sum", copy))
