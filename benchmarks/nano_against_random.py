"""Does pretraining matter? The embedded backbone against a random one of the same shape, on the demo's tasks.

    python benchmarks/nano_against_random.py --out results/backbone/nano_random.json

ONE (Adapter), the demo's own options; prints every task's score on both and the gap.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path


def random_twin(folder: Path) -> None:
    """The embedded backbone's config and tokenizer with freshly initialised weights."""
    import torch
    from transformers import AutoConfig, BartForConditionalGeneration

    from tss.backbones.load import available

    nano = available()["bart-nano"]
    torch.manual_seed(0)
    BartForConditionalGeneration(AutoConfig.from_pretrained(nano)).save_pretrained(folder)
    for file in nano.glob("tokenizer*.json"):
        (folder / file.name).write_bytes(file.read_bytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tasks", type=int, default=12)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()

    from tss import Learner
    from tss.data.demo import demo_tasks
    from tss.demo import OPTIONS

    scores: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        random_twin(Path(folder, "random"))
        for label, backbone in (("bart-nano", "bart-nano"), ("random", str(Path(folder, "random")))):
            learner = Learner.open(
                Path(folder, label + ".store"),
                backbone=backbone,
                method="one-adapter",
                device="cpu",
                seed=args.seed,
                config=OPTIONS,
            )
            for task in demo_tasks(args.seed)[: args.tasks]:
                learned = learner.learn(task)
                scores.setdefault(task.name, {})[label] = round(next(iter(learned.scores.values())), 2)
                print(task.name, label, scores[task.name][label], flush=True)
    means = {label: statistics.fmean(row[label] for row in scores.values()) for label in ("bart-nano", "random")}
    result = {
        "method": "one-adapter",
        "seed": args.seed,
        "scores": scores,
        "mean": {label: round(value, 2) for label, value in means.items()},
        "gap": round(means["bart-nano"] - means["random"], 2),
    }
    text = json.dumps(result, indent=1)
    print(text)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
