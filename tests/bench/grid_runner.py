"""Run a grid as a program, `grid_runner.py RUNS LIST`, and say each event on a line of standard output."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

if __name__ == "__main__":
    from small_grid import METHODS, small_grid

    from tss.bench.plan import make_plan
    from tss.bench.run import run_grid

    runs, listing, backbone = sys.argv[1:]
    plan = make_plan([listing], [0, 1], METHODS, [0])
    run_grid(
        plan,
        small_grid(Path(runs), backbone=backbone),
        listen=lambda cell, what, details: print(cell.key, what, details.get("task"), details.get("step"), flush=True),
    )
