"""`tss bench`."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

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
) -> None:
    """Run methods on sequences of tasks.

    What is done is skipped, what was cut goes on, what fails does not stop the rest. Exit status 1 if a cell failed. A
    setting given with --set goes to the methods that have it.

    \b
    Examples:
      tss bench run --data data --out runs --sequences asc,ner --methods tss,supsup
      tss bench run --data data --out runs --jobs 8 --device cuda
    """
    from tss.bench.cell import Grid
    from tss.bench.plan import make_plan
    from tss.bench.run import run_grid
    from tss.cli.bench_live import Live

    plan = make_plan(
        _words(sequences), _numbers("--orders", orders), _words(methods), _numbers("--seeds", seeds), tasks
    )
    grid = Grid(str(out), str(data), backbone, preset, options.settings(change) or {}, device, limit_test, tasks)
    with Live(plan) as live:
        finished = run_grid(plan, grid, jobs, live.tell)
    show.note(
        f"{len(finished.done)} cells run, {len(finished.skipped)} were done before, {len(finished.failed)} failed; "
        f"`tss bench table {out}` prints the tables"
    )
    for key, error in finished.failed.items():
        show.note(f"failed: {key}: {show.printable(error)}")
    if finished.failed:
        raise typer.Exit(1)


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


def pack(
    runs: Runs,
    out: Annotated[Path, typer.Option(help="The file to write, .jsonl.xz or .jsonl.gz.", show_default=False)],
) -> None:
    """Put all lines of a folder of runs into one file.

    \b
    Example:
      tss bench pack runs --out results/raw/grid.jsonl.xz
    """
    from tss.bench.collect import pack as pack_runs

    typer.echo(f"wrote {out}, {show.size(pack_runs(runs, out))}")


def work() -> None:
    """Run cells that are read from standard input; `tss bench run --jobs` starts this."""
    from tss.bench.run import work as work_on

    work_on()


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(option: str, text: str) -> list[int]:
    """`0-2,4` as [0, 1, 2, 4]."""
    out: list[int] = []
    for word in _words(text):
        first, _, last = word.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            raise ConfigError(f"{option} {text!r} is not a list of numbers; write for example 0-4 or 0,2")
        out += range(int(first), int(last or first) + 1)
    return out
