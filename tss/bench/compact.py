"""Lines of runs in a smaller form for a packed file, and back. Tables and intervals are the same from either form.

What is lost: digits of a line's facts, and, of a method that forgets, single examples that no table reads: those of a
task when it was just learnt, once it was tested again after the last one (its scores of both moments are kept).
A column of small numbers is a text with one letter a number. What is the same in every cell (gold labels, entities,
lengths) stands apart from what differs, so that a compressor finds it again; predictions say only where they differ
from gold. What follows from the rest of the line, or from the lines before it, is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tss.bench.examples import Columns

Line = dict[str, Any]
FORM = 2  # said in the first line of a packed file; a file of form 1 holds lines as they are
# Letters that need no escape in JSON; the first ninety take one byte each.
_LETTERS = "".join(map(chr, (*range(0x23, 0x5C), *range(0x5D, 0x7F), *range(0xA1, 0x250))))
_NUMBER = {letter: number for number, letter in enumerate(_LETTERS)}
_RIGHT = "!"
_DIGITS = 6  # decimals of facts


def compacted(lines: Sequence[Line]) -> list[Line]:
    """The task lines of one run in their small form."""
    again = lines[-1].get("final_examples", {}) if lines else {}
    out = []
    for k, line in enumerate(lines):
        small = {**line, "facts": {key: _rounded(value) for key, value in line["facts"].items()}}
        if line["row"] == _expected_row(line, lines[:k]):
            del small["row"]
        elif line["row"][:-1] == [None] * k:
            small["row"] = line["row"][-1]
        if line["task"] in again:
            small.pop("examples", None)
        elif "examples" in line:
            small["examples"] = squeezed(line["examples"])
        if "final_examples" in line:
            small["final_examples"] = {task: squeezed(found) for task, found in line["final_examples"].items()}
        out.append(small)
    return out


def expanded(line: Line, before: Sequence[Line]) -> Line:
    """A task line as it was written by its run. before: the lines before it, expanded."""
    whole = dict(line)
    if "row" not in line:
        whole["row"] = _expected_row(line, before)
    elif not isinstance(line["row"], list):
        whole["row"] = [*[None] * len(before), line["row"]]
    if "examples" in line:
        whole["examples"] = unsqueezed(line["examples"])
    if "final_examples" in line:
        whole["final_examples"] = {task: unsqueezed(found) for task, found in line["final_examples"].items()}
    return whole


def _expected_row(line: Line, before: Sequence[Line]) -> list[float | None]:
    """The row if nothing was forgotten, or after the last task the scores that the line holds anyway."""
    scores: dict[str, dict[str, float]] = line.get("final_scores") or {}
    return [
        *(_main(scores[old["task"]] if old["task"] in scores else old["scores"]) for old in before),
        _main(line["scores"]),
    ]


def _main(scores: dict[str, float]) -> float:
    return next(iter(scores.values()))


def _rounded(value: Any) -> Any:
    return round(value, _DIGITS) if isinstance(value, float) else value


def triangle(overlap: Sequence[Sequence[float]]) -> list[list[float]]:
    """The part of a symmetric matrix below its diagonal of ones; the matrix itself if it is no such."""
    below = [list(row[:i]) for i, row in enumerate(overlap)]
    return below if square(below) == overlap else [list(row) for row in overlap]


def square(below: Sequence[Sequence[float]]) -> list[list[float]]:
    """`triangle` undone."""
    if not below or below[0]:
        return [list(row) for row in below]
    count = len(below)
    return [[1.0 if i == j else below[max(i, j)][min(i, j)] for j in range(count)] for i in range(count)]


# --- columns of examples -------------------------------------------------------------------------


def squeezed(found: Columns) -> dict[str, Any]:
    """Columns as texts; those of another form, or with numbers too large for a letter, as they are."""
    for kind, (take, give) in _FORMS.items():
        made = take(found) if kind in found else None
        if made is not None and give(made) == found:
            return made
    return found


def unsqueezed(made: dict[str, Any]) -> Columns:
    """`squeezed` undone."""
    for kind, (_, give) in _FORMS.items():
        if isinstance(made.get(f"{kind}*"), str):
            return give(made)
    return made


def _text(values: Sequence[int]) -> str | None:
    if all(type(value) is int and 0 <= value < len(_LETTERS) for value in values):
        return "".join(_LETTERS[value] for value in values)
    return None


def _numbers(text: str) -> list[int]:
    return [_NUMBER[letter] for letter in text]


def _texts(given: dict[str, Any], columns: dict[str, Sequence[int]]) -> dict[str, Any] | None:
    made = {key: _text(values) for key, values in columns.items()}
    return None if None in made.values() else {**given, **made}


def _take_labels(found: Columns) -> dict[str, Any] | None:
    gold, predicted = _text(found["gold"]), _text(found["predicted"])
    if gold is None or predicted is None or len(gold) != len(predicted):
        return None
    wrong = "".join(_RIGHT if one == other else one for one, other in zip(predicted, gold, strict=True))
    return {"labels": found["labels"], "predicted*": wrong, "gold": gold}


def _give_labels(made: dict[str, Any]) -> Columns:
    pairs = zip(made["predicted*"], made["gold"], strict=True)
    predicted = "".join(other if one == _RIGHT else one for one, other in pairs)
    return {"labels": made["labels"], "predicted": _numbers(predicted), "gold": _numbers(made["gold"])}


def _take_entities(found: Columns) -> dict[str, Any] | None:
    gold = [hit + missed for hit, missed in zip(found["tp"], found["fn"], strict=True)]
    return _texts({}, {"tp*": found["fn"], "fp": found["fp"], "gold": gold})


def _give_entities(made: dict[str, Any]) -> Columns:
    missed, gold = _numbers(made["tp*"]), _numbers(made["gold"])
    return {"tp": [n - m for n, m in zip(gold, missed, strict=True)], "fp": _numbers(made["fp"]), "fn": missed}


def _take_replies(found: Columns) -> dict[str, Any] | None:
    if any(len(row) != 4 for row in found["correct"]):
        return None
    correct = {f"correct{n}": [row[n] for row in found["correct"]] for n in range(4)}
    return _texts({}, {"sys_len*": found["sys_len"], "ref_len": found["ref_len"], **correct})


def _give_replies(made: dict[str, Any]) -> Columns:
    lengths = _numbers(made["sys_len*"])
    correct = zip(*(_numbers(made[f"correct{n}"]) for n in range(4)), strict=True)
    total = [[max(length - n, 0) for n in range(4)] for length in lengths]
    ref = _numbers(made["ref_len"])
    return {"sys_len": lengths, "ref_len": ref, "correct": [list(row) for row in correct], "total": total}


_FORMS = {
    "predicted": (_take_labels, _give_labels),
    "tp": (_take_entities, _give_entities),
    "sys_len": (_take_replies, _give_replies),
}
