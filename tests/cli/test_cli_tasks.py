"""The commands about a store's tasks by themselves: predict, evaluate, tasks, verify, methods."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stand_in import Check, Info, StandIn, run

from tss.methods import METHODS


def test_predict_one_text(learner: StandIn, store: str):
    assert run("predict", store, "reviews", "A fine read.").stdout == "yes\n"
    assert learner.inputs == ["A fine read."]
    run("predict", store, "reviews", "It glows.", "--pair", "screen")
    assert learner.inputs == [{"text": "It glows.", "pair": "screen"}]


def test_predict_lines_of_stdin(learner: StandIn, store: str):
    result = run("predict", store, "reviews", "-", given="one\r\ntwo\u2028half\n" + "long " * 20)
    assert learner.inputs == ["one", "two\u2028half", "long " * 20]
    assert result.stdout == "yes\nyes\nyes\n"
    assert result.stderr == "warning: text 3 is longer than the task allows and was cut\n"


def test_predict_tags(learner: StandIn, store: str):
    assert run("predict", store, "entities", "Ada  met Bob").stdout == "O O O\n"


def test_predict_as_json(learner: StandIn, store: str):
    found = json.loads(run("predict", store, "reviews", "-", "--json", given="one\ntwo\n").stdout)
    assert found["task"] == "reviews" and [a["answer"] for a in found["answers"]] == ["yes", "yes"]


def test_predict_refuses(learner: StandIn, store: str, tmp_path: Path):
    assert "did you mean 'reviews'?" in run("predict", store, "reviewz", "x", status=2).stderr
    assert "stdin, line 2" in run("predict", store, "reviews", "-", given=b"fine\n\xff\n", status=2).stderr
    missing = tmp_path / "stor"
    assert f"{missing} does not exist" in run("predict", missing, "reviews", "x", status=2).stderr
    assert not missing.exists(), "asking must not make a store"


def test_evaluate(learner: StandIn, store: str, folder: Path):
    assert "75.00" in run("evaluate", store, folder).stdout
    found = json.loads(run("evaluate", store, folder, "--as", "old", "--json").stdout)
    assert found == {"task": "old", "scores": {"accuracy": 75.0}}


def test_tasks(learner: StandIn, store: str):
    learner.infos = [Info(name="[bold]x\u202e\x1b[31m")]
    text = run("tasks", store, columns=200).stdout
    assert "[bold]x\\u202e\\x1b[31m" in text, "a name is neither markup nor terminal commands"
    assert "14.2 kB" in text and "50.0%" in text and "accuracy 87.50" in text
    assert max(map(len, run("tasks", store).stdout.splitlines())) <= 60
    assert json.loads(run("tasks", store, "--json").stdout)["tasks"][0]["gate_bytes"] == 12_000


@pytest.mark.parametrize(("status", "expected"), [("equal", 0), ("close", 0), ("changed", 1), ("damaged", 1)])
def test_verify(learner: StandIn, store: str, status: str, expected: int):
    learner.checks = [Check("reviews", "equal"), Check("entities", status)]
    text = run("verify", store, status=expected).stdout
    assert f"16 outputs compared in 2 tasks: {expected} changed or damaged" in text
    found = json.loads(run("verify", store, "--json", status=expected).stdout)
    assert found["ok"] == (expected == 0) and found["tasks"][1]["status"] == status


def test_methods(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torch")
    from tiny import tiny_path

    from tss.learning.footprint import Footprint

    tiny = str(tiny_path("bart"))
    found = {one["name"]: one for one in json.loads(run("methods", "--backbone", tiny, "--json").stdout)["methods"]}
    assert list(found) == list(METHODS)
    assert found["lamol"]["kinds"] == ["classification", "generation"] and found["mtl"]["forgets"] is None
    assert all((Path(__file__).parents[2] / one["page"]).is_file() for one in found.values())
    assert found["ncl"]["work"] == pytest.approx(1.0) and found["ncl"]["trained_share"] == 1.0
    assert run("methods", "--backbone", "./nothing", status=2).stderr.startswith("error: ")
    fixed = Footprint(trained=1000, per_task=2000, shared=3_000_000, work=1.25)
    monkeypatch.setattr("tss.learning.footprint.measure", lambda make, backbone: fixed)
    listed = run("methods", "--backbone", tiny, columns=100).stdout
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in listed.splitlines()}
    assert lines["tss"].startswith("sub-network no 2.0 kB 3.0 MB") and lines["tss"].endswith("1.25")
    assert lines["hat"].startswith("parameter isolation yes") and lines["mtl"].startswith("bounds - ")
    assert json.loads(run("methods", "tss", "--json").stdout)["settings"]["batch_size"] == 32
    assert "batch_size" in run("methods", "tss", "--preset", "paper").stdout
    assert "did you mean 'tss'" in run("methods", "tsss", status=2).stderr


def test_tasks_without_gates(learner: StandIn, store: str):
    learner.infos = [Info(open_gates=None)]
    assert "-" in run("tasks", store).stdout


def test_tasks_say_with_whom_they_answer_where_some_do(learner: StandIn, store: str):
    assert "together with" not in run("tasks", store).stdout
    learner.infos[1] = Info(name="films", beside=("reviews", "books"))
    told = run("tasks", store, columns=120).stdout.splitlines()
    assert told[0].rstrip().endswith("together with") and told[-1].rstrip().endswith("reviews, books")
