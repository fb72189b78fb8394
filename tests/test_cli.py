"""The command line by itself: help, errors, exit status, JSON. A stand-in takes the place of the learner."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from typer.testing import CliRunner

from tss.cli import app
from tss.cli.options import settings
from tss.cli.show import duration, printable, size
from tss.errors import ConfigError, LockedError, StoreError, UnknownTaskError
from tss.methods import METHODS

SOURCE_OF_HELP = """
import sys
from tss.cli import app
sys.argv = ["tss", "--help"]
try:
    app()
finally:
    print("torch" in sys.modules)
"""


@dataclass(frozen=True)
class Info:
    name: str = "reviews"
    version: int = 1
    kind: str = "classification"
    bytes: int = 14_200
    gate_bytes: int = 12_000
    open_gates: float | None = 0.5
    scores: dict[str, float] = field(default_factory=lambda: {"accuracy": 87.5})
    beside: tuple[str, ...] = ()


@dataclass(frozen=True)
class Check:
    name: str
    status: str
    detail: str = "8 of 8 equal"
    outputs: int = 8
    same_environment: bool = True


@dataclass(frozen=True)
class Learned:
    name: str = "reviews"
    scores: dict[str, float] = field(default_factory=lambda: {"accuracy": 87.5, "macro_f1": float("nan")})
    seconds: float = 75.0
    steps: int = 200
    bytes: int = 14_200
    gate_bytes: int = 12_000
    open_gates: float | None = 0.5
    warnings: tuple[str, ...] = ("the sub-network is full",)
    resumed: bool = False


class StandIn:
    """Answers as a learner does and remembers what it was asked."""

    def __init__(self) -> None:
        self.opened: dict[str, object] = {}
        self.inputs: list[object] = []
        self.infos = [Info(), Info(name="entities", kind="tagging")]
        self.checks = [Check("reviews", "equal")]
        self.raises: BaseException | None = None

    def open(self, store: Path, create: bool = True, **options: object) -> StandIn:
        if not create and not Path(store).exists():
            raise StoreError(f"{store} does not exist")
        self.opened = {"store": store, **options}
        return self

    def learn(self, task, *, new_version=False, progress=None) -> Learned:
        if self.raises:
            raise self.raises
        if progress:
            progress(SimpleNamespace(task=task.name, step=1, steps=2, loss=0.5, dev=0.25, best=0.25, phase="learning"))
        return Learned(name=task.name)

    def plan(self, task) -> dict[str, object]:
        return {"steps": 200, "seconds": 75.0, "bytes": 14_200}

    def predict(self, name, inputs, details=False) -> list[dict[str, object]]:
        if name not in [info.name for info in self.infos]:
            raise UnknownTaskError(f"no task {name!r}; did you mean 'reviews'?")
        self.inputs = inputs
        if name == "entities":
            return [{"answer": ["O"] * len(text.split()), "truncated": False} for text in inputs]
        return [{"answer": "yes", "confidence": 0.9, "truncated": len(str(one)) > 50} for one in inputs]

    def evaluate(self, task, name=None) -> dict[str, float]:
        return {"accuracy": 75.0}

    def tasks(self) -> list[Info]:
        return self.infos

    def verify(self, names=None, progress=None) -> list[Check]:
        return self.checks


@pytest.fixture
def learner(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn()
    module = ModuleType("tss.learner")
    module.Learner = stand_in  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tss.learner", module)
    return stand_in


@pytest.fixture
def store(tmp_path: Path) -> str:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "index.json").write_text("{}")
    return str(tmp_path / "store")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small task as a user would write it."""
    path = tmp_path / "reviews"
    path.mkdir()
    (path / "task.json").write_text(json.dumps({"name": "reviews", "kind": "classification"}))
    for split in ("train", "valid", "test"):
        rows = [{"text": f"a {word} one for {split} {i}", "label": word} for word in ("good", "bad") for i in range(4)]
        (path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(*arguments: object, given: str | bytes = "", status: int = 0, columns: int = 60):
    """The result of `tss ARGUMENTS` in a terminal of 60 columns."""
    environment = {"COLUMNS": str(columns)}
    result = CliRunner().invoke(
        app, [str(a) for a in arguments], input=given, env=environment, terminal_width=columns, prog_name="tss"
    )
    assert result.exit_code == status, result.output
    return result


COMMANDS = ["demo", "learn", "predict", "evaluate", "tasks", "verify", "methods", "report"]
COMMANDS += ["export", "import", "rollback", "remove", "gc"]
GROUPED = ["data prepare", "data check", "backbone list", "backbone pretrain"]


@pytest.mark.parametrize("command", ["", *COMMANDS, *GROUPED])
def test_help_teaches_in_sixty_columns(command: str):
    text = run(*command.split(), "--help").stdout
    assert max(map(len, text.splitlines())) <= 60
    assert f"  tss {command}".rstrip() in text, "each help ends with an example"


def test_the_help_of_tss_names_every_command():
    text = run("--help").stdout
    for command in [*COMMANDS, "data", "backbone"]:
        assert f"\n  {command} " in text


def test_help_does_not_import_torch():
    for arguments in (["-c", SOURCE_OF_HELP], ["-X", "importtime", "-m", "tss", "--help"]):
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=True)
        assert "Usage:" in done.stdout
        assert "| torch" not in done.stderr and "True" not in done.stdout


def test_version():
    import tss

    assert run("--version").stdout == f"tss {tss.__version__}\n"


@pytest.mark.parametrize("arguments", [["lern"], ["learn", "--sed", "3", "s", "f"], ["demo", "--seed", "x"]])
def test_a_mistyped_command_or_option(arguments: list[str]):
    assert "Traceback" not in run(*arguments, status=2).output


def test_settings():
    assert settings(["steps=300", "rate=1e-3", "name=a=b", "on=true", "of=[1, 2]", "empty="]) == {
        "steps": 300, "rate": 1e-3, "name": "a=b", "on": True, "of": [1, 2], "empty": ""
    }  # fmt: skip
    assert settings(None) is None


@pytest.mark.parametrize("pairs", [["steps"], ["=3"], ["steps=1", "steps=2"]])
def test_settings_that_are_none(pairs: list[str]):
    with pytest.raises(ConfigError):
        settings(pairs)


def test_learn(learner: StandIn, folder: Path, tmp_path: Path):
    result = run(
        "learn", tmp_path / "new", folder, "--set", "max_steps=300", "--method", "tss", "--seed", 3, columns=200
    )
    assert result.stdout == "learnt reviews: accuracy 87.50, macro_f1 nan\n200 steps in 1 min 15 s, 14.2 kB on disk\n"
    assert "reviews: learning 1/2, loss 0.500, dev 0.25" in result.stderr
    assert "warning: the sub-network is full" in result.stderr
    assert learner.opened == {
        "store": tmp_path / "new", "backbone": None, "method": "tss", "device": None, "config": {"max_steps": 300},
        "preset": None, "seed": 3,
    }  # fmt: skip


def test_the_progress_bar_fits_a_terminal(learner: StandIn, folder: Path, store: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", run("learn", store, folder).stderr)
    bar = next(line for line in re.split(r"[\r\n]+", shown) if "loss" in line)
    assert bar.startswith("reviews") and "1/2 loss 0.500 dev 0.25" in bar
    assert len(bar) <= 60


def test_learn_as_json(learner: StandIn, folder: Path, store: str):
    found = json.loads(run("learn", store, folder, "--json").stdout)
    assert found["name"] == "reviews" and found["steps"] == 200
    assert found["scores"] == {"accuracy": 87.5, "macro_f1": None}, "JSON has no NaN"


def test_a_plan_for_a_new_store_does_not_make_one(learner: StandIn, folder: Path, tmp_path: Path):
    run("learn", tmp_path / "new", folder, "--dry-run")
    assert not (tmp_path / "new").exists() and learner.opened["store"] != tmp_path / "new"


def test_dry_run(learner: StandIn, folder: Path, store: str):
    learner.raises = AssertionError("it must not learn")
    text = run("learn", store, folder, "--dry-run").stdout
    assert "1 min 15 s" in text and "14.2 kB" in text and "200" in text
    assert json.loads(run("learn", store, folder, "--dry-run", "--json").stdout) == learner.plan(None)


def test_a_bad_row_stops_or_is_skipped(learner: StandIn, folder: Path, store: str):
    with (folder / "train.jsonl").open("a") as file:
        file.write("{broken\n")
    result = run("learn", store, folder, status=2)
    assert result.stderr.startswith("error: ") and "train.jsonl" in result.stderr and "9" in result.stderr
    assert result.stdout == "" and "Traceback" not in result.output
    assert "warning: " in run("learn", store, folder, "--on-error", "skip").stderr


def test_a_folder_that_is_not_there(learner: StandIn, store: str):
    result = run("learn", store, "nowhere", status=2)
    assert result.stderr.startswith("error: ") and "nowhere" in result.stderr


def test_an_error_is_one_line_and_status_2(learner: StandIn, folder: Path, store: str):
    learner.raises = LockedError("another process is writing")
    result = run("learn", store, folder, "--json", status=2)
    assert (result.stdout, result.stderr) == ("", "error: another process is writing\n")


def test_control_c(learner: StandIn, folder: Path, store: str):
    learner.raises = KeyboardInterrupt()
    assert run("learn", store, folder, status=130).stderr == "stopped; run the same command to go on\n"


def test_a_bug_keeps_its_traceback(learner: StandIn, folder: Path, store: str):
    learner.raises = ZeroDivisionError("ours")
    assert isinstance(run("learn", store, folder, status=1).exception, ZeroDivisionError)


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


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path):
    source = (
        "import sys, types, tss.cli\n"
        "import typer\n"
        "@tss.cli.app.command()\n"
        "def shout(): print('x' * 10_000_000)\n"
        "sys.argv = ['tss', 'shout']\n"
        "tss.cli.main()\n"
    )
    program = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert program.stdout is not None and program.stderr is not None
    program.stdout.read(10)
    program.stdout.close()
    assert program.stderr.read() == b""
    assert program.wait(timeout=60) == 1
    program.stderr.close()


def test_data_commands_want_one_source(tmp_path: Path):
    assert "--raw" in run("data", "prepare", "--out", tmp_path / "out", status=2).stderr
    assert "no prepared data" in run("data", "check", tmp_path, status=2).stderr
    assert "did you mean 'asc'" in run(
        "data", "prepare", "--raw", tmp_path, "--out", tmp_path / "out", "--family", "asx", status=2
    ).stderr  # fmt: skip


def test_report_of_what_is_no_run(tmp_path: Path):
    (tmp_path / "run.json").write_text("{")
    assert "is not a run document" in run("report", tmp_path / "run.json", status=2).stderr
    assert "No such file" in run("report", tmp_path / "none.json", status=2).stderr


def test_numbers_for_people():
    assert [size(n) for n in (0, 999, 1000, 14_200, 3_100_000, 5 * 10**12)] == [
        "0 B", "999 B", "1.0 kB", "14.2 kB", "3.1 MB", "5000.0 GB"
    ]  # fmt: skip
    assert [duration(s) for s in (0.24, 9.96, 59.6, 75, 3599.7, 7500)] == [
        "0.2 s", "10.0 s", "1 min 00 s", "1 min 15 s", "1 h 00 min", "2 h 05 min"
    ]  # fmt: skip
    assert printable("é ü\n\x07") == "é ü\n\\x07"


def test_methods(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torch")
    from tiny import tiny_path

    from tss.learning.footprint import Footprint

    tiny = str(tiny_path("bart"))
    found = {one["name"]: one for one in json.loads(run("methods", "--backbone", tiny, "--json").stdout)["methods"]}
    assert list(found) == list(METHODS)
    assert found["lamol"]["kinds"] == ["classification", "generation"] and found["mtl"]["forgets"] is None
    assert all((Path(__file__).parents[1] / one["page"]).is_file() for one in found.values())
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
