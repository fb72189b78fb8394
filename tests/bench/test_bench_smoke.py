"""The smoke grid, as users start it: real tasks, bart-nano, on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "smoke_grid.py"


@pytest.mark.slow
def test_the_smoke_grid_takes_less_than_five_minutes(shared: Path, capsys: pytest.CaptureFixture[str]):
    data = shared / "data" / "prepared"
    ended = subprocess.run([sys.executable, str(SCRIPT), str(data)], capture_output=True, text=True, encoding="utf-8")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads(ended.stdout)
    with capsys.disabled():
        print(f"\nsmoke grid: {found['seconds']} s for {found['tasks']} tasks in {found['cells']} cells")
    # Two methods with a cell a family, one with a cell a task, one with a cell a family for all tasks together.
    assert found["failed"] == {} and found["cells"] == 2 + 6 + 2 + 2 and found["tasks"] == 4 * 6
    assert found["seconds"] < found["goal"]
