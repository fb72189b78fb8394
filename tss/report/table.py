"""The tables of a run: for the terminal, at any width from 60 columns, and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from tss.report.document import Documents
from tss.report.summary import Row, Summary, summarise

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

WIDE = 100
STAR = "*"


@dataclass(frozen=True)
class RunTables:
    """A renderable for `rich`: scores per task, measures, and the proof, fitted to the console's width.

    Methods that do not fit beside each other go into further tables below.
    """

    summary: Summary

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        width, summary = options.max_width, self.summary
        yield Text(summary.title, style="bold")
        what = "Score after the last task" + _over(summary.runs)
        for table in _tables(what, summary.scores, summary.methods, width, "Task"):
            yield table
        for table in _tables("The whole sequence" + _over(summary.runs), summary.measures, summary.methods, width, ""):
            yield table
        yield Text()
        for proof in summary.proof:
            mark, style = ("✓", "green") if proof.unchanged else ("✗", "bold red")
            yield Text(f"{mark} {proof.line}", style=style)
        if len(summary.methods) > 1:
            yield Text(f"{STAR} best of its row; scores in points of 100", style="dim")


def terminal_tables(documents: Documents) -> RunTables:
    """What `console.print` shows of a run, or of several seeds or orders of it.

    Raises TssError for a document that cannot be read.
    """
    return RunTables(summarise(documents))


def markdown(documents: Documents) -> str:
    """The same tables, and those per family, as Markdown text; the best value of a row is bold.

    Raises TssError for a document that cannot be read.
    """
    summary = summarise(documents)
    over = _over(summary.runs)
    parts = [f"## {_plain(summary.title)}", f"### Score after the last task{over}"]
    parts.append(_markdown_table("Task", summary.methods, summary.scores, sections=True))
    parts += [f"### The whole sequence{over}", _markdown_table("Measure", summary.methods, summary.measures)]
    if summary.families:
        parts += [f"### By family{over}", _markdown_table("Measure", summary.methods, summary.families)]
    parts += [_plain(proof.line) for proof in summary.proof]
    return "\n\n".join(parts) + "\n"


# --- terminal -------------------------------------------------------------------------------------------------


def _tables(
    title: str, rows: Sequence[Row], methods: Sequence[str], width: int, corner: str
) -> Iterator[RenderableType]:
    """The rows with as many methods beside each other as the width holds; every method once."""
    wide = width >= WIDE
    notes = wide and any(row.note for row in rows)
    columns = [_column_width(method, [row.cells[i] for row in rows]) for i, method in enumerate(methods)]
    # Names may take what the methods leave, and are folded rather than cut below that.
    names = min(max(len(row.label) for row in rows), max(20, min(40, width - 2 - sum(columns) - 2 * len(columns))))
    left = names + 3 + (max(len(row.note) for row in rows) + 3 if notes else 0)
    for block in _blocks(columns, width - left):
        yield Text("\n" + title, style="italic")
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(corner, overflow="fold", max_width=names)
        if notes:
            table.add_column("Kind · metric", style="dim", no_wrap=True)
        for i in block:
            table.add_column(Text(methods[i]), justify="right", width=columns[i], vertical="bottom")
        _fill(table, rows, block, notes)
        yield table


def _fill(table: Table, rows: Sequence[Row], block: Sequence[int], notes: bool) -> None:
    sections = len({row.section for row in rows}) > 1
    for section, members in groupby(rows, key=lambda row: row.section):
        if sections:
            table.add_row(Text(section or "other", style="bold cyan"))
        for row in members:
            note = [Text(row.note)] if notes else []
            table.add_row(Text(row.label), *note, *(_marked(row, i) for i in block))


def _marked(row: Row, i: int) -> Text:
    # A blank keeps the digits of unmarked values in line with those of marked ones.
    return Text(row.cells[i] + STAR, style="bold") if i in row.best else Text(row.cells[i] + " ")


def _column_width(method: str, cells: Iterable[str]) -> int:
    words = max((len(word) for word in method.split()), default=1)
    return max(words, max((len(cell) + len(STAR) for cell in cells), default=1))


def _blocks(columns: Sequence[int], room: int) -> list[list[int]]:
    """Column numbers, cut so that each block fits into the room; a block holds at least one."""
    blocks: list[list[int]] = [[]]
    used = 0
    for i, column in enumerate(columns):
        if blocks[-1] and used + column + 2 > room:
            blocks.append([])
            used = 0
        blocks[-1].append(i)
        used += column + 2
    return blocks


def _over(runs: int) -> str:
    return f" (mean ± deviation of {runs} runs)" if runs > 1 else ""


# --- Markdown -------------------------------------------------------------------------------------------------


def _markdown_table(corner: str, methods: Sequence[str], rows: Sequence[Row], sections: bool = False) -> str:
    sections = sections and len({row.section for row in rows}) > 1
    head = [corner, *(["Group"] if sections else []), *map(_plain, methods)]
    lines = ["| " + " | ".join(head) + " |"]
    left = 2 if sections else 1
    lines.append("|" + " --- |" * left + " ---: |" * len(methods))
    for row in rows:
        cells = [f"**{cell}**" if i in row.best else cell for i, cell in enumerate(row.cells)]
        group = [_plain(row.section)] if sections else []
        lines.append("| " + " | ".join([_plain(row.label), *group, *cells]) + " |")
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    for character in "\\`*_[]|<>":
        text = text.replace(character, "\\" + character)
    return " ".join(text.split())
