"""How the commands speak: results on stdout (text, or one JSON document), everything else on stderr."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tss.learning.progress import Progress

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]


def document(value: Any) -> None:
    """Print `value` as the one JSON document of this command. What is not a number becomes null, as JSON wants it."""
    typer.echo(json.dumps(_plain(value), ensure_ascii=False, indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def note(message: str) -> None:
    """Say something beside the result."""
    typer.echo(message, err=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under headings; cells fold rather than get lost where the terminal is narrow."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column in columns:
        shown.add_column(column, overflow="fold")
    for row in rows:
        # A task's name is the user's text: never markup, and control characters stay visible.
        shown.add_row(*(Text(printable(cell)) for cell in row))
    Console().print(shown)


def printable(text: str) -> str:
    """The text with control and direction-changing characters escaped, so that it cannot disturb a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def size(count: int) -> str:
    """Bytes for a person: `812 B`, `14.2 kB`, `3.1 MB`."""
    if count < 1000:
        return f"{count} B"
    amount, units = count / 1000, ["kB", "MB", "GB"]
    while amount >= 1000 and len(units) > 1:
        amount, units = amount / 1000, units[1:]
    return f"{amount:.1f} {units[0]}"


def duration(seconds: float) -> str:
    """Seconds for a person: `42 s`, `3 min 20 s`, `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def scores(values: dict[str, float]) -> str:
    """`accuracy 91.20, macro_f1 89.70`, in points."""
    return ", ".join(f"{name} {value:.2f}" for name, value in values.items())


@contextmanager
def progress_bar(quiet: bool = False) -> Iterator[Callable[[Progress], None] | None]:
    """What `Learner.learn(progress=)` wants: a live bar in a terminal, a line for each evaluation anywhere else."""
    from rich.console import Console

    console = Console(stderr=True)
    if quiet:
        yield None
    elif not console.is_terminal:
        yield _line
    else:
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}"), BarColumn(None), TextColumn("{task.fields[state]}"))
        with Bar(*columns, TimeRemainingColumn(compact=True), console=console, transient=True, expand=True) as bar:
            row = bar.add_task("", total=None, state="")
            dev = ""

            def update(now: Progress) -> None:
                nonlocal dev
                if now.dev is not None:
                    dev = f" dev {now.dev:.4g}"
                description = printable(now.task)[:16] + ("" if now.phase == "learning" else f" {now.phase}")
                state = f"{now.step}/{now.steps} loss {now.loss:.3f}{dev}"
                bar.update(row, description=description, completed=now.step, total=now.steps, state=state)

            yield update


def _line(now: Progress) -> None:
    if now.dev is not None:
        note(f"{printable(now.task)}: {now.phase} {now.step}/{now.steps}, loss {now.loss:.3f}, dev {now.dev:.4g}")
