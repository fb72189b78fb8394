"""Two packed grids beside each other: the tasks that the same cells of both have learnt, their mean scores by family.

    python benchmarks/beside.py results/width/plus128.jsonl.xz results/raw/grid.jsonl.xz

For a change of settings that was not run to the end: scores of tasks when just learnt, the first file's first, their
mean difference and its standard error over the tasks, and how many tasks have equal scores. A cell is named by method,
sequence, order and seed. `--dev`: the best dev scores instead, by which changes are judged; `--orders 3,4` of some.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path
from statistics import fmean, stdev

from tss.bench.collect import Runs, read_runs
from tss.bench.sequence import Line

Scores = dict[tuple[str, str], float]  # by cell and task


def scores(runs: Runs, dev: bool = False, orders: Collection[int] = ()) -> Scores:
    return {
        (run.header["cell"], line["task"]): best(line) if dev else next(iter(line["scores"].values()))
        for run in runs.runs
        for line in run.lines
        if not orders or run.header["order"] in orders
    }


def best(line: Line) -> float:
    """The dev score of the state that was kept; minus the dev loss where that decides."""
    return max(score for _, _, score in line["curve"] if score is not None)


def table(first: Scores, second: Scores) -> list[str]:
    """A line for each sequence and family, and how many tasks it rests on."""
    groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for cell, task in first:
        if (cell, task) in second:
            group = cell.rsplit(".o", 1)[0], task.split("/")[0]
            groups.setdefault(group, []).append((first[cell, task], second[cell, task]))
    out = []
    for (cell, family), pairs in sorted(groups.items()):
        apart = [a - b for a, b in pairs]
        error = f" (standard error {stdev(apart) / len(apart) ** 0.5:.2f})" if len(apart) > 1 else ""
        means = f"{fmean(a for a, _ in pairs):.2f} against {fmean(b for _, b in pairs):.2f}"
        equal = sum(a == b for a, b in pairs)
        out.append(f"{cell} {family}, {len(pairs)} tasks: {means}, {fmean(apart):+.2f}{error}, {equal} equal")
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--dev", action="store_true")
    parser.add_argument("--orders", default="", help="only these, with commas between")
    args = parser.parse_args()
    orders = [int(order) for order in args.orders.split(",") if order]
    print("\n".join(table(*(scores(read_runs(path), args.dev, orders) for path in (args.first, args.second)))))


if __name__ == "__main__":
    main()
