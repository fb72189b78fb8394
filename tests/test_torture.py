"""The fault suite in its short form; `make torture` is the long one. Kills and disks have their own tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, str]:
    """What each goal found, by goal, and the table made of it."""
    results = tmp_path_factory.mktemp("results")
    goals = ["R1", "R4", "R5", "R6", "R7"]
    command = [sys.executable, "-m", "torture", *goals, "--form", "short", "--results", str(results)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert (results / "reliability.json").exists(), done.stderr
    return json.loads((results / "reliability.json").read_text()), (results / "reliability.md").read_text()


@pytest.mark.parametrize(
    ("goal", "least"),
    [
        ("R1", {"comparisons": 15}),
        ("R4", {"mutated": 200, "attacks": 50}),
        ("R5", {"cases": 150, "api": 150, "command line": 100, "http": 60}),
        ("R6", {"names": 200, "kept and read back": 50}),
        ("R7", {"acknowledged": 4, "rounds of reading": 4}),
    ],
)
def test_goal(told: tuple[dict, str], goal: str, least: dict[str, int]):
    found = told[0][f"{goal} short"]
    assert (found["problems"], found["verdict"]) == ([], "reached")
    assert all(found["numbers"][key] >= number for key, number in least.items()), found["numbers"]
    assert f"| {goal} " in told[1] and "--results" not in found["command"]


def test_a_missed_goal_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from torture.form import Told, as_document
    from torture.table import write_table

    told = Told("nothing")
    assert told.verdict == "reached"
    told.whole = False
    assert told.verdict == "no fault found, not all done"
    assert not told.check(False, "it broke | badly") and told.verdict == "MISSED"
    write_table({"R2 short": {**as_document(told), "seconds": 1.0, "command": "x"}}, tmp_path / "table.md")
    assert (
        "MISSED" in (tmp_path / "table.md").read_text()
        and "- R2 short: it broke | badly" in (tmp_path / "table.md").read_text()
    )
