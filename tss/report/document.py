"""Reading a run document: is it usable, and what each method scored when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from tss.errors import TssError
from tss.report.measures import Score

Document = Mapping[str, Any]
Documents = Document | Sequence[Document]
Matrix = list[list[Score]]


def as_list(documents: Documents) -> list[Document]:
    """One document or several, as a list; each is checked.

    Raises TssError that names what is missing, and if the documents are not about the same tasks.
    """
    found = [documents] if isinstance(documents, Mapping) else list(documents)
    if not found:
        raise TssError("there is no run to report; give at least one run document")
    for number, document in enumerate(found, 1):
        _check(document, f"run document {number}" if len(found) > 1 else "the run document")
    names = {task["name"] for task in found[0]["tasks"]}
    for number, document in enumerate(found, 1):
        if {task["name"] for task in document["tasks"]} != names:
            raise TssError(f"run documents 1 and {number} are about different tasks; report them separately")
    return found


def _check(document: Document, where: str) -> None:
    for key in ("tasks", "methods"):
        if not isinstance(document, Mapping) or not document.get(key):
            raise TssError(f"{where} has no {key!r}; it was cut short or is not a run document")
    names = [task.get("name") for task in document["tasks"]]
    if None in names or len(set(names)) != len(names):
        raise TssError(f"{where}: each task needs a name of its own, got {names}")
    for key, method in document["methods"].items():
        rows = method.get("matrix") or []
        if not rows and not (method.get("diagonal") and method.get("final")):
            raise TssError(f"{where}: method {key!r} has neither 'matrix' nor 'diagonal' and 'final'")
        if len(rows) > len(names) or any(len(row) > len(names) for row in rows):
            raise TssError(f"{where}: the matrix of {key!r} is larger than its {len(names)} tasks")
    reference = document.get("reference")
    if reference is not None and reference not in document["methods"]:
        raise TssError(f"{where}: the reference {reference!r} is not one of its methods")


def numbers(method: Mapping[str, Any], key: str, count: int) -> list[Score]:
    """The list under `key`, one entry per task; `None` where it is missing or not a finite number."""
    values = [finite(value) for value in method.get(key) or []][:count]
    return values + [None] * (count - len(values))


def matrix(method: Mapping[str, Any], count: int) -> Matrix:
    """A[k][i] with a row for each task learnt and `count` columns.

    Cells that were not run are taken from `diagonal` and, in the last row, from `final`; else they are `None`.
    """
    rows = method.get("matrix") or []
    learnt = len(rows) or len(method.get("diagonal") or [])
    diagonal, final = numbers(method, "diagonal", count), numbers(method, "final", count)
    cells: Matrix = [[None] * count for _ in range(learnt)]
    for k in range(learnt):
        for i in range(k + 1):
            cell = finite(rows[k][i]) if k < len(rows) and i < len(rows[k]) else None
            if cell is None and k == learnt - 1:
                cell = final[i]
            cells[k][i] = diagonal[i] if cell is None and i == k else cell
    return cells


def when_learnt(cells: Matrix) -> list[Score]:
    """The diagonal: each task's score when it was just learnt. One entry per task learnt."""
    return [row[k] for k, row in enumerate(cells)]


def at_the_end(cells: Matrix) -> list[Score]:
    """The last row: each task's score after the last task. One entry per task learnt."""
    return cells[-1][: len(cells)] if cells else []


def is_complete(cells: Matrix) -> bool:
    """Whether every score of the lower triangle was run."""
    return all(cell is not None for k, row in enumerate(cells) for cell in row[: k + 1])


def by_name(document: Document, values: Sequence[Any]) -> dict[str, Any]:
    """Entries in the order learnt, under the names of their tasks."""
    return {task["name"]: value for task, value in zip(document["tasks"], values, strict=False)}


def finite(value: Any) -> Score:
    """The number as it is; `None` for anything else, not-a-number and infinity included."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if isfinite(value) else None
