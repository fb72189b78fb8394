"""The command line with the real learner, on a tiny untrained BART: a user's first hour with tasks of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tss.cli import app

SHORT = ["--set", "max_steps=6", "--set", "eval_steps=3", "--set", "batch_size=4", "--device", "cpu"]
ADJECTIVES = {"good": ["fine", "lovely", "bright"], "bad": ["dull", "broken", "sad"]}


def run(*arguments: object, given: str = "", status: int = 0):
    result = CliRunner().invoke(app, [str(a) for a in arguments], input=given)
    assert result.exit_code == status, (result.output, result.exception)
    assert "Traceback" not in result.output
    return result


def read(*arguments: object, **options) -> dict:
    """The one JSON document of a command."""
    return json.loads(run(*arguments, "--json", **options).stdout)


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from dataclasses import replace

    from tss.backbones.corpus import save_tokenizer, train_tokenizer
    from tss.backbones.shape import new_model, size_named

    folder = tmp_path_factory.mktemp("backbone")
    tokenizer = train_tokenizer(["the screen is fine and lovely", "a dull, broken and sad thing"] * 20, 300)
    save_tokenizer(tokenizer, folder)
    new_model(replace(size_named("tiny"), vocabulary=tokenizer.get_vocab_size()), seed=0).save_pretrained(folder)
    return folder


def write_task(folder: Path, description: dict, rows: dict[str, list[dict]]) -> Path:
    folder.mkdir(parents=True)
    (folder / "task.json").write_text(json.dumps(description), encoding="utf-8")
    for split, lines in rows.items():
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("tasks")
    things = {"train": ["screen", "fan", "lid"], "valid": ["key", "lamp"], "test": ["door", "cup"]}
    pairs = {
        split: [
            {"text": f"the {thing} is {word}", "pair": thing, "label": label}
            for thing in names for label, words in ADJECTIVES.items() for word in words
        ]
        for split, names in things.items()
    }  # fmt: skip
    tags = {
        split: [{"tokens": ["the", thing, "is", "dull"], "tags": ["O", "B-THING", "O", "O"]} for thing in names]
        for split, names in things.items()
    }
    return {
        "laptops": write_task(root / "laptops", {"name": "laptops", "kind": "classification"}, pairs),
        "things": write_task(root / "things", {"name": "things", "kind": "tagging"}, tags),
    }


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, backbone: Path, folders: dict[str, Path]) -> Path:
    """A store that learnt both tasks through the command line."""
    path = tmp_path_factory.mktemp("learnt") / "store"
    first = read("learn", path, folders["laptops"], "--backbone", backbone, *SHORT)
    assert first["name"] == "laptops" and first["steps"] == 6 and first["bytes"] > 0 and "accuracy" in first["scores"]
    assert "learnt things: " in run("learn", path, folders["things"], *SHORT).stdout
    return path


def test_tasks_in_the_order_learnt(store: Path):
    found = read("tasks", store)["tasks"]
    assert [(info["name"], info["kind"]) for info in found] == [("laptops", "classification"), ("things", "tagging")]
    assert 0.0 < found[0]["open_gates"] < 1.0 and found[0]["gate_bytes"] > 0


def test_predict(store: Path):
    answers = read("predict", store, "laptops", "-", "--pair", "lid", given="the lid is fine\nthe lid is sad\n")[
        "answers"
    ]
    assert len(answers) == 2 and {answer["answer"] for answer in answers} <= {"good", "bad"}
    assert len(run("predict", store, "things", "the lid is  fine").stdout.split()) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["laptop", "x", "--pair", "y"], "did you mean 'laptops'"),
        (["laptops", "no second field"], "pair"),
        (["things", "one text", "--pair", "only"], "things"),
        (["things", "  "], "things"),
    ],
)
def test_predict_refuses_what_it_cannot_answer(store: Path, arguments: list[str], message: str):
    result = run("predict", store, *arguments, status=2)
    assert message in result.stderr and result.stderr.startswith("error: ") and result.stdout == ""


def test_evaluate(store: Path, folders: dict[str, Path], tmp_path: Path):
    assert 0.0 <= read("evaluate", store, folders["laptops"])["scores"]["accuracy"] <= 100.0
    other = write_task(
        tmp_path / "other",
        {"name": "other", "kind": "classification"},
        {split: [{"text": f"{split} {label}", "pair": "lid", "label": label} for label in ("good", "odd")]
         for split in ("train", "valid", "test")},
    )  # fmt: skip
    assert "'odd'" in run("evaluate", store, other, "--as", "laptops", status=2).stderr
    assert "'other'" in run("evaluate", store, other, status=2).stderr


def test_verify(store: Path):
    found = read("verify", store)
    assert found["ok"] and [task["status"] for task in found["tasks"]] == ["equal", "equal"]
    assert "0 changed or damaged" in run("verify", store, "things").stdout
    assert "did you mean 'things'" in run("verify", store, "thing", status=2).stderr


def test_the_plan_changes_nothing(store: Path, folders: dict[str, Path], backbone: Path, tmp_path: Path):
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file() and path.name != "lock"}
    plan = read("learn", store, folders["laptops"], "--new-version", "--dry-run", *SHORT)
    assert plan["steps"] == 6 and plan["seconds"] >= 0 and plan["gate_bytes"] > 0
    assert before == {path: path.read_bytes() for path in store.rglob("*") if path.is_file() and path.name != "lock"}
    new = tmp_path / "new"
    assert "seconds" in run("learn", new, folders["things"], "--backbone", backbone, "--dry-run", *SHORT).stdout
    assert not new.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--new-version"),
        (["--method", "supsup"], "method"),
        (["--backbone", "other"], "backbone"),
        (["--seed", "5"], "seed"),
        (["--set", "batch_sise=3"], "did you mean 'batch_size'"),
        (["--set", "batch_size=many"], "batch_size"),
        (["--preset", "paper"], "preset"),
        (["--device", "abacus"], "abacus"),
    ],
)
def test_learn_refuses(store: Path, folders: dict[str, Path], options: list[str], message: str):
    before = (store / "index.json").read_bytes()
    result = run("learn", store, folders["laptops"], *options, status=2)
    assert message in result.stderr and result.stderr.splitlines()[-1].startswith("error: ")
    assert (store / "index.json").read_bytes() == before


def test_a_damaged_task_is_named_and_the_rest_served(store: Path, tmp_path: Path):
    from shutil import copytree

    copy = Path(copytree(store, tmp_path / "copy"))
    file = sorted((copy / "tasks").glob("*.safetensors"))[0]
    file.chmod(0o644)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    found = read("verify", copy, status=1)
    assert not found["ok"] and "damaged" in {task["status"] for task in found["tasks"]}
    broken = [task["name"] for task in found["tasks"] if task["status"] == "damaged"]
    assert broken and all(name in run("predict", copy, name, "the lid", status=2).stderr for name in broken)


def test_new_version(store: Path, folders: dict[str, Path], tmp_path: Path):
    from shutil import copytree

    copy = Path(copytree(store, tmp_path / "copy"))
    run("learn", copy, folders["things"], "--new-version", *SHORT)
    assert {info["name"]: info["version"] for info in read("tasks", copy)["tasks"]} == {"laptops": 1, "things": 2}
