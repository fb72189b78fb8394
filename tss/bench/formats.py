"""Tables as text: Markdown, CSV, LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

MISSING = "–"


@dataclass(frozen=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def markdown(found: Sequence[Table]) -> str:
    out = []
    for table in found:
        out.append(f"## {table.title}\n")
        if table.columns:
            lines = [table.columns, ["---"] * len(table.columns), *table.rows]
            out.append("\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in lines) + "\n")
        out += [f"{i}. {note}" if len(table.notes) > 1 else note for i, note in enumerate(table.notes, 1)]
        out.append("")
    return "\n".join(out).rstrip() + "\n"


def as_csv(found: Sequence[Table]) -> str:
    """All tables under each other, the title in front of every row."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for table in found:
        writer.writerows([table.title, *row] for row in ([table.columns, *table.rows] if table.columns else []))
        writer.writerows([table.title, "note", note] for note in table.notes)
    return text.getvalue()


def latex(found: Sequence[Table]) -> str:
    """One `tabular` a table, for the booktabs package."""
    out = []
    for table in found:
        out.append(f"% {table.title}")
        if table.columns:
            body = [" & ".join(map(_tex, row)) + r" \\" for row in table.rows]
            head = " & ".join(map(_tex, table.columns)) + r" \\"
            aligned = "l" + "r" * (len(table.columns) - 1)
            top = rf"\begin{{tabular}}{{{aligned}}}" + "\n" + r"\toprule"
            out += [top, head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"]
        out += [f"% {note}" for note in table.notes]
        out.append("")
    return "\n".join(out)


_TEX = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "±": r"$\pm$", "–": "--", "−": "$-$", "′": "$'$"}


def _tex(cell: str) -> str:
    return "".join(_TEX.get(letter, letter) for letter in cell)


FORMATS = {"markdown": markdown, "csv": as_csv, "latex": latex}
