"""One cell of a grid: learn its tasks in a store of its own, leave its lines in a log of its own."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tss
from tss.bench.plan import Cell
from tss.bench.sequence import Testing, Told, append, gate_overlap, names_of, read_header, read_log, run_sequence
from tss.config import resolve
from tss.data.sequences import load_tasks
from tss.errors import ConfigError, StoreError
from tss.learner import Learner
from tss.learning.parallel import ALONE, Ranks
from tss.learning.probes import environment
from tss.learning.progress import Progress, Watch
from tss.learning.track import Track, tracked
from tss.methods import method_class
from tss.tasks.task import Task

if TYPE_CHECKING:
    from tss.backbones.backbone import Backbone

_ELSEWHERE = ("runs", "data", "device", "track")  # what does not decide the numbers
CHECKPOINTS = 60.0  # seconds between two: a whole LM's takes longer than many steps, and a cell goes on task by task
SPOT_CHECKS = 0.05  # share of the cells taken as equal that are tested again


@dataclass(frozen=True)
class Grid:
    """What all cells have in common. runs: the folder of logs and stores; data: the prepared tasks.

    limit_test: only so many test examples a task; first: only so many tasks of a sequence (0: all, both).
    track: trackers that are told of every step. each: options of single methods, by name, beside those of all.
    """

    runs: str
    data: str
    backbone: str
    preset: str = "recommended"
    options: dict[str, Any] = field(default_factory=dict)
    device: str | None = None
    limit_test: int = 0
    first: int = 0
    track: Sequence[str] = ()
    each: dict[str, dict[str, Any]] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        """What decides the numbers, wherever the folders are."""
        return {key: value for key, value in asdict(self).items() if key not in _ELSEWHERE}

    def log(self, cell: Cell) -> Path:
        return Path(self.runs) / f"{cell.key}.jsonl"

    def store(self, cell: Cell) -> Path:
        return Path(self.runs) / "stores" / cell.key

    def done(self, cell: Cell) -> bool:
        return len(read_log(self.log(cell))) == len(cell.tasks)

    def options_of(self, method: str) -> dict[str, Any]:
        """The options that the method has."""
        known = resolve(method, self.preset).flat()
        return {key: value for key, value in self.options.items() if key in known} | self.each.get(method, {})

    def check_options(self, methods: Sequence[str]) -> None:
        """Raises ConfigError for an option that none of the methods has, or a value that one of them refuses."""
        used = {key for method in methods for key in self.options_of(method)}
        if unused := sorted(set(self.options) - used):
            raise ConfigError(f"none of {', '.join(methods)} has an option {unused[0]!r}; see `tss methods NAME`")
        for method in methods:
            resolve(method, self.preset, self.options_of(method))


class Backbones:
    """The backbone of the last cell, for the next one. One whose weights a method changed is not used again."""

    def __init__(self) -> None:
        self._key: tuple[object, ...] = ()
        self._kept: tuple[Backbone, str] | None = None

    def lend(self, learner: Learner) -> None:
        config, settings = learner.config, learner.settings
        trained = method_class(settings.method).trains_backbone  # such a one is held in float32 at any precision
        key = settings.backbone, learner.device, config.learning.precision, config.adapter.adapter_sites, trained
        if self._kept and (key != self._key or self._kept[0].fingerprint() != self._kept[1]):
            self._kept = None
        if self._kept:
            learner.backbone = self._kept[0]
            learner.backbone.model.requires_grad_(False).eval()
        else:
            self._key, self._kept = key, (learner.backbone, learner.backbone.fingerprint())


def run_cell(
    cell: Cell,
    grid: Grid,
    backbones: Backbones,
    watch: Watch | None = None,
    told: Told | None = None,
    ranks: Ranks = ALONE,
) -> None:
    """Learn and test what the cell still lacks. Raises TssError; what is in its log stays."""
    own = (grid.log(cell), grid.store(cell))
    with ranks.own(Path(grid.runs), [str(path.relative_to(grid.runs)) for path in own]) as place:
        _run_cell(cell, replace(grid, runs=str(place)), backbones, watch, told, ranks)


def _run_cell(
    cell: Cell, grid: Grid, backbones: Backbones, watch: Watch | None, told: Told | None, ranks: Ranks
) -> None:
    tasks = [_cut(task, grid.limit_test) for task in load_tasks(cell.tasks, grid.data)]
    learner = _open(cell, grid, tasks)
    learner.ranks, learner.apart = ranks, CHECKPOINTS
    backbones.lend(learner)
    header = _header(cell, grid, learner, tasks)
    found = read_header(grid.log(cell))
    if found and found["tasks"] != header["tasks"]:
        raise StoreError(f"{cell.key} was begun on other data than {grid.data} holds; use another folder for its runs")
    testing = Testing(triangle=cell.triangle, probes=False, examples=True, spot=SPOT_CHECKS)
    about = {"cell": cell.key, "backbone": header["backbone"], **learner.config.flat()}
    with tracked(grid.track, Path(grid.runs) / "track", cell.key, about) as track:
        watch, told = _listening(track, watch, told)
        lines = run_sequence(learner, tasks, grid.log(cell), watch=watch, told=told, header=header, testing=testing)
    if len(lines) > 1 and (overlaps := gate_overlap(learner, lines)):
        append(grid.log(cell), {"overlap": overlaps})


def _listening(track: Track | None, watch: Watch | None, told: Told | None) -> tuple[Watch | None, Told | None]:
    """Who is told of steps and lines: trackers, too."""
    if track is None:
        return watch, told

    def step(now: Progress) -> None:
        track.watch(now)
        if watch:
            watch(now)

    def line(one: dict[str, Any]) -> None:
        track.scores(one["task"], one["scores"])
        if told:
            told(one)

    return step, line


def _open(cell: Cell, grid: Grid, tasks: Sequence[Task]) -> Learner:
    """The cell's learner. What log and store hold is kept if the rest can be learnt from there, else begun anew."""
    learner = _learner(cell, grid)
    logged = [line["task"] for line in read_log(grid.log(cell))]
    kept = list(learner.store.index().names())
    # A crash leaves the store at most one task ahead of the log; a joint method keeps its tasks all at once.
    ahead = len(kept) - len(logged)
    fits = kept == names_of(tasks)[: len(kept)] and logged == kept[: len(logged)]
    fits = fits and (len(kept) in (0, len(tasks)) if method_class(cell.method).joint else ahead in (0, 1))
    if fits:
        return learner
    grid.log(cell).unlink(missing_ok=True)
    shutil.rmtree(grid.store(cell))
    return _learner(cell, grid)


def _learner(cell: Cell, grid: Grid) -> Learner:
    return Learner.open(
        grid.store(cell),
        backbone=grid.backbone,
        method=cell.method,
        device=grid.device,
        config=grid.options_of(cell.method),
        preset=grid.preset,
        seed=cell.seed,
    )


def _cut(task: Task, most: int) -> Task:
    return replace(task, test=task.test[:most]) if most else task


def _header(cell: Cell, grid: Grid, learner: Learner, tasks: Sequence[Task]) -> dict[str, Any]:
    method, backbone = learner.method, learner.backbone
    return {
        "cell": cell.key,
        "method": cell.method,
        "label": method.label,
        **{key: getattr(method, key) for key in ("forgets", "order_free", "joint")},
        **{key: getattr(cell, key) for key in ("sequence", "order", "seed", "triangle")},
        "backbone": Path(grid.backbone).name,
        "backbone_hash": backbone.fingerprint(),
        "parameters": sum(p.numel() for p in backbone.model.parameters()),
        "trained": method.size,
        "preset": grid.preset,
        "config": learner.config.flat(),
        "limit_test": grid.limit_test,
        "processes": learner.ranks.count,
        "tasks": [_described(ref, task) for ref, task in zip(cell.tasks, tasks, strict=True)],
        "environment": {
            "tss": tss.__version__,
            "python": platform.python_version(),
            **environment(backbone.device, backbone.model.dtype),
        },
    }


def _described(ref: str, task: Task) -> dict[str, Any]:
    """ref: how the plan names the task."""
    return {
        "ref": ref,
        "name": task.name,
        "kind": task.kind,
        "family": task.family or task.kind,
        "metric": task.metric,
        "tests": len(task.test or task.valid or task.train),
        "hash": task.fingerprint(),
    }
