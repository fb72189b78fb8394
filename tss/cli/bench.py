"""`tss bench`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from math import inf
from pathlib import Path
from typing import Annotated, Any

import typer

from tss.cli import options, show
from tss.errors import ConfigError

Runs = Annotated[Path, typer.Argument(metavar="RUNS", help="A folder of runs, or a packed file.", show_default=False)]


class Format(str, Enum):
    markdown = "markdown"
    csv = "csv"
    latex = "latex"


def run(
    data: Annotated[Path, typer.Option(help="What `tss data prepare` wrote.", show_default=False)],
    out: Annotated[Path, typer.Option(metavar="RUNS", help="The folder of runs.", show_default=False)],
    sequences: Annotated[
        str, typer.Option(help="asc, ccd, ner, sum, drg, heterogeneous or files that list tasks, with commas between.")
    ] = "heterogeneous",
    orders: Annotated[str, typer.Option(help="Such as 0-4 or 0,2.")] = "0-4",
    methods: Annotated[str, typer.Option(help="Names from `tss methods`, with commas between, or all.")] = "all",
    backbone: Annotated[str, typer.Option(help="A name or folder of a Hugging Face model.")] = "bart-mini",
    seeds: Annotated[str, typer.Option(help="Such as 0 or 0-2.")] = "0",
    preset: Annotated[str, typer.Option(help="recommended, paper or code.")] = "recommended",
    jobs: Annotated[int, typer.Option(min=1, help="Processes that share the device.")] = 1,
    device: options.Device = None,
    change: options.Set = None,
    tasks: Annotated[int, typer.Option(min=0, help="Only so many tasks of each sequence; 0: all.")] = 0,
    limit_test: Annotated[int, typer.Option(min=0, help="Only so many test examples a task; 0: all.")] = 0,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="auto|ADDRESS", help="Run cells on a Ray cluster; auto: this machine's.", show_default=False
        ),
    ] = None,
    gpus_per_cell: Annotated[
        float | None, typer.Option(min=0, help="On Ray; 0.125 where there is a GPU.", show_default=False)
    ] = None,
    cpus_per_cell: Annotated[float, typer.Option(min=0, help="On Ray.")] = 1,
    triangle: Annotated[
        bool, typer.Option(help="Order 0 of a method that forgets: test all earlier tasks after each one, for F′.")
    ] = True,
    seconds: Annotated[
        float | None,
        typer.Option(min=0, help="Stop after so many; the same command goes on from there.", show_default=False),
    ] = None,
    track: options.Track = "",
) -> None:
    """Run methods on sequences of tasks.

    What is done is skipped, what was cut goes on, what fails does not stop the rest. Exit status 1 if a cell failed. A
    setting given with --set goes to the methods that have it, one of the form METHOD:KEY=VALUE to that method alone.

    \b
    Examples:
      tss bench run --data data --out runs --sequences asc,ner --methods tss,supsup
      tss bench run --data data --out runs --jobs 8 --device cuda
      tss bench run --data data --out runs --ray auto --gpus-per-cell 0.125
      tss bench run --data data --out runs --jobs 8 --seconds 540
      tss bench run --data data --out runs --methods ewc,ctr --set ewc:lm_lr=2e-4 --set ctr:adapter_lr=3e-3
      accelerate launch --multi_gpu --num_processes 2 -m tss bench run --data data --out runs
    """
    from tss.bench.cell import Grid
    from tss.bench.plan import make_plan
    from tss.bench.ray_run import Cluster
    from tss.bench.run import run_grid
    from tss.cli.bench_live import Live, ended
    from tss.cli.launched import launched

    named, chosen = options.words(sequences), options.words(methods)
    plan = make_plan(named, numbers("--orders", orders), chosen, numbers("--seeds", seeds), tasks, triangle)
    cluster = None if ray is None else Cluster(ray, gpus_per_cell, cpus_per_cell)
    if cluster and seconds is not None:
        raise ConfigError("--seconds stops processes of this machine (--jobs), not those of --ray")
    if cluster and jobs > 1:
        raise ConfigError("--jobs and --ray are two ways to run cells side by side; give one of them")
    given, each = of_methods(options.settings(change) or {}, plan.methods)
    with launched(device) as ranks:
        if ranks.count > 1 and (cluster or jobs > 1 or seconds is not None):
            told = "processes that were launched together train one cell after another: no --jobs, --seconds or --ray"
            raise ConfigError(told)
        where, trackers = ranks.device or device, options.words(track)
        grid = Grid(str(out), str(data), backbone, preset, given, where, limit_test, tasks, trackers, each)
        if not ranks.first:
            run_grid(plan, grid, ranks=ranks)
            return
        with Live(plan) as live:
            finished = run_grid(plan, grid, jobs, live.tell, cluster, ranks, inf if seconds is None else seconds)
    ended(plan, finished, out)


def of_methods(given: dict[str, Any], methods: Sequence[str]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Settings of all methods, and those of the form METHOD:KEY by method. Raises ConfigError for methods not run."""
    from tss.bench.plan import runs_as

    common: dict[str, Any] = {}
    each: dict[str, dict[str, Any]] = {}
    for key, value in given.items():
        method, colon, own = key.rpartition(":")
        if not colon:
            common[key] = value
        elif method not in methods:
            raise ConfigError(f"--set {key}: {method} is not among the methods to run: {', '.join(methods)}")
        else:
            each.setdefault(runs_as(method), {})[own] = value
    return common, each


def table(
    runs: Runs,
    form: Annotated[Format, typer.Option("--format", help="How to print the tables.")] = Format.markdown,
) -> None:
    """Print the paper's tables with our numbers.

    \b
    Examples:
      tss bench table runs
      tss bench table results/raw/grid.jsonl.xz --format latex
    """
    from tss.bench.collect import read_runs
    from tss.bench.formats import FORMATS
    from tss.bench.table import tables

    typer.echo(FORMATS[form.value](tables(read_runs(runs))), nl=False)


def claims(
    runs: Runs,
    orders: Annotated[str, typer.Option(help="Only these, such as 0-2.", show_default="all")] = "",
    form: Annotated[Format, typer.Option("--format", help="How to print the tables.")] = Format.markdown,
) -> None:
    """Check the paper's claims, and the goals of TSS+, one by one.

    \b
    Examples:
      tss bench claims runs
      tss bench claims results/raw/grid.jsonl.xz --orders 0-2
    """
    from tss.bench.claims import claim_tables
    from tss.bench.collect import of_orders, read_runs
    from tss.bench.formats import FORMATS
    from tss.bench.measured import Measured

    found = read_runs(runs)
    if orders:
        found = of_orders(found, numbers("--orders", orders))
    shown = f"orders {orders}" if orders else ""
    typer.echo(FORMATS[form.value](claim_tables(Measured(found), shown)), nl=False)


def pack(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUNS...", help="Folders of runs, or packed files.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="The file to write, .jsonl.xz or .jsonl.gz.", show_default=False)],
    most: Annotated[float, typer.Option(min=0, help="MiB of all files in its folder together.")] = 5.0,
) -> None:
    """Put all lines of folders of runs into one file.

    Of a cell that is in several of them the longest log is taken, of equally long ones the last.

    \b
    Examples:
      tss bench pack runs --out results/raw/grid.jsonl.xz
      tss bench pack results/raw/grid.jsonl.xz more-runs --out results/raw/grid.jsonl.xz
    """
    from tss.bench.pack import pack as pack_runs

    made = pack_runs(runs, out, int(most * (1 << 20)))
    inside = f"{made.cells} cells, {made.tasks} tasks, {made.per_task / 1024:.1f} KiB a task"
    total = f"{out.parent} holds {show.size(made.bytes + made.beside)} of {most:g} MiB"
    typer.echo(f"wrote {out}, {show.size(made.bytes)}: {inside}; {total}")


def again(
    runs: Runs,
    cell: Annotated[str, typer.Argument(help="Its name, such as tss.ner.o0 or supsup.sum-nyt.", show_default=False)],
    data: Annotated[Path, typer.Option(help="What `tss data prepare` wrote.", show_default=False)],
    out: Annotated[Path, typer.Option(metavar="RUNS", help="Where the new run goes.", show_default=False)],
    backbone: Annotated[str, typer.Option(help="Its folder, if it is not known by its name.")] = "",
    device: options.Device = None,
    tasks: Annotated[int, typer.Option(min=0, help="Only the first so many tasks; 0: all.")] = 0,
    within: Annotated[float, typer.Option(min=0, help="Points that the mean of a family may differ by.")] = 0.5,
) -> None:
    """Run one cell once more from its saved settings and compare.

    Exit status 1 if the mean of a family differs by more than --within points.

    \b
    Examples:
      tss bench again results/raw/grid.jsonl.xz tss.ner.o0 --data data --out again
      tss bench again results/raw/grid.jsonl.xz supsup.asc-ipod --data data --out again --device cuda
    """
    from tss.bench import again as twice
    from tss.bench.collect import read_runs

    run_then = twice.find(read_runs(runs), cell)
    if left := twice.gone(run_then):
        show.note(f"{run_then.header['method']} has these options of {cell} no longer: {', '.join(left)}")
    with show.progress_bar() as watch:
        found = twice.again(run_then, out, str(data), backbone=backbone, device=device, first=tasks, watch=watch)
    rows, most = [], 0.0
    for family, part in twice.by_family(found).items():
        difference = twice.apart(part)
        most = max(most, abs(difference))
        same = sum(one.same for one in part)
        then, now = (sum(getattr(one, key) for one in part) / len(part) for key in ("then", "now"))
        rows.append([family, f"{then:.2f}", f"{now:.2f}", f"{difference:+.2f}", f"{same} of {len(part)}"])
    show.table(["family", "then", "now", "difference", "equal in every digit"], rows)
    if most > within:
        raise typer.Exit(1)


def work() -> None:
    """Run cells that are read from standard input; `tss bench run --jobs` starts this."""
    from tss.bench.run import work as work_on

    work_on()


def numbers(option: str, text: str) -> list[int]:
    """`0-2,4` as [0, 1, 2, 4]."""
    out: list[int] = []
    for word in options.words(text):
        first, _, last = word.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            raise ConfigError(f"{option} {text!r} is not a list of numbers; write for example 0-4 or 0,2")
        out += range(int(first), int(last or first) + 1)
    return out
