"""`tss demo` and `tss report`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tss.errors import TssError


def demo(
    quick: Annotated[bool, typer.Option("--quick", help="Six tasks and two methods, below 90 seconds.")] = False,
    methods: Annotated[
        str | None, typer.Option(help="Methods to compare, separated by commas; see `tss methods`.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the tasks and of all training.")] = 0,
    out: Annotated[Path, typer.Option(help="Where the stores, run.json and report.html go.")] = Path("demo"),
) -> None:
    """Learn small tasks; see none forgotten.

    Twelve made-up tasks of all kinds are learnt one after another on the embedded backbone, in about six minutes on two
    cores. Ends with a table and a report.html to look at.

    \b
    Examples:
      tss demo --quick
      tss demo --methods tss,one-adapter --seed 1
    """
    from rich.console import Console

    from tss.demo import run_demo

    chosen = [name.strip() for name in methods.split(",") if name.strip()] if methods else None
    run_demo(out=out, quick=quick, methods=chosen, seed=seed, console=Console())


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...", help="A run.json, several seeds of it, or a folder of runs.", show_default=False
        ),
    ],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
) -> None:
    """Write one HTML page about a run.

    Of a folder that `tss bench run` made, one page for each sequence.

    \b
    Examples:
      tss report demo/run.json --out report.html
      tss report seed0.json seed1.json seed2.json
      tss report runs --out report.html
    """
    from tss.report.page import write_page

    if len(runs) == 1 and runs[0].is_dir():
        _report_grid(runs[0], out)
        return
    write_page([_read(path) for path in runs], out)
    typer.echo(f"wrote {out}")


def _report_grid(folder: Path, out: Path) -> None:
    from tss.bench.collect import documents, read_runs, sequences
    from tss.report.page import write_page

    runs = read_runs(folder)
    found = {name: finished for name in sequences(runs) if (finished := documents(runs, name))}
    if not found:
        raise TssError(f"no cell of {folder} is done yet; go on with `tss bench run`")
    for name, finished in found.items():
        target = out if len(found) == 1 else out.with_stem(f"{out.stem}-{name}")
        typer.echo(f"wrote {write_page(finished, target)}")


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TssError(f"{path} is not a run document: {error}") from error
