"""A laboratory for transfer on a CPU: the demo's similar tasks on seeds that no table shows, tested on 400 texts each.

    python benchmarks/demo_transfer.py supsup tss+,sticky=1 mtl-adapter --seeds 20,21 --out results/demo/transfer.jsonl

The benchmark's own tests are too small to tell two points apart; the demo's grammar writes as many texts as one wants.
Five sentiment tasks and three with entities, in the demo's order without what lies between, with its budget; a joint
method learns each family together. About a minute for a configuration and seed. A line of JSON for each.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from demo_options import BUDGET
from ratio import one_thread

if TYPE_CHECKING:
    from tss import Learner

HEAT = {"impt_heat": 10}  # for methods with a soft mask, as in the demo
TESTS = 400


def similar_tasks(seed: int) -> list:
    from tss.data import demo

    subjects = demo._SUBJECTS
    try:
        demo._SUBJECTS = {key: one._replace(sizes=(*one.sizes[:2], TESTS)) for key, one in subjects.items()}
        return [task for task in demo.demo_tasks(seed) if task.family in demo.SIMILAR_FAMILIES]
    finally:
        demo._SUBJECTS = subjects


def learner_of(configuration: str, seed: int, store: Path) -> Learner:
    """With the demo's budget and options. configuration: METHOD[,key=value…]"""
    from tss import Learner
    from tss.config import resolve

    method, *given = configuration.split(",")
    known = resolve(method).flat()
    options = {**BUDGET, "adapter_std": 0.1, **{key: value for key, value in HEAT.items() if key in known}}
    options |= dict(option.split("=", 1) for option in given)
    return Learner.open(store, method=method, device="cpu", seed=seed, config=options)


def learnt(configuration: str, seed: int) -> dict[str, float]:
    """Test score of every task when it was learnt."""
    from tss.methods import method_class

    tasks, joint, found = similar_tasks(seed), method_class(configuration.split(",")[0]).joint, {}
    families = [[task for task in tasks if task.family == family] for family in dict.fromkeys(t.family for t in tasks)]
    for group in families if joint else [tasks]:
        with tempfile.TemporaryDirectory() as folder:
            learner = learner_of(configuration, seed, Path(folder, "store"))
            told = learner.learn_together(group) if joint else [learner.learn(task) for task in group]
        found |= {task.name: next(iter(one.scores.values())) for task, one in zip(group, told, strict=True)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configurations", nargs="+", metavar="METHOD[,key=value…]")
    parser.add_argument("--seeds", default="20")
    parser.add_argument("--out", type=Path, help="add the lines to this file")
    args = parser.parse_args()
    one_thread()  # with two, sums round differently: NER moved by half a point
    for seed in map(int, args.seeds.split(",")):
        for configuration in args.configurations:
            found = learnt(configuration, seed)
            means = {
                family: round(fmean(v for name, v in found.items() if name.startswith(subject)), 2)
                for family, subject in (("asc", "sentiment"), ("ner", "entities"))
            }
            line = json.dumps({"configuration": configuration, "seed": seed, **means, "tasks": found})
            print(f"{configuration:24s} seed {seed}  ASC {means['asc']:.1f}  NER {means['ner']:.1f}", flush=True)
            if args.out:
                with args.out.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    main()
