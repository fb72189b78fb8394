"""The command line by itself: help, errors, exit status, JSON. A stand-in takes the place of the learner."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from stand_in import StandIn, run

from tss.cli.options import settings
from tss.cli.show import duration, printable, size
from tss.errors import ConfigError, LockedError

SOURCE_OF_HELP = """
import sys
from tss.cli import app
sys.argv = ["tss", "--help"]
try:
    app()
finally:
    print("torch" in sys.modules)
"""


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
