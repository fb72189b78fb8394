"""What a grid was asked for and has not, planned with the settings that each method's cells in it were run with.

Settings are read from the cells' own headers, so that nobody has to remember them, and what comes back fits the grid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from statistics import fmean
from typing import Any

from tss.bench.collect import Run, Runs
from tss.bench.plan import Asked, Cell, Plan, plan_of
from tss.errors import ConfigError, nearest

Wanted = Mapping[str, Sequence[Any]]  # "methods", "sequences", "orders": these alone; nothing: all


def missing(runs: Runs, wanted: Wanted | None = None, triangle: bool = True) -> Plan:
    """The cells that are not in the runs, or not to their end: of all that was asked for, or of what is wanted.

    A method that cannot learn all tasks of a sequence (LAMOL: the mixed one, as in the paper) lacks nothing there.
    Raises ConfigError for what the grid was never asked for.
    """
    asked = [_asked(key, tasks) for key, tasks in runs.grid["asked"].items()]
    methods = _chosen("method", runs.grid["methods"], wanted, "methods")
    names = _chosen("sequence", [one.sequence for one in asked], wanted, "sequences")
    orders = _chosen("order", [one.order for one in asked], wanted, "orders")
    asked = [one for one in asked if one.sequence in names and one.order in orders]
    plan = plan_of(asked, methods, runs.grid["seeds"], triangle)
    done = {run.header["cell"] for run in runs.runs if run.whole}
    every = {(one.sequence, one.order): set(one.tasks) for one in asked}

    def lacks(cell: Cell) -> bool:
        return cell.key not in done and every.get((cell.sequence, cell.order), set(cell.tasks)) == set(cell.tasks)

    return replace(plan, cells=tuple(cell for cell in plan.cells if lacks(cell)))


def _asked(key: str, tasks: Sequence[str]) -> Asked:
    sequence, _, order = key.rpartition("/")
    return Asked(sequence, int(order), tuple(tasks))


def _chosen(what: str, known: Sequence[Any], wanted: Wanted | None, key: str) -> list[Any]:
    known, chosen = list(dict.fromkeys(known)), list((wanted or {}).get(key, ()))
    for one in chosen:
        if one not in known:
            raise ConfigError(
                f"the grid was not asked for {what} {one!r}{nearest(str(one), [str(each) for each in known])}; "
                "`tss bench run` runs what is new"
            )
    return chosen or known


def settings(runs: Runs, plan: Plan) -> dict[str, dict[str, Any]]:
    """Of each method of the plan's cells, the options that its cells in the runs have and its preset has not.

    Options that the method has no longer are left out. Raises ConfigError for a method without a cell there, and where
    cells of the sequences in question were run with several settings.
    """
    found = {}
    for method in dict.fromkeys(cell.method for cell in plan.cells):
        those = [run for run in runs.runs if run.header["method"] == method]
        if not those:
            raise ConfigError(f"{method} has no cell in the grid that would tell its settings; `tss bench run` runs it")
        names = {cell.sequence for cell in plan.cells if cell.method == method}
        near = [run for run in those if run.header["sequence"] in names] or those
        kinds = [run.options(runs.grid["settings"]["preset"]) for run in near]
        if differing := {key for one in kinds for key in one if any(one[key] != other.get(key) for other in kinds)}:
            raise ConfigError(
                f"cells of {method} were run with several values of {', '.join(sorted(differing))}; "
                "choose one with `tss bench run --set`, or narrow what is completed (--sequences)"
            )
        found[method] = kinds[0]
    return found


def seconds(runs: Sequence[Run], cells: Sequence[Cell]) -> float:
    """Of training them, as whole cells of the same method and sequence took; infinite where none was run."""
    took: dict[tuple[str, str], list[float]] = {}
    for run in (one for one in runs if one.whole):
        key = run.header["method"], run.header["sequence"]
        took.setdefault(key, []).append(sum(run.seconds))
    known = [took.get((cell.method, cell.sequence)) for cell in cells]
    return sum(inf if one is None else fmean(one) for one in known)


def told(plan: Plan, runs: Runs) -> list[list[str]]:
    """A row a method, cheapest first: its cells, their seconds ("?" where nothing tells), orders by sequence."""
    each: dict[str, list[Cell]] = {}
    for cell in plan.cells:
        each.setdefault(cell.method, []).append(cell)
    cost = {method: seconds(runs.runs, cells) for method, cells in each.items()}
    rows = []
    for method in sorted(each, key=lambda one: cost[one]):
        orders: dict[str, list[str]] = {}
        for cell in each[method]:
            orders.setdefault(cell.sequence or "any order", []).append(str(cell.order) if cell.sequence else cell.key)
        which = "; ".join(f"{sequence} {', '.join(some)}" for sequence, some in orders.items())
        rows.append([method, str(len(each[method])), "?" if cost[method] == inf else f"{cost[method]:.0f}", which])
    return rows
