"""The cells of a grid as tasks of a Ray cluster, with shares of a GPU; a cell whose worker died is tried again.

All nodes must have the package, and see the folders of runs, data and backbone under the same paths: what is done, what
was cut and the results are known from the folder of runs alone, just as without Ray.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tss.bench.cell import Backbones, Grid
from tss.bench.plan import Cell
from tss.bench.run import GRID, RETRIES, Finished, Listen, attempt, note
from tss.errors import ConfigError, TssError
from tss.store import Store
from tss.store.lock import BEAT, STALE

SHARE = 0.125  # of a GPU for each cell, where the cluster has one and nothing else is asked for
BETWEEN = 0.2  # seconds between two steps that a worker tells of
Event = tuple[str, str, dict[str, Any]]  # key of the cell, what, details


@dataclass(frozen=True)
class Cluster:
    """Where cells run, and what each may use. address: as `ray.init` takes it; "auto": the cluster that this machine
    belongs to, else one of this machine alone. gpus: None is SHARE where there is a GPU.
    """

    address: str = "auto"
    gpus: float | None = None
    cpus: float = 1.0

    def resources(self, present: dict[str, float], device: str | None) -> dict[str, float]:
        """What a cell asks Ray for. Raises ConfigError if the cluster cannot ever give it."""
        usable = present.get("GPU", 0.0) if device != "cpu" else 0.0
        gpus = (SHARE if usable else 0.0) if self.gpus is None else self.gpus
        for what, asked in (("GPU", gpus), ("CPU", self.cpus)):
            if asked > present.get(what, 0.0):
                raise ConfigError(
                    f"a cell asks for {asked:g} {what}, but the Ray cluster has {present.get(what, 0.0):g}; ask for "
                    f"less (--{what.lower()}s-per-cell), or add a node"
                )
        return {"num_gpus": gpus, "num_cpus": self.cpus}


class Mailbox:
    """What workers tell, in the order it came. It is an actor, so that every worker can reach it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.filled = asyncio.Event()

    async def put(self, *event: Any) -> None:
        self.events.append(event)  # type: ignore[arg-type]
        self.filled.set()

    async def take(self) -> list[Event]:
        """All events since the last call; waits until there is one."""
        await self.filled.wait()
        self.filled.clear()
        taken, self.events = self.events, []
        return taken


def run_cell_there(cell: Cell, grid: Grid, place: str, mailbox: Any, retried: bool) -> tuple[str, dict[str, Any]]:
    """What a worker does: one cell, from where it was. place: the folder that paths are relative to."""
    import ray

    told: dict[str, Any] = {"at": 0.0, "task": ""}

    def tell(_: Cell, what: str, details: dict[str, Any]) -> None:
        if what == "step":
            if details["task"] == told["task"] and time.monotonic() - told["at"] < BETWEEN:
                return
            told.update(at=time.monotonic(), task=details["task"])
        mailbox.put.remote(cell.key, what, details)

    try:
        os.chdir(place)
        Path(grid.runs, GRID).stat()
    except OSError as problem:
        return "failed", {"error": f"{socket.gethostname()} does not see {problem.filename} of the folder {place}: all "
                          "nodes of a Ray cluster must share the folders of runs, data and backbone"}  # fmt: skip
    if retried and grid.store(cell).exists():
        # A worker that died on another host is known to be dead only when its lock has not been touched for a while.
        with Store.open(grid.store(cell)).writing(wait=STALE + 2 * BEAT):
            pass
    answer = attempt(cell, grid, Backbones(), tell)
    ray.get(mailbox.put.remote(cell.key, "left", {}))  # now all that was told is there
    return answer


def run_on_ray(cells: Sequence[Cell], grid: Grid, cluster: Cluster, tell: Listen, finished: Finished) -> None:
    """Run the cells on a cluster. Raises ConfigError without Ray or enough of it, TssError if the cluster is lost."""
    try:
        import ray
    except ImportError:
        raise ConfigError("--ray needs the package ray: pip install 'tss[ray]'") from None
    ours = not ray.is_initialized()
    if ours:
        _join(ray, cluster.address)
    try:
        if cells:
            _Submitted(ray, cells, grid, cluster, tell, finished).run()
    except ray.exceptions.RayError as problem:
        raise TssError(f"the Ray cluster was lost ({_short(problem)}); run the same command to go on") from problem
    finally:
        if ours:
            ray.shutdown()


def _join(ray: Any, address: str) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere unless asked for
    try:
        if address not in ("auto", "local"):
            _knock(address)  # Ray itself would try for minutes
        ray.init(address=None if address == "auto" else address, log_to_driver=False, logging_level="error")
    except (OSError, ValueError, RuntimeError) as problem:
        raise TssError(f"there is no Ray cluster at {address}: {_short(problem)}") from problem


def _knock(address: str) -> None:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"--ray {address!r} is neither auto nor an address such as 10.0.0.1:6379")
    socket.create_connection((host, int(port)), timeout=10).close()


class _Submitted:
    """Cells handed to Ray, which runs as many at a time as the cluster has room for."""

    def __init__(self, ray: Any, cells: Sequence[Cell], grid: Grid, cluster: Cluster, tell: Listen, finished: Finished):
        self.ray, self.grid, self.tell, self.finished = ray, grid, tell, finished
        self.cells = {cell.key: cell for cell in cells}
        self.left = dict.fromkeys(self.cells, RETRIES)
        self.running: dict[Any, Cell] = {}
        resources = cluster.resources(ray.cluster_resources(), grid.device)
        # Ray's own retries would come without a word; ours are counted and told.
        self.task = ray.remote(max_retries=0, **resources)(run_cell_there)
        self.mailbox = ray.remote(num_cpus=0)(Mailbox).remote()

    def run(self) -> None:
        try:
            for cell in self.cells.values():
                self._submit(cell)
            news = self.mailbox.take.remote()
            while len(self.left) > 0:
                ready, _ = self.ray.wait([news, *self.running], num_returns=1)
                if news in ready:
                    for key, what, details in self.ray.get(news):
                        self._hear(self.cells[key], what, details)
                    news = self.mailbox.take.remote()
                for one in (ref for ref in ready if ref in self.running):
                    self._ended(one)
        finally:
            for one in self.running:
                self.ray.cancel(one, force=True)
            self.ray.kill(self.mailbox)

    def _submit(self, cell: Cell) -> None:
        retried = self.left[cell.key] < RETRIES
        self.running[self.task.remote(cell, self.grid, os.getcwd(), self.mailbox, retried)] = cell

    def _ended(self, one: Any) -> None:
        """Through the mailbox, so that it is heard after all that the worker told."""
        cell = self.running.pop(one)
        try:
            what, details = self.ray.get(one)
        except self.ray.exceptions.RayError as problem:
            what, details = "died", {"status": _short(problem)}
        self.mailbox.put.remote(cell.key, what, details)

    def _hear(self, cell: Cell, what: str, details: dict[str, Any]) -> None:
        if what == "died" and self.left[cell.key]:
            self.left[cell.key] -= 1
            self.tell(cell, "retried", details)
            self._submit(cell)
        elif what in ("died", "done", "failed"):
            del self.left[cell.key]
            if what == "died":
                what, details = "failed", {"error": f"its worker died {RETRIES + 1} times, last: {details['status']}"}
            note(self.finished, cell, what, details, self.tell)
        elif what != "left" and cell.key in self.left:
            self.tell(cell, what, details)


def _short(problem: BaseException) -> str:
    lines = str(problem).strip().splitlines()
    return f"{type(problem).__name__}: {lines[0][:200]}" if lines else type(problem).__name__
