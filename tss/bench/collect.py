"""From the lines of a folder of runs (or a packed one) to results: one method on one order of one sequence."""

from __future__ import annotations

import gzip
import json
import lzma
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tss.bench.compact import FORM, expanded, square
from tss.bench.examples import Columns
from tss.bench.plan import runs_as
from tss.bench.sequence import Line, entry_of, proof, seconds_of
from tss.config import resolve
from tss.errors import TssError
from tss.report.measures import Score

Scores = dict[str, float]


@dataclass
class Run:
    """The log of one cell."""

    header: dict[str, Any]
    lines: list[Line] = field(default_factory=list)
    overlap: list[list[float]] | None = None

    @property
    def whole(self) -> bool:
        return len(self.lines) == len(self.header["tasks"])

    @property
    def seconds(self) -> list[float]:
        """What learning each task took; tasks that were learnt together share their one training."""
        return seconds_of(self.lines, self.header["joint"])

    def options(self, preset: str) -> dict[str, Any]:
        """What its config has and the preset has not; options that the method has no longer are left out."""
        usual, config = resolve(self.header["method"], preset).flat(), self.header.get("config", {})
        return {key: value for key, value in config.items() if key in usual and value != usual[key]}


@dataclass(frozen=True)
class Runs:
    """All logs of a grid. grid: settings, asked orders of sequences, methods, seeds."""

    grid: dict[str, Any]
    runs: list[Run]


@dataclass(frozen=True)
class Result:
    """One method after one order of one sequence. Lists have an entry a task, in the order learnt; None: not run.

    matrix: A[k][i], only where every task was learnt. examples: columns of the test after the last task.
    """

    method: str
    label: str
    forgets: bool
    sequence: str
    order: int
    seed: int
    tasks: list[str]
    families: list[str]
    tests: list[int | None]
    diagonal: list[Scores | None]
    final: list[Scores | None]
    matrix: list[list[Score]]
    examples: list[Columns | None]
    shared: bool  # the same for every order
    entry: dict[str, Any]  # for the report
    proof: dict[str, int]


def read_runs(path: Path | str) -> Runs:
    """The runs in a folder, or in a file that `pack` made. Raises TssError if there are none."""
    path = Path(path)
    if path.is_dir():
        file = path / "grid.json"
        if not file.is_file():
            raise TssError(f"{path} is no folder of runs: there is no grid.json in it; `tss bench run` makes one")
        texts = [log.read_text(encoding="utf-8") for log in sorted(path.glob("*.jsonl"))]
        return Runs(json.loads(file.read_text(encoding="utf-8")), [run for text in texts for run in _parse(text)])
    opener: Any = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)
    try:
        with opener(path, "rt", encoding="utf-8") as packed:
            first, rest = json.loads(packed.readline()), packed.read()
        if first.get("form", 1) > FORM:
            raise TssError(f"{path} was packed by a later release; this one reads forms up to {FORM}")
        return Runs(first["grid"], _parse(rest, compact=first.get("form", 1) == FORM))
    except (OSError, EOFError, ValueError, KeyError, lzma.LZMAError) as problem:
        raise TssError(f"{path} is neither a folder of runs nor a packed one: {problem}") from problem


def together(parts: Sequence[Runs]) -> Runs:
    """Several grids as one. Of a cell in more than one of them the longest log stays, of equally long ones the last.

    Options may differ (each cell's header says its own); raises TssError if backbone, preset or test limits do.
    """
    first = parts[0].grid
    cells: dict[str, Run] = {}
    grid = {**first, "asked": {}, "methods": [], "seeds": []}
    for part in parts:
        for key, value in first["settings"].items():
            if key not in ("options", "each") and part.grid["settings"].get(key) != value:
                other = part.grid["settings"].get(key)
                raise TssError(f"one grid was made with {key} {value!r}, another with {other!r}: no one table")
        grid["asked"].update(part.grid["asked"])
        for key in ("methods", "seeds"):
            grid[key] = list(dict.fromkeys([*grid[key], *part.grid[key]]))
        for run in part.runs:
            there = cells.get(run.header["cell"])
            if there is None or len(run.lines) >= len(there.lines):
                cells[run.header["cell"]] = run
    return Runs(grid, list(cells.values()))


def _parse(text: str, compact: bool = False) -> list[Run]:
    runs: list[Run] = []
    for one in text.split("\n"):
        try:
            line = json.loads(one)
        except ValueError:
            break  # the last line of a log may be cut
        if "cell" in line:
            runs.append(Run(line))
        elif "task" in line and runs:
            runs[-1].lines.append(expanded(line, runs[-1].lines) if compact else line)
        elif "overlap" in line and runs:
            runs[-1].overlap = square(line["overlap"]) if compact else line["overlap"]
    return runs


def results(runs: Runs) -> list[Result]:
    """Every method on every order that was asked for, as far as it was run."""
    by_sequence = {}
    by_task: dict[tuple[str, int], dict[str, tuple[Run, int]]] = defaultdict(dict)
    for run in sorted(runs.runs, key=lambda run: len(run.header["tasks"])):
        head = run.header
        if head["sequence"]:
            by_sequence[head["method"], head["sequence"], head["order"], head["seed"]] = run
        elif run.whole:
            for i, task in enumerate(head["tasks"]):
                by_task[head["method"], head["seed"]][task["ref"]] = (run, i)
    out = []
    for asked, tasks in runs.grid["asked"].items():
        sequence, _, order = asked.rpartition("/")
        for method in runs.grid["methods"]:
            for seed in runs.grid["seeds"]:
                name = runs_as(method)
                one = by_sequence.get((name, sequence, int(order), seed))
                if one and one.lines:
                    out.append(_from_sequence(method, one))
                elif found := {task: by_task[name, seed][task] for task in tasks if task in by_task[name, seed]}:
                    out.append(_from_tasks(method, sequence, int(order), seed, tasks, found))
    return out


def _from_sequence(method: str, run: Run) -> Result:
    head, lines = run.header, run.lines
    count = len(head["tasks"])
    names = [task["name"] for task in head["tasks"]]
    missing = [None] * (count - len(lines))
    diagonal: list[Scores | None] = [*(line["scores"] for line in lines), *missing]
    examples: list[Columns | None] = [*(line.get("examples") for line in lines), *missing]
    final: list[Scores | None] = [None] * count
    if run.whole:
        final = list(diagonal)
        scores, tested = lines[-1].get("final_scores", {}), lines[-1].get("final_examples", {})
        final = [scores.get(name, own) for name, own in zip(names, final, strict=True)]
        examples = [tested.get(name, own) for name, own in zip(names, examples, strict=True)]
    entry = {**entry_of(label_of(method, head), head["forgets"], lines, run.seconds), "overlap": run.overlap}
    return Result(
        **_identity(method, head, head["sequence"], head["order"], head["seed"]),
        tasks=names,
        families=[task["family"] for task in head["tasks"]],
        tests=[task["tests"] for task in head["tasks"]],
        diagonal=diagonal,
        final=final,
        matrix=[line["row"] for line in lines] if run.whole else [],
        examples=examples,
        shared=False,
        entry=entry,
        proof=proof(lines),
    )


def _from_tasks(
    method: str, sequence: str, order: int, seed: int, tasks: Sequence[str], found: dict[str, tuple[Run, int]]
) -> Result:
    """A method whose tasks do not influence each other: each task's line stands for every moment after it."""
    picked = [found.get(task) for task in tasks]
    described = [one and one[0].header["tasks"][one[1]] for one in picked]
    lines = [one and one[0].lines[one[1]] for one in picked]
    scores: list[Scores | None] = [line and line["scores"] for line in lines]
    head = next(iter(found.values()))[0].header
    main = [next(iter(score.values())) if score else None for score in scores]
    whole = None not in main
    rows = [{**line, "row": main[: k + 1]} for k, line in enumerate(lines) if line]
    seconds = [one[0].seconds[one[1]] for one in picked if one]
    return Result(
        **_identity(method, head, sequence, order, seed),
        tasks=[one["name"] if one else task for one, task in zip(described, tasks, strict=True)],
        families=[one["family"] if one else task.split("/")[0] for one, task in zip(described, tasks, strict=True)],
        tests=[one and one["tests"] for one in described],
        diagonal=scores,
        final=scores,
        matrix=[main[: k + 1] for k in range(len(main))] if whole else [],
        examples=[line and line.get("examples") for line in lines],
        shared=True,
        entry=entry_of(label_of(method, head), False, rows, seconds) if whole else {},
        proof=proof([line for line in lines if line]),
    )


def _identity(method: str, head: dict[str, Any], sequence: str, order: int, seed: int) -> dict[str, Any]:
    return {
        "method": method,
        "label": label_of(method, head),
        "forgets": head["forgets"],
        "sequence": sequence,
        "order": order,
        "seed": seed,
    }


def label_of(method: str, head: dict[str, Any]) -> str:
    """The class's label; a second name of a method (w/o SM) is told apart by it."""
    return head["label"] if method == head["method"] else f"{head['label']} ({method})"


def documents(runs: Runs, sequence: str) -> list[dict[str, Any]]:
    """Run documents of a sequence, one an order and seed, for `tss.report`. Only what was run to its end is in them.

    Orders that were cut to their first tasks have other tasks than the first order; they are left out.
    """
    out: list[dict[str, Any]] = []
    found = [one for one in results(runs) if one.sequence == sequence and one.matrix]
    for order, seed in sorted({(one.order, one.seed) for one in found}):
        chosen = {one.method: one for one in found if (one.order, one.seed) == (order, seed)}
        first = max(chosen.values(), key=lambda one: len(one.tasks))
        chosen = {name: one for name, one in chosen.items() if one.tasks == first.tasks}  # LAMOL lacks tagging
        if out and {task["name"] for task in out[0]["tasks"]} != set(first.tasks):
            continue
        kinds = {task["name"]: task for run in runs.runs for task in run.header["tasks"]}
        out.append(
            {
                "title": f"{sequence}, {len(first.tasks)} tasks, {runs.runs[0].header['backbone']}, order {order}",
                "command": "",
                "environment": runs.runs[0].header["environment"],
                "seed": seed,
                "tasks": [
                    {**{key: kinds[name][key] for key in ("name", "kind", "family", "metric")}, "group": family}
                    for name, family in zip(first.tasks, first.families, strict=True)
                ],
                "methods": {name: one.entry for name, one in chosen.items()},
                "proof": {name: one.proof for name, one in chosen.items() if one.proof["comparisons"]},
                "reference": next((name for name in ("one", "one-adapter") if name in chosen), None),
            }
        )
    return out


def sequences(runs: Runs) -> list[str]:
    """The sequences that were asked for."""
    return list(dict.fromkeys(asked.rpartition("/")[0] for asked in runs.grid["asked"]))


def of_orders(runs: Runs, orders: Sequence[int]) -> Runs:
    """The part of a grid that these orders need: their runs, and what all orders share."""
    asked = {key: tasks for key, tasks in runs.grid["asked"].items() if int(key.rpartition("/")[2]) in orders}
    kept = [run for run in runs.runs if not run.header["sequence"] or run.header["order"] in orders]
    return Runs({**runs.grid, "asked": asked}, kept)
