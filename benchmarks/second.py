"""What second readings give: the tests of every task of a grid's stores, with what was read beside and without.

    tss bench run --data DATA --out RUNS --methods tss+ --sequences asc --set second=true …
    python benchmarks/second.py RUNS --data DATA --out results/second/cpu.jsonl
    python benchmarks/second.py --lines results/second/cpu.jsonl

A second reading changes neither the gates nor the head of a task (a test shows it), so one training gives both columns.
A line a task: its cell, who reads beside it, and the answers to its tests, alone and together. Tasks without a second
reading have the same in both. Interval: tests drawn anew 1,000 times, the same ones for both columns and all orders.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ratio import one_thread

from tss import Learner
from tss.bench.examples import resampled, test
from tss.data.sequences import load_task
from tss.tasks.task import Task

COLUMNS = ("alone", "together")
Line = dict[str, Any]


def measured(learner: Learner, task: Task) -> Line:
    ready = learner.ready(task.name)
    together = test(learner, task)[1]
    ready.lesson.company = ()
    alone = test(learner, task)[1]
    return {
        "task": task.name,
        "beside": [one.record.name for one in ready.others],
        "alone": alone,
        "together": together,
    }


def table(lines: Sequence[Line]) -> list[str]:
    """A line for each cell, and one for all cells of a family."""
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(line["cell"], []).append(line)
    for line in lines:
        groups.setdefault(f"{line['task'].split('/')[0]}, all", []).append(line)
    return [_row(name, group) for name, group in groups.items()]


def _row(name: str, group: Sequence[Line]) -> str:
    alone, together = (np.mean([resampled(one["task"], one[column]) for one in group], axis=0) for column in COLUMNS)
    low, high = np.percentile((together - alone)[1:], [2.5, 97.5])
    right = [f"{_right(group, column):.1f} % right {column}" for column in COLUMNS]
    told = f"{name}: {len(group)} tasks, {sum(bool(one['beside']) for one in group)} read twice"
    means = f"macro-F1 {alone[0]:.2f} alone, {together[0]:.2f} together"
    return f"{told}; {means} ({together[0] - alone[0]:+.2f}, {low:+.2f} to {high:+.2f}); {', '.join(right)}"


def _right(group: Sequence[Line], column: str) -> float:
    """Per cent of all answers taken together."""
    parts = [(one[column]["predicted"], one[column]["gold"]) for one in group]
    return 100 * float(np.mean([a == b for predicted, gold in parts for a, b in zip(predicted, gold, strict=True)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="?", help="a folder that `tss bench run` wrote to")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, help="where the lines go")
    parser.add_argument("--lines", type=Path, help="print what these lines say; nothing is run")
    args = parser.parse_args()
    if args.lines is None:
        if not (args.runs and args.data and args.out):
            parser.error("give a folder of runs with --data and --out, or --lines")
        one_thread()
        with args.out.open("w", encoding="utf-8") as out:
            for store in sorted((args.runs / "stores").iterdir()):
                learner = Learner.open(store, create=False)
                for info in learner.tasks():
                    line = {"cell": store.name, **measured(learner, load_task(args.data, info.name))}
                    out.write(json.dumps(line) + "\n")
    lines = [json.loads(line) for line in (args.lines or args.out).read_text(encoding="utf-8").splitlines()]
    print("\n".join(table(lines)))


if __name__ == "__main__":
    main()
