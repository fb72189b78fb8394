"""What answering in company would give: a task's own sub-network and head beside those of its relatives.

    python benchmarks/company.py --configuration tss+,sticky=1 --seeds 20,21 --out results/demo/company.jsonl
    python benchmarks/company.py --store STORE --data DATA --family asc --most 110 --out results/demo/company-real.jsonl
    python benchmarks/company.py --lines results/demo/company-real.jsonl        # means, from the lines kept

Nothing is trained for it and no sub-network changes: the chances that each member gives the labels are averaged.
Relatives: stored tasks of the family that know all of the task's labels by name; earlier ones only, or all (as if the
old task could ask those learnt after it, chosen by examples of its own that were kept). Members by dev loss, greedily,
beginning with the task's own, at most five picks, one may be picked again; or all of them; or as TSS+ does it with
`company=8` and `company=32`, and after `tss revisit`. Dev chooses, test is told.
The first form learns the demo's similar tasks as `demo_transfer.py` does; the second reads a store that a grid left.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from demo_transfer import learner_of, similar_tasks
from ratio import one_thread
from torch import Tensor

from tss import Learner
from tss.data.sequences import load_tasks
from tss.learning.resident import Ready
from tss.methods.company import invited
from tss.tasks.task import Example, Task

PICKS = 5
MOST = (8, 32)  # `company=8`, `company=32`
SMALL = 100  # test examples; the benchmark's tables take sets of fewer as one, too
Weights = dict[str, float]


class Panel:
    """The logits that every relative gives for the same examples of one task, its labels in its own order."""

    @torch.no_grad()
    def __init__(self, task: Ready, relatives: dict[str, Ready], examples: Sequence[Example]):
        self.kind, backbone = task.lesson.kind, task.lesson.backbone
        backbone.model.eval()
        self.gold = [example.target for example in examples]
        self.rows = [self.kind.row(backbone, example.input, example.target) for example in examples]
        self.batches = list(task.lesson.batches(self.rows, 64))
        self.chances: dict[str, list[Tensor]] = {}
        for name, one in relatives.items():
            columns = [one.lesson.kind.labels.index(label) for label in self.kind.labels]
            found = [self.kind.logits(backbone, one.lesson.head, batch, one.added) for batch in self.batches]
            self.chances[name] = [logits[..., columns].float().softmax(dim=-1) for logits in found]

    def together(self, weights: Weights) -> list[Tensor]:
        """Logarithms of the mean chances, batch by batch."""
        total = sum(weights.values())
        parts = zip(
            *([weight / total * p for p in self.chances[name]] for name, weight in weights.items()), strict=True
        )
        return [torch.stack(part).sum(0).clamp(min=1e-9).log() for part in parts]

    def loss(self, weights: Weights) -> float:
        pairs = list(zip(self.together(weights), self.batches, strict=True))
        shares = [self.kind.weight(batch) for _, batch in pairs]
        losses = [float(self.kind.loss(logits, batch)) for logits, batch in pairs]
        return sum(loss * share for loss, share in zip(losses, shares, strict=True)) / sum(shares)

    def answers(self, weights: Weights) -> list[Any]:
        answers: list[Any] = [None] * len(self.rows)
        for logits, batch in zip(self.together(weights), self.batches, strict=True):
            for number, answer in zip(
                batch.numbers, self.kind.read(logits, [self.rows[i] for i in batch.numbers]), strict=True
            ):
                answers[number] = answer.value
        return answers


def chosen(dev: Panel, own: str, others: Sequence[str]) -> Weights:
    """Greedily by dev loss; the task's own sub-network is always there."""
    weights, best = {own: 1.0}, dev.loss({own: 1.0})
    for _ in range(PICKS - 1):
        tried = [{**weights, name: weights.get(name, 0.0) + 1.0} for name in (own, *others)]
        losses = [dev.loss(one) for one in tried]
        if min(losses) >= best:
            break
        best, weights = min(losses), tried[losses.index(min(losses))]
    return weights


def variants(dev: Panel, own: str, before: Sequence[str], after: Sequence[str]) -> dict[str, Weights]:
    every = [*before, *after]
    return {
        "own": {own: 1.0},
        "earlier, chosen": chosen(dev, own, before),
        "earlier, all": dict.fromkeys((own, *before), 1.0),
        "any, chosen": chosen(dev, own, every),
        "any, all": dict.fromkeys((own, *every), 1.0),
        "any, own half": halves(own, every),
    }


def halves(own: str, others: Sequence[str]) -> Weights:
    """As TSS+ weighs them: its own chances count as much as all others' together."""
    return {own: 1.0, **dict.fromkeys(others, 1.0 / max(len(others), 1))}


def revisited(asks: dict[str, list[str]], own: str, fit: Sequence[str], most: int) -> list[str]:
    """What `tss revisit` does: also those that ask the task, as long as there is room."""
    later = [name for name in asks if name in fit and own in asks[name] and name not in asks[own]]
    return [*asks[own], *later][: max(most, len(asks[own]))]


def measured(learner: Learner, tasks: Sequence[Task], most: int = 0) -> dict[str, dict[str, float]]:
    """By task, the test score of every variant, how many answers are right and how many sub-networks give them."""
    ready = {task.name: learner.ready(task.name) for task in tasks}
    found: dict[str, dict[str, float]] = {}
    asks: dict[int, dict[str, list[str]]] = {most: {} for most in MOST}
    tests: dict[str, tuple[Panel, list[str]]] = {}

    def tell(name: str, what: str, weights: Weights) -> None:
        test, told = tests[name][0], found[name]
        answers = test.answers(weights)
        told[what] = next(iter(test.kind.score(answers, test.gold).values()))
        if test.kind.single:
            told[f"{what}: right"] = sum(a == b for a, b in zip(answers, test.gold, strict=True))
        told[f"{what}: members"] = len(weights)

    for place, task in enumerate(tasks):
        labels = set(ready[task.name].lesson.kind.labels)
        fit = [
            other.name
            for other in tasks
            if other.family == task.family and labels <= set(ready[other.name].lesson.kind.labels)
        ]
        relatives = {name: ready[name] for name in fit}
        dev, test = (Panel(ready[task.name], relatives, part[: most or None]) for part in (task.valid, task.test))
        names = [other.name for other in tasks]
        before = [name for name in fit if names.index(name) < place]
        after = [name for name in fit if names.index(name) > place]
        tests[task.name], found[task.name] = (test, fit), {"examples": len(test.rows)}
        lesson = ready[task.name].lesson
        lesson.valid = lesson.encode(task.valid[: most or None])
        guests = [ready[name].beside(lesson.kind.labels) for name in before]
        for members, asked in asks.items():
            asked[task.name] = [before[i] for i in invited(lesson, ready[task.name].added, guests, members)]
            tell(task.name, f"company={members}", halves(task.name, asked[task.name]))
        for what, weights in variants(dev, task.name, before, after).items():
            tell(task.name, what, weights)
        told = found[task.name]
        print(f"{task.name}: " + ", ".join(f"{k} {v:.1f}" for k, v in told.items() if ":" not in k), flush=True)
    for members, asked in asks.items():
        for name, (_, fit) in tests.items():
            tell(name, f"company={members}, revisited", halves(name, revisited(asked, name, fit, members)))
    return found


def in_float32(learner: Learner) -> Learner:
    """A store that a GPU made in bfloat16, on a CPU: the same weights, other arithmetic."""
    learner.method.bank.dtype = torch.float32
    learner.backbone.model.float()
    return learner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configuration", default="tss+,sticky=1", metavar="METHOD[,key=value…]")
    parser.add_argument("--seeds", default="20", help="of the demo's tasks")
    parser.add_argument("--store", type=Path, help="read this store of the benchmark's tasks instead")
    parser.add_argument("--data", type=Path, help="what `tss data prepare` wrote")
    parser.add_argument("--family", default="asc")
    parser.add_argument("--device", default="cpu", help="for a store: on a CPU it is computed in float32")
    parser.add_argument("--most", type=int, default=0, help="dev and test examples of a task; 0: all")
    parser.add_argument("--out", type=Path, help="add the lines to this file")
    parser.add_argument("--lines", type=Path, help="only print what this file has")
    args = parser.parse_args()
    if args.lines:
        print("\n".join(summary([json.loads(line) for line in args.lines.read_text().splitlines()])))
        return
    one_thread()
    if args.store:
        learner = Learner.open(args.store, device=args.device)
        if args.device == "cpu":
            in_float32(learner)
        names = [name for name in learner.store.index().names() if name.startswith(f"{args.family}/")]
        tell(
            args.out,
            {"store": args.store.name, "most": args.most, "device": args.device},
            measured(learner, load_tasks(names, args.data), args.most),
        )
        return
    for seed in map(int, args.seeds.split(",")):
        tasks = similar_tasks(seed)
        with tempfile.TemporaryDirectory() as folder:
            learner = learner_of(args.configuration, seed, Path(folder, "store"))
            for task in tasks:
                learner.learn(task)
            tell(args.out, {"configuration": args.configuration, "seed": seed}, measured(learner, tasks))


def summary(lines: Sequence[dict[str, Any]]) -> list[str]:
    """Means of every variant over the orders of a store or the seeds; tests of fewer than 100 examples taken as one."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in lines:
        for subject in line["means"]:
            groups.setdefault((line.get("store", "demo").rsplit(".o", 1)[0], subject), []).append(line)
    out = []
    for (store, subject), some in groups.items():
        tasks = [told for line in some for name, told in line["tasks"].items() if name.startswith(subject)]
        small = [told for told in tasks if told["examples"] < SMALL]
        for what in (key for key in some[0]["means"][subject] if ":" not in key and key != "examples"):
            mean = fmean(line["means"][subject][what] for line in some)
            text = f"{store} {subject}, {len(some)} lines, {what}: {mean:.1f}"
            if small and f"{what}: right" in small[0]:
                right = sum(told[f"{what}: right"] for told in small) / sum(told["examples"] for told in small)
                text += f", {100 * right:.1f} % of the small tests right"
            out.append(text)
    return out


def tell(out: Path | None, about: dict[str, Any], found: dict[str, dict[str, float]]) -> None:
    subjects = dict.fromkeys(re.split("[-/]", name)[0] for name in found)
    means = {
        subject: {
            what: round(fmean(told[what] for name, told in found.items() if name.startswith(subject)), 2)
            for what in next(told for name, told in found.items() if name.startswith(subject))
        }
        for subject in subjects
    }
    for subject, told in means.items():
        print(f"{about} {subject}: {told}", flush=True)
    if out:
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**about, "means": means, "tasks": found}) + "\n")


if __name__ == "__main__":
    main()
