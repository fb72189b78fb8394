"""Do methods stay sane over forty tasks? State and seconds of every task, and whether they grow faster than linearly.

    python benchmarks/method_growth.py --methods hat cat ctr cuber --out results/methods/growth.json

Each method learns short tasks of all kinds one after another in its own store, on a small backbone, at a few steps
each. Printed for tasks 1, 10, 20 and 40: bytes that the task keeps, bytes that all tasks share by then, seconds of
learning it (processor time on a CPU; inner trainings, evaluation and saving included). The verdict is from two
least-squares fits, over all tasks but the first three, which warm up: growth is faster than linear if there is growth,
the quadratic term is above twice its standard error and, over the whole range, above a tenth of what the straight line
says of the last task. Times are of whatever machine this runs on; "paced" ones are divided by how slow a fixed work
was before and after the task, relative to its median, and the verdict is about them. Bytes are the same everywhere.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tss import Learner, Task
from tss.backbones.added import Pass
from tss.config import resolve

SHOWN = (1, 10, 20, 40)
THINGS = ("screen", "film", "table", "train", "bank", "sound", "market", "battery")
LENGTHS = {"max_input": 32, "max_target": 8, "beams": 1}


def toy(number: int) -> Task:
    """The task of that number: sentiment, names or replies in turn, with words of its own."""
    word = f"{THINGS[number % len(THINGS)]}{number}"
    splits = []
    for part in range(3):
        rows: list = []
        for thing in THINGS[part * 2 : part * 2 + (4 if part == 0 else 2)]:
            if number % 3 == 0:
                rows += [(f"good {word} {thing}", "yes"), (f"bad {word} {thing}", "no")]
            elif number % 3 == 1:
                rows += [(["John", word, thing], ["B-X", "I-X", "O"]), (["the", thing, word], ["O", "O", "B-X"])]
            else:
                rows += [(f"{word} {thing}", f"good {word}"), (f"poor {thing}", "bad day")]
        splits.append(rows)
    kind = ("classification", "tagging", "generation")[number % 3]
    return Task.from_lists(f"task {number + 1}", kind, *splits, lengths=LENGTHS)


def measure(method: str, args: argparse.Namespace) -> list[dict[str, float]]:
    """One row a task: bytes kept, bytes shared, seconds."""
    options = {"max_steps": args.steps, "batch_size": 4, "eval_steps": args.steps, "checkpoint_steps": 10**6}
    clock = time.process_time if args.device == "cpu" else time.perf_counter  # others may use the same cores
    rows: list[dict[str, float]] = []
    paces: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder, "store")
        known = resolve(method).flat()
        chosen = dict(pair.split("=", 1) for pair in args.set)
        given = {**options, **{key: value for key, value in chosen.items() if key in known}}
        learner = Learner.open(store, args.backbone, method, device=args.device, config=given)
        assert learner.method.label  # loads the backbone, which is no task's cost
        skipped = 0
        for number in range(args.tasks):
            task = toy(number + skipped)
            while task.kind not in learner.method.kinds:
                skipped += 1
                task = toy(number + skipped)
            before = pace(learner, clock)
            started = clock()
            learned = learner.learn(task)
            seconds = clock() - started
            paces.append((before + pace(learner, clock)) / 2)
            shared = sum(t.numel() * t.element_size() for t in learner.method.shared().values())
            rows.append({"task_bytes": learned.bytes, "shared_bytes": shared, "seconds": round(seconds, 3)})
            if sys.stderr.isatty():
                print(f"\r{method}: task {number + 1} of {args.tasks}", end="", file=sys.stderr)
    for row, each in zip(rows, paces, strict=True):
        row["paced_seconds"] = round(row["seconds"] * float(np.median(paces)) / each, 3)
    return rows


def pace(learner: Learner, clock: Callable[[], float]) -> float:
    """Seconds of a fixed work, the bare backbone on a fixed input: what else the machine does now slows both."""
    import torch

    ids = torch.full((8, 24), 7, device=learner.backbone.device)
    started = clock()
    with torch.no_grad():
        for _ in range(4):
            learner.backbone.states(ids, torch.ones_like(ids), Pass()).sum().item()
    return clock() - started


def growth(values: list[float]) -> dict[str, float | bool]:
    """A straight line through all values but the first three, and how far a parabola bends from it by the last task.

    Three tasks in a row, one of each kind, count as one: kinds take unequal times.
    """
    groups = (len(values) - 3) // 3
    y = np.array(values[-3 * groups :], dtype=float).reshape(groups, 3).mean(axis=1)
    t = len(values) - 3 * groups + 2 + 3 * np.arange(groups, dtype=float)
    line = np.polyfit(t, y, 1)
    curve, spread = np.polyfit(t, y, 2, cov=True)
    whole = (t[-1] - t[0]) ** 2
    bend, error = float(curve[0] * whole), float(spread[0, 0] ** 0.5 * whole)
    faster = line[0] > 0 and bend > 2 * error and bend > 0.1 * float(np.polyval(line, t[-1]))
    return {"per_task": float(line[0]), "bend": bend, "bend_error": error, "linear": not bool(faster)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["hat", "cat", "ctr", "cuber"])
    parser.add_argument("--backbone", default="bart-nano")
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--steps", type=int, default=4, help="training steps a task")
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="for methods that have the option"
    )
    parser.add_argument("--out", type=Path, help="where to write all numbers as JSON")
    args = parser.parse_args()
    if args.tasks < 16:
        parser.error("at least 16 tasks: a parabola is fitted to groups of three")

    found = {}
    for method in args.methods:
        rows = measure(method, args)
        fits = {key: growth([row[key] for row in rows]) for key in ("task_bytes", "shared_bytes", "paced_seconds")}
        found[method] = {"rows": rows, "growth": fits}
        print(f"\n{method}")
        for number in (n for n in SHOWN if n <= len(rows)):
            row = rows[number - 1]
            print(
                f"  task {number:2}: keeps {row['task_bytes'] / 1e3:8.1f} kB, all share "
                f"{row['shared_bytes'] / 1e3:8.1f} kB, {row['seconds']:6.2f} s ({row['paced_seconds']:.2f} s paced)"
            )
        for key, fit in fits.items():
            verdict = "linear at worst" if fit["linear"] else "FASTER THAN LINEAR"
            print(f"  {key}: {fit['per_task']:+.3g} a task, {verdict}")
    if args.out:
        settings = {"backbone": args.backbone, "tasks": args.tasks, "steps": args.steps, "device": args.device}
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps({**settings, "set": args.set, "methods": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
