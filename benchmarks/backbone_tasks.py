"""Are the small backbones good? ONE (Adapter) and SupSup on 13 real tasks over several backbones, several seeds.

    python benchmarks/backbone_tasks.py --data DATA --backbones FOLDER bart-mini --out results/backbone/tasks.json

Settings are those of the prototype's first evidence: 120 steps a task, batch 32, texts of at most 120 tokens, dev (at
most 200 examples) every 50 steps and at the end, at most 1,000 test examples. Cells run side by side, one process each;
each finished cell is a line in OUT.jsonl, so an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

ORDER = [
    "asc/nokia6600",
    "asc/speaker",
    "asc/canon100",
    "ner/wikigold",
    "asc/nokia6610",
    "asc/router",
    "asc/computer",
] + ["ccd/agnews", "asc/creative", "asc/norton", "asc/canong3", "asc/micromp3", "asc/ipod"]


def cell(data: str, backbone: str, method: str, seed: int, device: str, steps: int, tasks: int) -> dict:
    """Learn the sequence with one method and report each task's test score."""
    from tss import Learner
    from tss.data.sequences import load_task

    precision = "bfloat16" if device == "cuda" else "float32"
    options = {"max_steps": steps, "dev_examples": 200, "checkpoint_steps": 10**6, "precision": precision}
    started, scores = time.time(), {}
    with tempfile.TemporaryDirectory() as folder:
        learner = Learner.open(
            Path(folder, "store"), backbone=backbone, method=method, seed=seed, device=device, config=options
        )
        for name in ORDER[:tasks]:
            task = load_task(data, name)
            task = replace(task, test=task.test[:1000], lengths=replace(task.lengths, max_input=120))
            scores[name] = next(iter(learner.learn(task).scores.values()))
    return {
        "backbone": Path(backbone).name,
        "method": method,
        "seed": seed,
        "scores": scores,
        "seconds": round(time.time() - started, 1),
    }


def family_means(scores: dict[str, float]) -> dict[str, float]:
    families: dict[str, list[float]] = {}
    for task, score in scores.items():
        families.setdefault(task.split("/")[0], []).append(score)
    means = {family: statistics.fmean(values) for family, values in families.items()}
    return {**means, "mean": statistics.fmean(scores.values())}


def summary(lines: list[dict]) -> dict:
    """Mean over seeds of each family's mean, per backbone and method."""
    table: dict[str, dict] = {}
    for backbone, method in dict.fromkeys((line["backbone"], line["method"]) for line in lines):
        found = [family_means(c["scores"]) for c in lines if (c["backbone"], c["method"]) == (backbone, method)]
        table[f"{backbone} {method}"] = {
            "seeds": len(found),
            **{key: round(statistics.fmean(f[key] for f in found), 2) for key in found[0]},
            "deviation": round(statistics.pstdev(f["mean"] for f in found), 2),
        }
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--backbones", nargs="+", required=True)
    parser.add_argument("--methods", nargs="+", default=["one-adapter", "supsup"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--tasks", type=int, default=len(ORDER))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--side-by-side", type=int, default=6)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cell", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.cell:
        backbone, method, seed = args.cell
        print(json.dumps(cell(args.data, backbone, method, int(seed), args.device, args.steps, args.tasks)))
        return
    log = args.out.with_suffix(".jsonl")
    log.parent.mkdir(parents=True, exist_ok=True)
    done = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    had = {(c["backbone"], c["method"], c["seed"]) for c in done}
    cells = [(b, m, s) for m in args.methods for s in range(args.seeds) for b in args.backbones]
    waiting = [c for c in cells if (Path(c[0]).name, c[1], c[2]) not in had]
    running: list[subprocess.Popen] = []
    while waiting or running:
        while waiting and len(running) < args.side_by_side:
            chosen = [str(part) for part in waiting.pop(0)]
            running.append(
                subprocess.Popen([sys.executable, *sys.argv, "--cell", *chosen], stdout=subprocess.PIPE, text=True)
            )
        for process in [p for p in running if p.poll() is not None]:
            running.remove(process)
            text = process.stdout.read() if process.stdout else ""
            if process.returncode == 0:
                done.append(json.loads(text.splitlines()[-1]))
                with log.open("a") as file:
                    file.write(json.dumps(done[-1]) + "\n")
                print({k: v for k, v in done[-1].items() if k != "scores"}, flush=True)
                args.out.write_text(json.dumps({"order": ORDER, "cells": summary(done)}, indent=1) + "\n")
        time.sleep(0.2)
    print(json.dumps(summary(done), indent=1))


if __name__ == "__main__":
    main()
