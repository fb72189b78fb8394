"""The demo: a mixed sequence of small tasks, learnt one after another by several methods on the embedded backbone."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tss.bench.sequence import method_entry, proof, run_sequence
from tss.data.demo import demo_tasks, group_of
from tss.errors import StoreError
from tss.learner import Learner
from tss.learning.probes import environment
from tss.methods import method_class
from tss.report.page import write_page
from tss.report.table import terminal_tables
from tss.tasks.task import Task

if TYPE_CHECKING:
    from rich.console import Console

    from tss.learning.progress import Progress

# Steps and batch are what two cores manage in six minutes. The frozen weights are larger than the default, made
# for models six times as wide: chosen by dev scores on a seed that no table shows (results/ideas.md).
OPTIONS: dict[str, Any] = {"max_steps": 110, "batch_size": 16, "eval_steps": 22, "patience": 100, "adapter_std": 0.1}
SOFTER: dict[str, Any] = {"impt_heat": 10.0}  # so few steps cannot overcome the full mask; chosen in the same way
BY_DEFAULT = ("tss", "supsup", "one-adapter")
QUICK = ("tss", "one-adapter")
REFERENCE = "one-adapter"


def run_demo(out: Path, quick: bool, methods: list[str] | None, seed: int, console: Console) -> dict[str, Any]:
    """Learn, show live progress, print the tables, write `run.json` and `report.html`; returns the run document.

    An interrupted demo goes on where it was; a finished one of the same settings is run anew.
    """
    chosen = list(dict.fromkeys(methods or (QUICK if quick else BY_DEFAULT)))
    for name in chosen:
        method_class(name)
    settings = {"seed": seed, "quick": quick, "options": {**OPTIONS, **SOFTER}}
    _prepare(out, settings)
    tasks = demo_tasks(seed, quick)
    console.print(f"{len(tasks)} tasks, {len(chosen)} methods, backbone bart-nano, everything in [bold]{out}[/bold]")
    document = _document(tasks, chosen, seed)
    with _bars(console) as bars:
        whole = bars.add_task("all tasks", total=len(chosen) * len(tasks), note="")
        for name in chosen:
            learner = Learner.open(out / "stores" / name, method=name, device="cpu", config=options_of(name), seed=seed)
            label = learner.method.label
            lines = run_sequence(
                learner, tasks, out / "stores" / f"{name}.jsonl", watch=_watch(bars, label), told=_told(bars, whole)
            )
            bars.update(whole, completed=(chosen.index(name) + 1) * len(tasks))
            document["methods"][name] = method_entry(learner, lines)
            document["proof"][name] = proof(lines)
            document["environment"] = environment(learner.backbone.device, learner.backbone.model.dtype)
    (out / "run.json").write_text(json.dumps(document) + "\n", encoding="utf-8")
    page = write_page(document, out / "report.html")
    console.print(terminal_tables(document))
    console.print(f"Look at it: [bold]{page}[/bold]")
    return document


def options_of(method: str) -> dict[str, Any]:
    """The demo's options, those left out that the method does not have."""
    known = {field.name for field in fields(method_class(method).Config)}
    return OPTIONS | {key: value for key, value in SOFTER.items() if key in known}


def _document(tasks: list[Task], chosen: list[str], seed: int) -> dict[str, Any]:
    described = [
        {"name": task.name, "kind": task.kind, "family": task.family, "group": group_of(task), "metric": task.metric}
        for task in tasks
    ]
    return {
        "title": f"tss demo, {len(tasks)} tasks",
        "command": " ".join(["tss", *sys.argv[1:]]) if "demo" in sys.argv else "tss demo",
        "seed": seed,
        "tasks": described,
        "methods": {},
        "proof": {},
        "reference": REFERENCE if REFERENCE in chosen else None,
    }


def _prepare(out: Path, settings: dict[str, Any]) -> None:
    """Keep what an interrupted demo of these settings left; clear what a finished or another one left."""
    mark, finished = out / "settings.json", out / "run.json"
    if mark.exists():
        same = json.loads(mark.read_text(encoding="utf-8")) == settings
        if finished.exists() or not same:
            shutil.rmtree(out / "stores", ignore_errors=True)
            finished.unlink(missing_ok=True)
    elif out.exists() and any(out.iterdir()):
        raise StoreError(f"{out} is not empty and no demo was run there; name another folder with --out")
    out.mkdir(parents=True, exist_ok=True)
    mark.write_text(json.dumps(settings) + "\n", encoding="utf-8")


def _bars(console: Console):
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description:<22.22}"),
        BarColumn(bar_width=18),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
    )


def _watch(bars: Any, label: str):
    """One bar for the task being learnt, with loss and dev score."""
    rows: dict[str, Any] = {}

    def watch(progress: Progress) -> None:
        if progress.task not in rows:
            for row in rows.values():
                bars.remove_task(row)
            rows.clear()
            rows[progress.task] = bars.add_task(f"{label}: {progress.task}", total=progress.steps, note="")
        note = f"loss {progress.loss:.2f}" if progress.phase == "learning" else progress.phase
        if progress.best is not None:
            note += f", dev {progress.best:.1f}"
        bars.update(rows[progress.task], completed=progress.step, note=note)

    return watch


def _told(bars: Any, whole: Any):
    def told(line: dict[str, Any]) -> None:
        metric, score = next(iter(line["scores"].items()))
        bars.update(whole, advance=1, note=f"{line['task']}: {metric} {score:.1f}")

    return told
