"""`tss bench complete`."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Annotated

import typer

from tss.cli import options, show
from tss.cli.bench import Runs, numbers


def complete(
    runs: Runs,
    data: Annotated[Path | None, typer.Option(help="What `tss data prepare` wrote.", show_default=False)] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="RUNS", help="The folder for what is run now.", show_default=False)
    ] = None,
    methods: Annotated[str, typer.Option(help="Only these.", show_default="all of the grid")] = "",
    sequences: Annotated[str, typer.Option(help="Only these.", show_default="all of the grid")] = "",
    orders: Annotated[str, typer.Option(help="Only these, such as 0-2.", show_default="all of the grid")] = "",
    backbone: Annotated[str, typer.Option(help="Its folder, if it is not known by its name.")] = "",
    jobs: Annotated[int, typer.Option(min=1, help="Processes that share the device.")] = 1,
    device: options.Device = None,
    triangle: Annotated[
        bool, typer.Option(help="Order 0 of a method that forgets: test all earlier tasks after each one, for F′.")
    ] = True,
    seconds: Annotated[
        float | None,
        typer.Option(min=0, help="Stop after so many; the same command goes on from there.", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what is lacking, and run nothing.")] = False,
) -> None:
    """Run what a grid was asked for and has not, with its own settings.

    Each method gets the options that its other cells in the grid were run with. `tss bench pack` puts both together.

    \b
    Examples:
      tss bench complete results/raw/grid.jsonl.xz --dry-run
      tss bench complete results/raw/grid.jsonl.xz --data data --out more --jobs 8 --seconds 540
      tss bench pack results/raw/grid.jsonl.xz more --out results/raw/grid.jsonl.xz
    """
    from tss.bench.cell import Grid
    from tss.bench.collect import read_runs
    from tss.bench.complete import missing, settings, told
    from tss.bench.run import run_grid
    from tss.cli.bench_live import Live, ended
    from tss.errors import ConfigError

    grid = read_runs(runs)
    wanted = {"methods": options.words(methods), "sequences": options.words(sequences)}
    plan = missing(grid, {**wanted, "orders": numbers("--orders", orders)}, triangle)
    if not plan.cells:
        return show.note(f"{runs} has every cell that was asked for to its end")
    if dry_run:
        return show.table(["method", "cells", "seconds of training", "orders"], told(plan, grid))
    if data is None or out is None:
        raise ConfigError("give --data and --out, or --dry-run to see what is lacking")
    made = grid.grid["settings"]
    cut = {key: made[key] for key in ("preset", "limit_test", "first")}
    given = Grid(str(out), str(data), backbone or made["backbone"], device=device, each=settings(grid, plan), **cut)
    with Live(plan) as live:
        finished = run_grid(plan, given, jobs, live.tell, seconds=inf if seconds is None else seconds)
    ended(plan, finished, out)
