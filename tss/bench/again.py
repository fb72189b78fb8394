"""A cell of a grid run once more from what its log says of it, and both compared task by task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from tss.bench.cell import Backbones, Grid, run_cell
from tss.bench.collect import Run, Runs
from tss.bench.plan import Cell
from tss.bench.sequence import Line, Told, read_header, read_log
from tss.config import resolve
from tss.errors import TssError, nearest
from tss.learning.progress import Watch


@dataclass(frozen=True)
class Twice:
    """One task of both runs. then, now: its score after the last task that both have. same: also what led there."""

    task: str
    family: str
    then: float
    now: float
    same: bool


def find(runs: Runs, cell: str) -> Run:
    """Raises TssError with the nearest name."""
    for run in runs.runs:
        if run.header["cell"] in (cell, f"{cell}.s0"):
            return run
    names = [run.header["cell"].removesuffix(".s0") for run in runs.runs]
    raise TssError(f"there is no cell {cell!r} among {len(names)}{nearest(cell, names)}")


def gone(run: Run) -> list[str]:
    """Options that its log names and its method has no longer; a run of today goes without them."""
    known = resolve(run.header["method"], run.header["preset"]).flat()
    return [f"{key}={value}" for key, value in run.header["config"].items() if key not in known]


def again(
    run: Run,
    runs: Path,
    data: str,
    *,
    backbone: str = "",
    device: str | None = None,
    first: int = 0,
    watch: Watch | None = None,
    told: Told | None = None,
) -> list[Twice]:
    """Learn the cell's tasks (or the first few) in a new folder, with its settings, and compare.

    backbone: where it is, if not known by its name. Raises TssError where tasks or backbone are others than then.
    """
    head = run.header
    tasks = tuple(task["ref"] for task in head["tasks"][: first or None])
    cell = Cell(head["cell"], head["method"], head["seed"], tasks, head["sequence"], head["order"], head["triangle"])
    grid = Grid(
        str(runs), data, backbone or head["backbone"], head["preset"], head["config"], device, head["limit_test"]
    )
    run_cell(cell, grid, Backbones(), watch, told)
    found = read_header(grid.log(cell)) or {}
    for key, then, now in (
        ("tasks", head["tasks"][: len(tasks)], found["tasks"]),
        ("backbone", head["backbone_hash"], found["backbone_hash"]),
    ):
        if then != now:
            raise TssError(f"{head['cell']} was run with other {key} than those found here; nothing can be compared")
    return compared(run, read_log(grid.log(cell)))


def compared(run: Run, lines: Sequence[Line]) -> list[Twice]:
    """The tasks that both have, in order."""
    both = list(zip(run.lines, lines, strict=False))
    whole = len(lines) == len(run.lines)
    then, now = (line["row"] if whole else [None] * len(both) for line in (run.lines[-1], lines[-1]))
    out = []
    for i, (old, new) in enumerate(both):
        before, after = _score(old, then[i]), _score(new, now[i])
        same = old["curve"] == new["curve"] and before == after
        out.append(Twice(old["task"], run.header["tasks"][i]["family"], before, after, same))
    return out


def _score(line: Line, last: float | None) -> float:
    """After the last task where that was tested; else when it was learnt."""
    return float(next(iter(line["scores"].values())) if last is None else last)


def by_family(found: Sequence[Twice]) -> dict[str, list[Twice]]:
    return {family: [one for one in found if one.family == family] for family in dict.fromkeys(t.family for t in found)}


def apart(found: Sequence[Twice]) -> float:
    """Points between the two means."""
    return fmean(one.now for one in found) - fmean(one.then for one in found)
