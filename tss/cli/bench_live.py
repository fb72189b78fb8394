"""What `tss bench run` shows while it runs: a live table in a terminal, a line for each task anywhere else."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tss.cli import show

if TYPE_CHECKING:
    from rich.table import Table

    from tss.bench.plan import Cell, Plan
    from tss.bench.run import Finished

_LONGEST = 0.25  # seconds between two drawings


class Live:
    """Cells done of each method, and what is being learnt right now."""

    def __init__(self, plan: Plan):
        from rich.console import Console
        from rich.live import Live as Screen

        self.tasks = {cell.key: len(cell.tasks) for cell in plan.cells}
        self.states: dict[str, dict[str, int]] = {}
        for cell in plan.cells:
            counts = self.states.setdefault(cell.method, dict.fromkeys(("cells", "done", "failed", "tasks", "of"), 0))
            counts["cells"] += 1
            counts["of"] += len(cell.tasks)
        self.running: dict[str, dict[str, Any]] = {}
        self.drawn = 0.0
        console = Console(stderr=True)
        self.screen = Screen(console=console, auto_refresh=False, transient=False) if console.is_terminal else None

    def __enter__(self) -> Live:
        if self.screen:
            self.screen.__enter__()
        return self

    def __exit__(self, *problem: Any) -> None:
        if self.screen:
            self.running.clear()
            self.screen.update(self.table(), refresh=True)
            self.screen.__exit__(*problem)

    def tell(self, cell: Cell, what: str, details: dict[str, Any]) -> None:
        counts, now = self.states[cell.method], self.running.get(cell.key, {"learnt": 0})
        if what == "skipped":
            counts["done"] += 1
            counts["tasks"] += len(cell.tasks)
        elif what in ("done", "failed"):
            counts[what] += 1
            self.running.pop(cell.key, None)
            if what == "done":  # those of an earlier run, too
                counts["tasks"] += len(cell.tasks) - now["learnt"]
        else:
            self.running[cell.key] = now
            now.update(details)
            if what == "task":
                counts["tasks"] += 1
                now["learnt"] += 1
        self._show(cell, what, details)

    def _show(self, cell: Cell, what: str, details: dict[str, Any]) -> None:
        if not self.screen:
            if what == "task":
                show.note(f"{cell.key}: {show.printable(details['task'])}: {show.scores(details['scores'])}")
            elif what in ("failed", "retried"):
                show.note(f"{cell.key}: {what}: {show.printable(str(details.get('error', details.get('status'))))}")
        elif what != "step" or time.monotonic() - self.drawn > _LONGEST:
            self.drawn = time.monotonic()
            self.screen.update(self.table(), refresh=True)

    def table(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
        for column in ("method", "cells", "failed", "tasks", "now"):
            table.add_column(column, overflow="fold")
        for method, counts in self.states.items():
            cells, tasks = f"{counts['done']}/{counts['cells']}", f"{counts['tasks']}/{counts['of']}"
            table.add_row(Text(method), cells, str(counts["failed"] or ""), tasks, "")
            for key, now in self.running.items():
                if key.startswith(f"{method}."):
                    step = f"{now['step']}/{now['steps']} loss {now['loss']:.2f}" if "step" in now else ""
                    text = f"{key.removeprefix(method + '.')}: {now.get('task', '')} {step}"
                    table.add_row("", "", "", f"{now['learnt']}/{self.tasks[key]}", Text(show.printable(text)))
        return table


def ended(plan: Plan, finished: Finished, runs: Path) -> None:
    """What became of the cells; exit status 1 if one failed."""
    left = len(plan.cells) - len(finished.done) - len(finished.skipped) - len(finished.failed)
    show.note(
        f"{len(finished.done)} cells run, {len(finished.skipped)} were done before, {len(finished.failed)} failed"
        f"{f', {left} left when time was up' if left else ''}; `tss bench table {runs}` prints the tables"
    )
    for key, error in finished.failed.items():
        show.note(f"failed: {key}: {show.printable(error)}")
    if finished.failed:
        raise typer.Exit(1)
