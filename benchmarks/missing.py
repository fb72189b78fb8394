"""What a grid lacks to have every method in every sequence and order, and about how long that trains, cheapest first.

    python benchmarks/missing.py results/raw/grid.jsonl.xz

A line a method: the orders to be run, by sequence, and the seconds that cells of the same method and sequence took to
train on average; tests come on top. "?" where none has been run. A method that cannot learn all tasks of a sequence
(LAMOL: the mixed one, as in the paper) lacks nothing there.
`tss bench run --lacking results/raw/grid.jsonl.xz …` runs them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from math import inf
from pathlib import Path
from statistics import fmean

from tss.bench.collect import Run, Runs, lacking, read_runs
from tss.bench.plan import Cell, make_plan
from tss.data.sequences import ORDERS, SEQUENCES, sequence
from tss.methods import METHODS


def missing(runs: Sequence[Run], methods: Sequence[str]) -> dict[str, list[Cell]]:
    """By method, the cells that are not in the runs, or not to their end."""
    plans = {method: make_plan(SEQUENCES, ORDERS, [method], [0]) for method in methods}
    found = {method: lacking(plan, Runs({}, list(runs))).cells for method, plan in plans.items()}
    rows = {method: [cell for cell in cells if _whole(cell)] for method, cells in found.items()}
    return {method: cells for method, cells in rows.items() if cells}


def _whole(cell: Cell) -> bool:
    return not cell.sequence or set(cell.tasks) == set(sequence(cell.sequence, cell.order))


def seconds(runs: Sequence[Run], cells: Sequence[Cell]) -> float:
    """Of training them one after another; infinite where there is nothing to tell by."""
    took: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        key = run.header["method"], run.header["sequence"]
        took.setdefault(key, []).append(sum(line["facts"].get("seconds", 0.0) for line in run.lines))
    known = [took.get((cell.method, cell.sequence)) for cell in cells]
    return sum(inf if one is None else fmean(one) for one in known)


def table(runs: Sequence[Run], methods: Sequence[str] = tuple(METHODS)) -> list[str]:
    found = missing(runs, methods)
    cost = {method: seconds(runs, cells) for method, cells in found.items()}
    lines = []
    for method in sorted(found, key=lambda one: cost[one]):
        orders: dict[str, list[str]] = {}
        for cell in found[method]:
            orders.setdefault(cell.sequence or "any order", []).append(str(cell.order) if cell.sequence else cell.key)
        told = "; ".join(f"{sequence} {', '.join(each)}" for sequence, each in orders.items())
        lines.append(f"{method}: {'?' if cost[method] == inf else round(cost[method])} s for {told}")
    known = [one for one in cost.values() if one < inf]
    return [*lines, f"{sum(map(len, found.values()))} cells; {round(sum(known))} s of training where it can be told"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="a folder of runs, or a packed file")
    print("\n".join(table(read_runs(parser.parse_args().runs).runs)))


if __name__ == "__main__":
    main()
