"""Tuning by dev scores: configurations of methods on the first tasks of a sequence's orders, side by side.

    python benchmarks/tune.py CONFIGS.json --data DATA --out RUNS --jobs 8 --device cuda
    python benchmarks/tune.py CONFIGS.json --out RUNS --summary results/raw/tuning.jsonl
    python benchmarks/tune.py --lines results/raw/tuning.jsonl        # the table again, from the lines kept

CONFIGS.json: {"orders": [3, 4], "sequence": "heterogeneous", "tasks": 16, "options": {...}, "configurations":
[{"label", "method", "options", and "orders" if they differ}]}; also "seeds": [0, 1], and "held_out": 5: the examples
of every fifth training text are left out of the training and stand in the tests' place, as dev examples that have
chosen a state cannot say what choosing was worth: the table then has held / dev at its best / dev at the end.
What is done is skipped. Tests are never looked at: the dev examples stand in their place. For generation the dev
score is minus the dev loss. Small dev sets are a lottery one by one, so the labels of a family's kept states are also
counted together: `pooled` is the share of right answers. `final` is the main metric of the dev examples after the last
task, which is what a method that forgets is judged by.

`--seconds` stops it; the same command goes on with the task that was cut, and the table has what there is.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tss.bench.plan import Cell
    from tss.bench.run import Job

DEV = 500  # `dev_examples` of the loop
FACTS = ("steps", "seconds", "flips", "inherited", "importance")


def without_tests(data: Path, out: Path, held_out: int) -> Path:
    """The data with other examples in the place of the tests: the dev examples, as many as decide while training, or
    those of every `held_out`-th training text, which then trains nothing. By text: where a sentence has several
    aspects, one left in the training gives the others away."""
    if not out.exists():
        begun = out.with_suffix(".part")  # a copy that is cut must not be taken for one without tests
        shutil.rmtree(begun, ignore_errors=True)
        shutil.copytree(data, begun)
        for task in (file.parent for file in begun.glob("*/*/valid.jsonl")):
            if held_out:
                rows = (task / "train.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
                texts = [text_of(row) for row in rows]
                held = set(list(dict.fromkeys(texts))[::held_out])
                tests = [row for row, text in zip(rows, texts, strict=True) if text in held]
                rest = [row for row, text in zip(rows, texts, strict=True) if text not in held]
                (task / "train.jsonl").write_text("".join(rest), encoding="utf-8")
            else:
                tests = (task / "valid.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)[:DEV]
            (task / "test.jsonl").write_text("".join(tests), encoding="utf-8")
        begun.rename(out)
    return out


def text_of(row: str) -> str:
    """What an example says: its text, source or words."""
    example = json.loads(row)
    return str(next(example[key] for key in ("text", "source", "tokens") if key in example))


def runs_of(plan: dict) -> Iterator[tuple[dict, int, Cell]]:
    """Each configuration with the orders that it is asked for, and what is to be trained there: one training a task or
    family for methods whose tasks do not influence each other, as in a grid, without what a method cannot learn."""
    from tss.bench.plan import Asked, plan_of
    from tss.data.sequences import sequence

    name = plan.get("sequence", "heterogeneous")
    for one in plan["configurations"]:
        for order in one.get("orders", plan["orders"]):
            tasks = tuple(sequence(name, order)[: plan["tasks"] or None])
            asked = [Asked(name, order, tasks)]
            for cell in plan_of(asked, [one["method"]], plan.get("seeds", [0]), triangle=False).cells:
                yield one, order, cell


def jobs(plan: dict, args) -> list[Job]:
    """What is not done yet, each cell once, though several orders may share it."""
    from tss.bench.cell import Grid
    from tss.bench.run import Job

    out = {}
    data = str(without_tests(Path(args.data), Path(args.out) / "data", plan.get("held_out", 0)))
    for one, _, cell in runs_of(plan):
        runs = Path(args.out) / one["label"]
        runs.mkdir(parents=True, exist_ok=True)
        grid = Grid(str(runs), data, args.backbone, "recommended", {**plan["options"], **one["options"]}, args.device)
        if not grid.done(cell):
            out[one["label"], cell.key] = Job(cell, grid)
    return list(out.values())


def run(plan: dict, args) -> str:
    """What failed, in words; empty if nothing did."""
    from tss.bench.run import run_jobs

    todo, began, ended = jobs(plan, args), time.monotonic(), Counter()

    def hear(job: Job, what: str, details: dict) -> None:
        if what in ("done", "failed"):
            ended[what] += 1
            where = f"{ended.total()}/{len(todo)}  {Path(job.grid.runs).name} {job.cell.key}"
            print(f"{time.monotonic() - began:6.0f} s  {where} {details.get('error', '')}", flush=True)

    run_jobs(todo, args.jobs, hear, inf if args.seconds is None else began + args.seconds)
    return f"{ended['failed']} of {len(todo)} failed" if ended["failed"] else ""


def lines(plan: dict, out: Path) -> list[dict]:
    from tss.bench.sequence import read_log

    found = []
    for one, order, cell in runs_of(plan):
        learnt = read_log(out / one["label"] / f"{cell.key}.jsonl")
        whole = len(learnt) == len(cell.tasks)
        final = learnt[-1]["row"] if whole else [None] * len(learnt)
        for line, last in zip(learnt, final, strict=True):
            if "curve" in line:
                best = max((e for e in line["curve"] if e[2] is not None), key=lambda e: e[2])
                facts = {k: line["facts"][k] for k in FACTS if k in line["facts"]}
                told = {"label": one["label"], "order": order, "task": line["task"]}
                told |= {"seed": cell.seed} if cell.seed else {}
                told |= {} if last is None else {"final": last}
                if plan.get("held_out"):  # and dev at the end: a state that dev has not chosen
                    told |= {"held": next(iter(line["scores"].values())), "end": line["curve"][-1][2]}
                found.append({**told, "dev": best[2], "best": best[0], **right(line), **facts})
    return found


def right(line: dict) -> dict[str, int]:
    """Of a task with labels: how many examples the kept state answers, and how many right."""
    labels = line.get("examples", {})
    if "predicted" not in labels or "gold" not in labels:
        return {}
    pairs = list(zip(labels["predicted"], labels["gold"], strict=True))
    return {"examples": len(pairs), "right": sum(a == b for a, b in pairs)}


def summary(found: list[dict]) -> str:
    """Mean dev score a family and configuration; and the mean of the families' means after the last task."""
    cells: dict[str, dict[str, list[dict]]] = defaultdict(lambda: defaultdict(list))
    for line in found:
        cells[line["label"]][line["task"].split("/")[0]].append(line)
    order = sorted({f for each in cells.values() for f in each})
    rows = ["| configuration | " + " | ".join(order) + " | final | tasks |", "|" + " --- |" * (len(order) + 3)]
    for label, each in cells.items():
        told = [f"{score(each[f])}{pooled(found, label, f)}" if f in each else "" for f in order]
        whole = all("final" in line for lines in each.values() for line in lines)
        last = f"{statistics.mean(mean(lines, 'final') for lines in each.values()):.2f}" if whole else ""
        rows.append(f"| {label} | " + " | ".join(told) + f" | {last} | {sum(map(len, each.values()))} |")
    return "\n".join(rows)


def score(lines: list[dict]) -> str:
    """Mean dev score; where examples were held out: their score, dev at its best, dev at the end of the training."""
    keys = ("held", "dev", "end") if "held" in lines[0] else ("dev",)
    return " / ".join(f"{mean(lines, key):.2f}" for key in keys)


def mean(lines: list[dict], key: str) -> float:
    return statistics.mean(line[key] for line in lines)


def pooled(found: list[dict], label: str, family: str) -> str:
    mine = [one for one in found if one["label"] == label and one["task"].startswith(f"{family}/") and "right" in one]
    total = sum(one["examples"] for one in mine)
    return f" (pooled {100 * sum(one['right'] for one in mine) / total:.2f})" if total else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", type=Path, nargs="?")
    parser.add_argument("--lines", type=Path, help="print the table of these lines and run nothing")
    parser.add_argument("--data")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--backbone", default="bart-mini")
    parser.add_argument("--device")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, help="stop after so many")
    parser.add_argument("--summary", type=Path, help="write the dev scores as JSON lines here")
    args = parser.parse_args()
    if args.lines:
        print(summary([json.loads(line) for line in args.lines.read_text().splitlines()]))
        return
    if not (args.configs and args.out):
        parser.error("give CONFIGS.json and --out, or --lines")
    try:
        plan = json.loads(args.configs.read_text())
    except (OSError, ValueError) as problem:
        parser.error(f"{args.configs}: {problem}")
    if args.data and not Path(args.data).is_dir():
        parser.error(f"there is no folder {args.data} of prepared tasks")
    failed = run(plan, args) if args.data else ""
    found = lines(plan, args.out)
    print(summary(found))
    if args.summary:
        args.summary.parent.mkdir(parents=True, exist_ok=True)
        args.summary.write_text("".join(json.dumps(line) + "\n" for line in found))
    if failed:
        raise SystemExit(failed)


if __name__ == "__main__":
    main()
