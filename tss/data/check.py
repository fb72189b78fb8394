"""Look prepared data over: counts beside the paper's, labels, lengths, overlaps, and rows that are not as they were."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from tss.data.prepare import FAMILIES
from tss.data.recipe import SPLITS
from tss.data.sequences import facts, task_settings
from tss.errors import TaskError
from tss.tasks.example import Example, check_labels_known, check_shape

SHOWN_PROBLEMS = 3  # a file; the rest is counted


@dataclass(frozen=True)
class Words:
    """How long texts are, in words: median, 95 percent of them at most, longest."""

    median: int
    most: int
    longest: int

    def __str__(self) -> str:
        return f"{self.median}/{self.most}/{self.longest}"


@dataclass
class TaskReport:
    """What was found in one task. `problems` is empty if every row is as the recipe makes it."""

    task: str
    rows: dict[str, int] = field(default_factory=dict)
    paper: dict[str, int] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    input_words: Words = Words(0, 0, 0)
    target_words: Words | None = None
    overlaps: dict[str, int] = field(default_factory=dict)
    deviation: str = ""
    problems: list[str] = field(default_factory=list)


@dataclass
class Report:
    """What was found in a folder of prepared data. `text()` shows it to people."""

    tasks: list[TaskReport]
    absent: list[str]
    problems: list[str]

    @property
    def ok(self) -> bool:
        return not self.problems

    def text(self) -> str:
        return "\n".join(_lines(self)) + "\n"


def check(data: Path | str) -> Report:
    """Look over `<data>/<family>/<task>/{train,valid,test}.jsonl`.

    Families that are not there are listed as absent; a task, file or row that is missing, new or changed is a problem.
    Raises TaskError if the folder holds no family at all.
    """
    data = Path(data)
    present = [family for family in FAMILIES if (data / family).is_dir()]
    if not present:
        raise TaskError(f"no prepared data in {data} (expected folders {', '.join(FAMILIES)}); run tss data prepare")
    tasks = [_check_task(data, f"{family}/{task}") for family in present for task in FAMILIES[family].TASKS]
    problems = [problem for task in tasks for problem in task.problems]
    for family in present:
        for folder in sorted((data / family).iterdir()):
            if f"{family}/{folder.name}" not in facts("tasks"):
                problems.append(f"{folder}: not one of the 40 tasks")
    return Report(tasks, [family for family in FAMILIES if family not in present], problems)


def digest(rows: Iterable[dict[str, Any]]) -> str:
    """A hash of the rows and their order, whatever blanks the file has between them."""
    lines = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def read_rows(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """The numbered JSON objects of a prepared file, one a line. Raises TaskError that names file and row."""
    try:
        lines = path.read_bytes().decode().split("\n")
    except OSError as error:
        raise TaskError(f"prepared file not readable: {path} ({error.strerror}); run tss data prepare") from error
    except UnicodeDecodeError as error:
        raise TaskError(f"{path} is not UTF-8 at byte {error.start}; prepare it again") from error
    rows = []
    for number, line in enumerate(lines[:-1] if lines[-1] == "" else lines, 1):
        try:
            rows.append((number, json.loads(line)))
        except json.JSONDecodeError as error:
            raise TaskError(f"{path}, row {number} is not JSON ({error.msg}); prepare it again") from error
    return rows


def to_example(family: str, row: dict[str, Any]) -> Example:
    """A prepared row as an Example. Raises KeyError or TypeError if it has not its family's fields."""
    if family == "asc":
        return Example((row["text"], row["aspect"]), row["label"])
    if family == "ccd":
        return Example((row["text"],), row["label"])
    if family == "ner":
        return Example(tuple(row["tokens"]), tuple(row["tags"]))
    return Example((row["source"],), row["target"])


def _check_task(data: Path, task: str) -> TaskReport:
    known = facts("tasks")[task]
    report = TaskReport(task, paper=known["paper_counts"], deviation=facts("deviations").get(task, ""))
    splits = {split: _read_split(data / task / f"{split}.jsonl", report) for split in SPLITS}
    examples = {}
    for split, rows in splits.items():
        path = data / task / f"{split}.jsonl"
        report.rows[split] = len(rows)
        examples[split] = _checked_examples(task, path, rows, report)
        difference = len(rows) - known["counts"][split]
        if difference:
            change = f"{abs(difference)} {'more' if difference > 0 else 'fewer'}"
            report.problems.append(f"{path}: {len(rows)} rows, {change} than the recipe makes")
        elif digest(row for _, row in rows) != facts("rows")[task][split]:
            report.problems.append(f"{path}: as many rows as the recipe makes, but not the same ones in the same order")
    _measure(report, [example for split in SPLITS for example in examples[split].values()])
    _overlaps(report, {split: [row for n, row in splits[split] if n in examples[split]] for split in SPLITS})
    return report


def _read_split(path: Path, report: TaskReport) -> list[tuple[int, dict[str, Any]]]:
    try:
        return read_rows(path)
    except TaskError as error:
        report.problems.append(str(error))
        return []


def _checked_examples(task: str, path: Path, rows: list[tuple[int, Any]], report: TaskReport) -> dict[int, Example]:
    """The well-formed rows by their number; the others become problems."""
    settings = task_settings(task)
    examples, problems = {}, []
    for number, row in rows:
        try:
            example = to_example(settings.family, row)
            check_shape(settings.kind, example)
            check_labels_known(settings.kind, example, settings.labels)
            examples[number] = example
        except (KeyError, TypeError) as error:
            problems.append(f"{path}, row {number}: not the fields of {settings.family} ({error!r})")
        except TaskError as error:
            problems.append(f"{path}, row {number}: {error}")
    report.problems += problems[:SHOWN_PROBLEMS]
    if len(problems) > SHOWN_PROBLEMS:
        report.problems.append(f"{path}: {len(problems) - SHOWN_PROBLEMS} more rows like these")
    return examples


def _measure(report: TaskReport, examples: list[Example]) -> None:
    settings = task_settings(report.task)
    tagging = settings.kind == "tagging"
    report.input_words = _words(len(e.input) if tagging else sum(len(t.split()) for t in e.input) for e in examples)
    if settings.kind == "generation":
        report.target_words = _words(len(str(e.target).split()) for e in examples)
        return
    counts = Counter(label for e in examples for label in ([e.target] if isinstance(e.target, str) else e.target))
    report.labels = {label: counts[label] for label in settings.labels}


def _words(lengths: Iterable[int]) -> Words:
    ordered = sorted(lengths) or [0]
    last = len(ordered) - 1
    return Words(ordered[last // 2], ordered[-(-len(ordered) * 95 // 100) - 1], ordered[last])


def _overlaps(report: TaskReport, splits: dict[str, list[dict[str, Any]]]) -> None:
    same = FAMILIES[report.task.split("/")[0]].same
    keys = {split: {same(row) for row in rows} for split, rows in splits.items()}
    for one, other in combinations(SPLITS, 2):
        shared = len(keys[one] & keys[other])
        report.overlaps[f"{one}-{other}"] = shared
        if shared and one == "train":
            report.problems.append(f"{report.task}: {shared} examples are in both {one} and {other}")


def _lines(report: Report) -> Iterable[str]:
    yield "rows: train / valid / test (the paper's in brackets where they differ); words: median/95 %/longest;"
    yield "shared: examples that are in both train and valid, train and test, valid and test"
    for task in report.tasks:
        rows = " / ".join(str(task.rows[split]) for split in SPLITS)
        paper = " / ".join(str(task.paper[split]) for split in SPLITS)
        shown = rows if rows == paper else f"{rows} ({paper})"
        words = f"{task.input_words}" + (f" -> {task.target_words}" if task.target_words else "")
        shared = "/".join(map(str, task.overlaps.values()))
        yield f"{task.task:<15} {shown:<38} words {words:<32} shared {shared}"
        if task.labels:
            labels = ", ".join(f"{label} {count}" for label, count in task.labels.items())
            yield f"    {len(task.labels)} labels: {labels}"
        if task.deviation:
            yield f"    differs from the paper: {task.deviation}"
    for family in report.absent:
        yield f"not prepared: {family}"
    yield f"problems: {len(report.problems)}" if report.problems else "every row is as the recipes make it"
    yield from (f"    {problem}" for problem in report.problems)
