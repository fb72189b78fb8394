"""Logs as a grid writes them, with made-up answers: all tables without any training."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tss.bench.plan import Cell, make_plan
from tss.data.sequences import task_settings
from tss.methods import method_class
from tss.tasks import metrics
from tss.tasks.task import Example, Task

TESTS = 12


def answers(
    task: str, chance: random.Random, right: float, tests: int = TESTS
) -> tuple[dict[str, float], dict[str, list]]:
    """Scores and columns of a test, made by the package from made-up answers."""
    from tss.bench.examples import columns

    settings = task_settings(task)
    texts = ["the hotel is in the north", "there is a train at nine", "i booked a table for you tonight"]
    gold: list[Any] = []
    predicted: list[Any] = []
    for i in range(tests):
        good = chance.random() < right
        if settings.kind == "classification":
            gold.append(settings.labels[i % len(settings.labels)])
            predicted.append(gold[-1] if good else chance.choice(settings.labels))
        elif settings.kind == "tagging":
            name = next(label[2:] for label in settings.labels if label.startswith("B-"))
            gold.append((f"B-{name}", "O"))
            predicted.append([f"B-{name}", "O"] if good else ["O", f"B-{name}"])
        else:
            gold.append(chance.choice(texts))
            predicted.append(gold[-1] if good else chance.choice(texts))
    example = Example(("w", "w") if settings.kind == "tagging" else ("w",), gold[0])
    made = Task(task, settings.kind, settings.labels, train=(example,), metric=settings.metric)
    scores = metrics.score(settings.kind, settings.metric, predicted, gold, settings.labels)
    return scores, columns(made, predicted, gold)


def write_runs(
    folder: Path,
    sequences: list[str],
    orders: list[int],
    methods: list[str],
    right: dict[str, float] | None = None,
    options: dict[str, Any] | None = None,
) -> Path:
    """A finished grid of these methods. right: how often a method's answers are right when a task was just learnt."""
    plan = make_plan(sequences, orders, methods, [0])
    folder.mkdir(parents=True)
    asked = {f"{one.sequence}/{one.order}": list(one.tasks) for one in plan.asked}
    settings = {"backbone": "made-up", "preset": "recommended", "options": options or {}, "limit_test": 0, "first": 0}
    grid = {"settings": settings, "asked": asked, "methods": methods, "seeds": [0]}
    (folder / "grid.json").write_text(json.dumps(grid))
    for cell in plan.cells:
        lines = [_header(cell), *_lines(cell, (right or {}).get(cell.method, 0.8))]
        (folder / f"{cell.key}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def _header(cell: Cell) -> dict[str, Any]:
    kind = method_class(cell.method)
    tasks = [
        {"ref": task, "name": task, "kind": settings.kind, "family": settings.family, "metric": settings.metric}
        | {"tests": TESTS, "hash": ""}
        for task in cell.tasks
        for settings in [task_settings(task)]
    ]
    about = {key: getattr(cell, key) for key in ("method", "sequence", "order", "seed", "triangle")}
    about |= {"label": kind.label, "forgets": kind.forgets, "order_free": kind.order_free, "joint": kind.joint}
    return {"cell": cell.key, **about, "backbone": "made-up", "tasks": tasks, "environment": {"torch": "none"}}


def _lines(cell: Cell, right: float) -> list[dict[str, Any]]:
    forgets = method_class(cell.method).forgets
    chance = random.Random(cell.key)
    lines: list[dict[str, Any]] = []
    for k, task in enumerate(cell.tasks):
        scores, found = answers(task, chance, right)
        last = k + 1 == len(cell.tasks)
        line = {"task": task, "scores": scores, "examples": found, "bytes": 1, "gate_bytes": 1, "head_bytes": 1}
        line |= {"facts": {"seconds": 1.0, "steps": 1}, "curve": [], "file": str(k), "frozen": "", "spot": []}
        line["proof"] = {"comparisons": 0, "outputs": 0, "changed_bytes": 0}
        line["row"] = [next(iter(old["scores"].values())) for old in lines]
        if forgets and last:
            again = {old["task"]: answers(old["task"], chance, 0.4) for old in lines}
            line["row"] = [next(iter(scores.values())) for scores, _ in again.values()]
            line["final_scores"] = {name: scores for name, (scores, _) in again.items()}
            line["final_examples"] = {name: found for name, (_, found) in again.items()}
        elif forgets:
            line["row"] = [100 * chance.random() if cell.triangle else None for _ in lines]
        line["row"].append(next(iter(scores.values())))
        lines.append(line)
    return lines
