"""A small grid on the CPU: 2 families x 3 tasks x 4 methods on bart-nano; the goal is below 5 minutes on 2 cores.

    python benchmarks/smoke_grid.py DATA        # what `tss data prepare` wrote

Prints one line of JSON: seconds in all, cells, tasks learnt, failures. The scores are of a few steps and mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tss.bench.cell import Grid
from tss.bench.collect import read_runs
from tss.bench.plan import make_plan
from tss.bench.run import run_grid
from tss.bench.table import tables

FAMILIES = ("asc", "drg")
METHODS = ("tss", "supsup", "ncl-adapter", "mtl-adapter")
TASKS, TESTS, GOAL = 3, 40, 300
OPTIONS = {"max_steps": 40, "eval_steps": 20, "dev_examples": 40, "batch_size": 16}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1))
    given = parser.parse_args(arguments)
    started = time.perf_counter()
    plan = make_plan(FAMILIES, [0], METHODS, [0], TASKS)
    with tempfile.TemporaryDirectory(prefix="smoke-grid-") as runs:
        grid = Grid(runs, str(given.data), "bart-nano", options=OPTIONS, device="cpu", limit_test=TESTS, first=TASKS)
        finished = run_grid(plan, grid, given.jobs)
        learnt = sum(len(run.lines) for run in read_runs(runs).runs)
        printed = len(tables(read_runs(runs)))
    seconds = round(time.perf_counter() - started, 1)
    found = {"seconds": seconds, "goal": GOAL, "jobs": given.jobs, "cells": len(finished.done), "tasks": learnt}
    print(json.dumps({**found, "tables": printed, "failed": finished.failed}))
    return 1 if finished.failed else 0


if __name__ == "__main__":
    sys.exit(main())
