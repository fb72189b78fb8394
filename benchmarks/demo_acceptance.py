"""Is the demo worth running? MTL (Adapter) against ONE (Adapter) on the similar group; no TSS in it.

    python benchmarks/demo_acceptance.py --seeds 0 1 2

The generator is accepted if the joint run is at least 5 points above the single runs on the mean over seeds. Both have
the demo's settings; the joint run has as many steps as the single runs together.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from tss import Learner, Task
from tss.data.demo import demo_tasks, group_of
from tss.demo import OPTIONS

LEAST_GAIN = 5.0


def single_scores(tasks: list[Task], folder: Path, seed: int) -> dict[str, float]:
    learner = Learner.open(folder, method="one-adapter", device="cpu", config=OPTIONS, seed=seed)
    for task in tasks:
        learner.learn(task)
    return {task.name: learner.evaluate(task)[task.metric] for task in tasks}


def joint_scores(tasks: list[Task], folder: Path, seed: int) -> dict[str, float]:
    options = OPTIONS | {"max_steps": OPTIONS["max_steps"] * len(tasks), "eval_steps": 2 * OPTIONS["max_steps"]}
    learner = Learner.open(folder, method="mtl-adapter", device="cpu", config=options, seed=seed)
    learner.learn_together(tasks)
    return {task.name: learner.evaluate(task)[task.metric] for task in tasks}


def compare(seed: int, everything: bool) -> dict:
    """Scores of one seed; the dissimilar tasks are learnt singly too if `everything`, to see that they can be."""
    tasks = demo_tasks(seed)
    similar = [task for task in tasks if group_of(task) == "similar"]
    with tempfile.TemporaryDirectory() as scratch:
        single = single_scores(tasks if everything else similar, Path(scratch, "one"), seed)
        joint = joint_scores(similar, Path(scratch, "mtl"), seed)
    gain = statistics.mean(joint[task.name] - single[task.name] for task in similar)
    return {"seed": seed, "one-adapter": single, "mtl-adapter": joint, "gain": gain}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--everything", action="store_true", help="learn the dissimilar tasks singly as well")
    given = parser.parse_args()
    gains = []
    for seed in given.seeds:
        found = compare(seed, given.everything)
        gains.append(found["gain"])
        print(json.dumps(found), flush=True)
    gain = statistics.mean(gains)
    print(f"MTL (Adapter) - ONE (Adapter), similar group: {gain:+.1f} points, at least {LEAST_GAIN:+.1f} asked")
    return 0 if gain >= LEAST_GAIN else 1


if __name__ == "__main__":
    sys.exit(main())
