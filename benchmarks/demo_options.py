"""Options for the demo's small backbone, by dev scores on a seed that no table shows.

    python benchmarks/demo_options.py tss adapter_std=0.1 impt_heat=10

Learns the first tasks of the demo with one method and prints: the mean of the best dev scores of the classification and
tagging tasks, the dev loss of each generation task, and the mean test score of all.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

BUDGET = {"max_steps": 110, "batch_size": 16, "eval_steps": 22, "patience": 100}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method")
    parser.add_argument("options", nargs="*", metavar="key=value")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--tasks", type=int, default=6)
    args = parser.parse_args()

    from tss import Learner
    from tss.data.demo import demo_tasks

    options = dict(option.split("=", 1) for option in args.options)
    scores, losses, tests = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        learner = Learner.open(
            Path(folder, "store"), method=args.method, device="cpu", seed=args.seed, config={**BUDGET, **options}
        )
        for task in demo_tasks(args.seed)[: args.tasks]:
            learned = learner.learn(task)
            best = max(dev for _, _, dev in learned.curve if dev is not None)
            (losses if task.kind == "generation" else scores).append(best)
            tests.append(next(iter(learned.scores.values())))
    told = " ".join(f"{-loss:.2f}" for loss in losses)
    print(
        args.method, *args.options, f"dev {statistics.fmean(scores):.1f} loss {told} test {statistics.fmean(tests):.1f}"
    )


if __name__ == "__main__":
    main()
