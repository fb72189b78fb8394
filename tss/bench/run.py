"""Run the cells of a grid: in this process, in several that share a device, or on a Ray cluster (`ray_run.py`). What is
done is skipped, what was cut goes on, and a cell that fails does not stop the others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from tss.bench.cell import Backbones, Grid, run_cell
from tss.bench.plan import Cell, Plan
from tss.errors import StoreError, TaskError, TssError
from tss.learning.parallel import ALONE, Ranks
from tss.learning.track import check_trackers

if TYPE_CHECKING:
    from tss.bench.ray_run import Cluster

GRID = "grid.json"
RETRIES = 2  # of a cell whose process died

# told what goes on: (cell, what, details); what is skipped, begun, step, task, retried, done or failed
Listen = Callable[[Cell, str, dict[str, Any]], None]


class Job(NamedTuple):
    """A cell, and the grid that it belongs to."""

    cell: Cell
    grid: Grid


Hear = Callable[[Job, str, dict[str, Any]], None]


@dataclass
class Finished:
    """What became of the cells. failed: key -> the error."""

    done: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def prepare_runs(grid: Grid, plan: Plan) -> None:
    """Make the folder of runs, or add what is asked for to one of the same settings.

    Raises StoreError if the folder was made with other settings, ConfigError for options that no method has, TaskError
    if there is no data.
    """
    if not Path(grid.data).is_dir():
        raise TaskError(f"there is no folder {grid.data} of prepared tasks; `tss data prepare` makes one")
    grid.check_options(sorted({cell.method for cell in plan.cells}))
    check_trackers(grid.track)
    file = Path(grid.runs) / GRID
    asked = {f"{one.sequence}/{one.order}": list(one.tasks) for one in plan.asked}
    settings = grid.settings()
    whole: dict[str, Any] = {"settings": settings, "asked": asked}
    whole |= {"methods": list(plan.methods), "seeds": list(plan.seeds)}
    if file.exists():
        old = json.loads(file.read_text(encoding="utf-8"))
        settings["each"] = {**old["settings"].get("each", {}), **grid.each}  # methods may join later
        before = {**old["settings"], "each": {**settings["each"], **old["settings"].get("each", {})}}
        for key, value in settings.items():
            if before.get(key) != value:
                raise StoreError(
                    f"{grid.runs} was made with {key} {before.get(key)!r}, not {value!r}; numbers made "
                    "differently do not belong into one table: use another folder"
                )
        whole["asked"] = {**old["asked"], **asked}
        for key in ("methods", "seeds"):
            whole[key] = list(dict.fromkeys([*old[key], *whole[key]]))
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    os.replace(part, file)


def run_grid(
    plan: Plan,
    grid: Grid,
    jobs: int = 1,
    listen: Listen | None = None,
    cluster: Cluster | None = None,
    ranks: Ranks = ALONE,
    seconds: float = inf,
) -> Finished:
    """Run every cell that is not done. jobs: processes; 1 runs all in this one. cluster: run on Ray instead.

    seconds: then processes are stopped, and what they were at goes on with the next call, as after any crash; such
    cells are in neither list. With it even one job is a process of its own.

    ranks: processes that call this together, to train each cell together; then a cell that fails ends the run.
    Raises what `prepare_runs` raises, and what `run_on_ray` does.
    """
    if ranks.first:
        prepare_runs(grid, plan)
    until = monotonic() + seconds
    tell = listen or (lambda cell, what, details: None)
    finished, open_cells = Finished(), []
    done = ranks.agree([cell.key for cell in plan.cells if grid.done(cell)])
    for cell in plan.cells:
        if cell.key in done:
            finished.skipped.append(cell.key)
            tell(cell, "skipped", {})
        else:
            open_cells.append(cell)
    if cluster is not None:
        from tss.bench.ray_run import run_on_ray

        run_on_ray(open_cells, grid, cluster, tell, finished)
    elif jobs > 1 or seconds < inf:
        todo = [Job(cell, grid) for cell in open_cells]
        run_jobs(todo, jobs, lambda job, what, details: note(finished, job.cell, what, details, tell), until)
        for cell in open_cells if monotonic() < until else ():
            if cell.key not in (*finished.done, *finished.failed):
                finished.failed[cell.key] = "it was not run: the thread that looked after it ended"
    else:
        backbones = Backbones()
        for cell in open_cells:
            what, details = attempt(cell, grid, backbones, tell, ranks)
            if what == "failed" and ranks.count > 1:  # the others may be waiting for this rank in the middle of it
                raise TssError(f"{cell.key} failed: {details['error']}; run the same command to go on")
            note(finished, cell, what, details, tell)
    return finished


def attempt(
    cell: Cell, grid: Grid, backbones: Backbones, tell: Listen, ranks: Ranks = ALONE
) -> tuple[str, dict[str, Any]]:
    """Run one cell; whatever goes wrong becomes ("failed", {"error"}), with the traceback beside the cell's log."""
    trace = Path(grid.runs) / f"{cell.key}.error.txt"
    tell(cell, "begun", {"pid": os.getpid()})
    try:
        run_cell(
            cell,
            grid,
            backbones,
            watch=lambda now: tell(cell, "step", asdict(now)),
            told=lambda line: tell(cell, "task", {"task": line["task"], "scores": line["scores"]}),
            ranks=ranks,
        )
    except Exception as error:  # one cell must not end the grid, whatever it met
        trace.write_text(traceback.format_exc(), encoding="utf-8")
        name = "" if isinstance(error, TssError) else f"{type(error).__name__}: "
        return "failed", {"error": f"{name}{error}"}
    trace.unlink(missing_ok=True)
    return "done", {}


def note(finished: Finished, cell: Cell, what: str, details: dict[str, Any], tell: Listen) -> None:
    """Tell what became of a cell; count it if it came to its end."""
    if what == "done":
        finished.done.append(cell.key)
    elif what == "failed":
        finished.failed[cell.key] = details["error"]
    tell(cell, what, details)


def run_jobs(jobs: Sequence[Job], processes: int, hear: Hear, until: float = inf) -> None:
    """Run cells, also of several grids, in so many processes, those with most tasks first.

    until: when processes are stopped, by `time.monotonic`; what they were at goes on another time, as after any crash.
    """
    _Processes(jobs, min(processes, len(jobs)), hear).run(until)


class _Processes:
    """Processes that each take one cell after another. A cell whose process died is tried again from its last line."""

    def __init__(self, jobs: Sequence[Job], count: int, hear: Hear):
        self.count = count
        self.waiting: SimpleQueue[Job] = SimpleQueue()
        for job in sorted(jobs, key=lambda job: -len(job.cell.tasks)):  # long ones last would keep the others waiting
            self.waiting.put(job)
        self.hearing, self.starting, self.stopped = threading.Lock(), threading.Lock(), threading.Event()
        self.running: dict[int, subprocess.Popen[str]] = {}
        self._hear = hear

    def run(self, until: float = inf) -> None:
        threads = [threading.Thread(target=self._work, args=(n,), daemon=True) for n in range(self.count)]
        try:
            for thread in threads:
                thread.start()
            while any(thread.is_alive() for thread in threads) and monotonic() < until:
                for thread in threads:
                    thread.join(0.2)
        finally:
            with self.starting:  # or one that is being started would outlive us, and be at a cell that others begin
                self.stopped.set()
            for process in list(self.running.values()):
                process.kill()
            for thread in threads:
                if thread.is_alive():
                    thread.join()
            for process in self.running.values():
                process.wait()

    def _work(self, number: int) -> None:
        while not self.stopped.is_set():
            try:
                job = self.waiting.get_nowait()
            except Empty:
                break
            what, details = "failed", {"error": "it was not run"}
            for left in range(RETRIES, -1, -1):
                answer = self._ask(number, job)
                if answer:
                    what, details = answer
                    break
                if self.stopped.is_set():
                    return
                status = self.running.pop(number).wait()
                details = {"error": f"its process died {RETRIES + 1} times, last with status {status}"}
                if left:
                    self.hear(job, "retried", {"status": status})
            self.hear(job, what, details)
        if process := self.running.get(number):
            process.stdin.close()  # type: ignore[union-attr]
            process.wait()
            del self.running[number]

    def hear(self, job: Job, what: str, details: dict[str, Any]) -> None:
        with self.hearing:
            self._hear(job, what, details)

    def _ask(self, number: int, job: Job) -> tuple[str, dict[str, Any]] | None:
        """Have a process run the cell; None if it died."""
        with self.starting:
            if self.stopped.is_set():
                return None
            if number not in self.running:
                self.running[number] = self._start(number, job.grid)
        process = self.running[number]
        assert process.stdin and process.stdout
        try:
            process.stdin.write(json.dumps({"cell": asdict(job.cell), "grid": asdict(job.grid)}) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            return None
        for text in process.stdout:
            try:
                what, details = json.loads(text)
            except ValueError:
                return None  # cut in the middle of a line
            if what in ("done", "failed"):
                return what, details
            self.hear(job, what, details)
        return None

    def _start(self, number: int, grid: Grid) -> subprocess.Popen[str]:
        threads = str(max(1, (os.cpu_count() or 1) // self.count))
        with open(Path(grid.runs) / f"process-{number}.txt", "a", encoding="utf-8") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "tss", "bench", "work"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
                env={"OMP_NUM_THREADS": threads, **os.environ},
            )


def work() -> None:
    """What such a process does: read cells and their grids from standard input, answer with events."""
    # Only events may go to standard output, whatever a library prints.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    parent = os.getppid()

    def tell(cell: Cell, what: str, details: dict[str, Any]) -> None:
        if os.getppid() != parent:
            os._exit(1)  # whoever started us is gone, and may be back on this very store
        out.write(json.dumps([what, details]) + "\n")
        out.flush()

    backbones = Backbones()
    for text in sys.stdin:
        asked = json.loads(text)
        cell = Cell.read(asked["cell"])
        tell(cell, *attempt(cell, Grid(**asked["grid"]), backbones, tell))
