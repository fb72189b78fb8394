"""`benchmarks/tune.py`: what its plans train, and that what was stopped goes on to a table of dev scores."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from tiny import tiny_path

from tss.data.sequences import sequence

FOLDER = Path(__file__).parents[2] / "benchmarks"
OPTIONS = {"max_steps": 4, "eval_steps": 2, "batch_size": 8, "bottleneck": 4, "head_lr": 3e-2}
WORDS = {"positive": "good", "negative": "bad"}


@pytest.fixture(autouse=True)
def _scripts(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])


def plan_for(*methods: str, **changes) -> dict:
    configurations = [{"label": f"my-{method}", "method": method, "options": {}} for method in methods]
    return {"orders": [3, 4], "tasks": 0, "options": OPTIONS, "configurations": configurations, **changes}


def prepared(folder: Path, tasks: list[str]) -> Path:
    for task in tasks:
        (folder / task).mkdir(parents=True)
        for split, times in {"train": 4, "valid": 2, "test": 1}.items():
            rows = [
                {"aspect": "screen", "text": f"{word} {task} {split} {i}", "label": label}
                for i in range(times)
                for label, word in WORDS.items()
            ]
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / task / f"{split}.jsonl").write_text("" if split == "test" else text)
    return folder


def test_what_no_order_changes_is_trained_once():
    from tune import runs_of

    plan = plan_for("one-adapter", "mtl-adapter", "ncl-adapter", "lamol")
    told = [(one["method"], order, cell) for one, order, cell in runs_of(plan)]
    each = {m: [cell for method, _, cell in told if method == m] for m, *_ in told}
    keys = {method: {cell.key for cell in cells} for method, cells in each.items()}
    assert len(each["one-adapter"]) == 80 and len(keys["one-adapter"]) == 40  # 40 tasks serve both orders
    assert len(keys["mtl-adapter"]) == 5 and len(keys["ncl-adapter"]) == 2
    learnt = [task for cell in each["lamol"] for task in cell.tasks]
    assert len(learnt) == 70 and not [task for task in learnt if task.startswith("ner/")]
    assert {order for _, order, _ in told} == {3, 4}


def test_a_plan_in_the_repository_can_be_planned():
    from tune import runs_of

    from tss.config import resolve

    for file in sorted((FOLDER.parent / "results" / "raw").glob("tuning-2[1-5].json")):
        plan = json.loads(file.read_text())
        assert len({one["label"] for one in plan["configurations"]}) == len(plan["configurations"])
        for one, _, cell in runs_of(plan):
            assert cell.tasks and cell.method == one["method"]
            known = resolve(one["method"], "recommended").flat()
            assert set(one["options"]) <= set(known), one["label"]


def test_what_was_stopped_goes_on(tmp_path, capsys, monkeypatch):
    from tune import lines, main, run, summary

    tasks = sequence("asc", 3)[:2]
    data = prepared(tmp_path / "data", [*tasks, *sequence("asc", 4)[:2]])
    plan = plan_for("one-adapter", "ncl-adapter", sequence="asc", tasks=2)
    given = {"data": str(data), "out": str(tmp_path / "runs"), "backbone": str(tiny_path("bart")), "device": "cpu"}
    run(plan, Namespace(**given, jobs=1, seconds=0.0))
    assert lines(plan, tmp_path / "runs") == []
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    words = [str(tmp_path / "plan.json"), *(f"--{key}={value}" for key, value in given.items())]
    monkeypatch.setattr(sys, "argv", ["tune.py", *words, "--summary", str(tmp_path / "kept.jsonl")])
    main()
    table = capsys.readouterr().out
    kept = [json.loads(line) for line in (tmp_path / "kept.jsonl").read_text().splitlines()]
    assert table.endswith(summary(kept) + "\n")
    assert [(one["label"], one["order"]) for one in kept] == [
        (f"my-{method}", order) for method in ("one-adapter", "ncl-adapter") for order in (3, 3, 4, 4)
    ]
    assert all(one["examples"] == 4 and 0 <= one["dev"] <= 100 and "final" in one for one in kept)
    main()  # trains nothing again
    assert capsys.readouterr().out == summary(kept) + "\n"


def test_a_method_that_cannot_learn_a_family_leaves_its_column_empty():
    from tune import summary

    lines = [
        {"label": "all", "task": "asc/ipod", "dev": 70.0, "final": 60.0},
        {"label": "all", "task": "ner/btc", "dev": 40.0, "final": 30.0},
        {"label": "no tags", "task": "asc/ipod", "dev": 71.0, "final": 61.0},
    ]
    rows = summary(lines).splitlines()[2:]
    assert rows == ["| all | 70.00 | 40.00 | 45.00 | 2 |", "| no tags | 71.00 |  | 61.00 | 1 |"]


def test_it_ends_in_time_however_much_is_left(tmp_path):
    """Jobs that nobody takes any more do not hold it back."""
    plan = plan_for("one-adapter", "supsup", "one-prompt", "one")
    plan["configurations"] = [{**one, "label": f"{one['label']}-{i}"} for one in plan["configurations"] for i in "ab"]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    data = prepared(tmp_path / "data", sequence("asc", 3)[:1])
    words = f"{tmp_path}/plan.json --data {data} --out {tmp_path}/runs --seconds 0 --device cpu"
    subprocess.run([sys.executable, FOLDER / "tune.py", *words.split()], check=True, timeout=300, capture_output=True)


def test_a_copy_that_was_cut_is_not_taken_for_one_without_tests(tmp_path, monkeypatch):
    import tune

    data = prepared(tmp_path / "data", ["asc/shop", "asc/trade"])
    for task in ("shop", "trade"):
        (data / "asc" / task / "test.jsonl").write_text("a test\n")
    write, told = Path.write_text, []

    def cut(file, *given, **others):
        told.append(file)
        if len(told) == 2:  # after the first task
            raise KeyboardInterrupt
        return write(file, *given, **others)

    monkeypatch.setattr(Path, "write_text", cut)
    with pytest.raises(KeyboardInterrupt):
        tune.without_tests(data, tmp_path / "without", 0)
    made = tune.without_tests(data, tmp_path / "without", 0)
    assert "a test\n" not in [file.read_text() for file in made.glob("asc/*/test.jsonl")] and len(told) == 4
    tune.without_tests(data, made, 0)
    assert len(told) == 4  # a whole one is not made again


@pytest.mark.parametrize(("plan", "said"), [(None, "No such file"), ("{", "Expecting"), ("{}", "no folder nowhere")])
def test_plans_and_folders_that_are_none_are_named_in_a_line(tmp_path, capsys, monkeypatch, plan, said):
    from tune import main

    if plan:
        (tmp_path / "plan.json").write_text(plan)
    monkeypatch.setattr(sys, "argv", ["tune.py", f"{tmp_path}/plan.json", "--data", "nowhere", "--out", "runs"])
    with pytest.raises(SystemExit):
        main()
    assert said in capsys.readouterr().err


def test_what_failed_is_said_and_told_by_the_exit_status(tmp_path, capsys, monkeypatch):
    from tune import main

    (tmp_path / "plan.json").write_text(json.dumps(plan_for("one-adapter", sequence="asc", tasks=1, orders=[3])))
    data, _ = prepared(tmp_path / "data", sequence("asc", 3)[:1]), (tmp_path / "runs").mkdir()
    (data / sequence("asc", 3)[0] / "train.jsonl").write_text("not JSON\n")
    words = f"{tmp_path}/plan.json --data {data} --out {tmp_path}/runs --backbone {tiny_path('bart')} --device cpu"
    monkeypatch.setattr(sys, "argv", ["tune.py", *words.split()])
    with pytest.raises(SystemExit, match="1 of 1 failed"):
        main()
    assert "train.jsonl:1" in capsys.readouterr().out
