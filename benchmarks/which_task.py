"""Is the task needed? How often the sub-network that is surest of its answer is the one of the input's own task.

    python benchmarks/which_task.py STORE --seed 0          # a store of the demo, such as demo/stores/tss
    python benchmarks/which_task.py STORE --data DATA --sequence asc
    python benchmarks/which_task.py --features bart-mini --data DATA [--split test]

Every dev input of the tasks in the store is answered by every task of its kind (classification with one text, with
two, tagging). Surest: the smallest mean entropy of its answers' chances, as a share of the largest possible one, so
that tasks with many labels are not at a disadvantage. Tests are not looked at. Generation has no such chances.

--features asks no sub-network: an input belongs to the task whose training inputs have the nearest mean feature of the
frozen backbone (mean over its states), by the spread of each feature, which is what a store keeps and `tss which` asks,
or by their whole covariance within tasks, for which a store would have to keep a matrix. Here all tasks are thought of
for every input; `tss which` leaves out those that cannot take it.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from math import log
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tss import Learner, Task
from tss.backbones.load import load_backbone
from tss.learning.about import ROWS, distances, features
from tss.tasks.batches import IGNORED
from tss.tasks.kind import ReadingConfig, kind_of
from tss.tasks.task import Example


@torch.no_grad()
def doubt(learner: Learner, name: str, rows: list[Any]) -> Tensor:
    """Entropy of a task's answers to these rows, from 0 (sure) to 1 (no idea). [rows]"""
    ready = learner.ready(name)
    lesson = ready.lesson
    lesson.backbone.model.eval()
    out = torch.zeros(len(rows))
    for batch in lesson.batches(rows, 64):
        chances = lesson.logits(batch, ready.added).float().softmax(-1)
        each = torch.special.entr(chances).sum(-1) / log(chances.shape[-1])
        if each.ndim == 2:  # of every word
            real = batch.target != IGNORED
            each = (each * real).sum(1) / real.sum(1).clamp(min=1)
        out[list(batch.numbers)] = each.cpu()
    return out


def found(learner: Learner, tasks: list[Task], most: int) -> dict[str, tuple[int, int, int]]:
    """By kind: tasks, inputs, and inputs whose own task is the surest."""
    groups: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        if task.kind != "generation":
            groups[f"{task.kind} of two texts" if task.pair else task.kind].append(task)
    out = {}
    for kind, group in groups.items():
        right = total = 0
        for own, task in enumerate(group):
            examples = task.valid[:most]
            each = []
            for other in group:
                kind_of = learner.ready(other.name).lesson.kind
                label = kind_of.labels[0]  # targets only say which places are words: any that the task knows will do
                tags = task.kind == "tagging"
                targets = [(label,) * len(e.input) if tags else label for e in examples]
                rows = [kind_of.row(learner.backbone, e.input, t) for e, t in zip(examples, targets, strict=True)]
                each.append(doubt(learner, other.name, rows))
            right += int((torch.stack(each).argmin(0) == own).sum())
            total += len(examples)
        out[kind] = len(group), total, right
    return out


def nearest(seen: list[Tensor], asked: list[Tensor]) -> list[Tensor]:
    """Of each task's inputs: the number of the task they are nearest to, by the whole covariance within tasks.

    seen: features of training inputs [n, d]
    """
    means = torch.stack([each.mean(dim=0) for each in seen])
    apart = torch.cat([each - mean for each, mean in zip(seen, means, strict=True)]).double()
    within = apart.T @ apart / len(apart)
    within += 1e-3 * within.diagonal().mean() * torch.eye(len(within), dtype=within.dtype)
    white = torch.linalg.cholesky(torch.linalg.inv(within))  # distances in white space are Mahalanobis distances
    return [torch.cdist(each.double() @ white, means.double() @ white).argmin(dim=1) for each in asked]


def as_learner(seen: list[Tensor], asked: list[Tensor]) -> list[Tensor]:
    """The same by the spread of each feature alone, as `Learner.which` does it, among all tasks."""
    means = torch.stack([each.mean(dim=0) for each in seen])
    spread = torch.stack([each.var(dim=0, correction=0) for each in seen]).mean(dim=0)
    return [distances(each, means, spread).argmin(dim=1) for each in asked]


def by_features(name: str, tasks: list[Task], split: str, most: int) -> None:
    backbone = load_backbone(name)

    def of(task: Task, examples: Sequence[Example]) -> Tensor:
        kind = kind_of(task.kind)(task.labels, task.lengths, task.metric, ReadingConfig())
        return features(backbone, [kind.input_row(backbone, example.input) for example in examples])

    seen = [of(task, task.train[:ROWS]) for task in tasks]
    asked = [of(task, getattr(task, split)[:most]) for task in tasks]
    print(f"nearest mean feature of {name}, {split}, up to {ROWS} training inputs a task")
    for rule, told in ((as_learner, "by spread, as `tss which`"), (nearest, "by covariance")):
        counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        for task, found in zip(tasks, rule(seen, asked), strict=True):
            for key in (task.family, "all"):
                counts[key][0] += len(found)
                counts[key][1] += sum(tasks[i] is task for i in found.tolist())
                counts[key][2] += sum(tasks[i].family == task.family for i in found.tolist())
        for key, (total, right, kin) in counts.items():
            share, family = 100 * right / total, 100 * kin / total
            print(f"{told}, {key}: {right} of {total} find their task ({share:.1f} %), {family:.1f} % their family")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path, nargs="?")
    parser.add_argument("--features", metavar="BACKBONE", help="by features of this backbone, without a store")
    parser.add_argument("--split", choices=("valid", "test"), default="valid", help="with --features")
    parser.add_argument("--seed", type=int, default=0, help="of the demo")
    parser.add_argument("--data", type=Path, help="what `tss data prepare` wrote, in place of the demo's tasks")
    parser.add_argument("--sequence", default="heterogeneous")
    parser.add_argument("--most", type=int, default=50, help="inputs a task")
    args = parser.parse_args()
    if args.data:
        from tss.data.sequences import load_tasks, sequence

        tasks = load_tasks(sequence(args.sequence), args.data)
    else:
        from tss.data.demo import demo_tasks

        tasks = demo_tasks(args.seed)
    if args.features:
        return by_features(args.features, tasks, args.split, args.most)
    if args.store is None or not (args.store / "index.json").is_file():  # opening would make a new one
        parser.error(f"{args.store} is no store")
    learner = Learner.open(args.store)
    known = set(learner.store.index().names())
    print(f"{learner.method.label}, {args.sequence if args.data else f'demo, seed {args.seed}'}")
    for kind, (count, total, right) in found(learner, [t for t in tasks if t.name in known], args.most).items():
        print(f"{kind}: {right} of {total} inputs ({100 * right / total:.1f} %); by chance {100 / count:.1f} %")


if __name__ == "__main__":
    main()
