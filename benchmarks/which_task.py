"""Is the task needed? How often the sub-network that is surest of its answer is the one of the input's own task.

    python benchmarks/which_task.py STORE --seed 0          # a store of the demo, such as demo/stores/tss
    python benchmarks/which_task.py STORE --data DATA --sequence asc

Every dev input of the tasks in the store is answered by every task of its kind (classification with one text, with
two, tagging). Surest: the smallest mean entropy of its answers' chances, as a share of the largest possible one, so
that tasks with many labels are not at a disadvantage. Tests are not looked at. Generation has no such chances.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from math import log
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tss import Learner, Task
from tss.tasks.batches import IGNORED


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--seed", type=int, default=0, help="of the demo")
    parser.add_argument("--data", type=Path, help="what `tss data prepare` wrote, in place of the demo's tasks")
    parser.add_argument("--sequence", default="heterogeneous")
    parser.add_argument("--most", type=int, default=50, help="inputs a task")
    args = parser.parse_args()
    if not (args.store / "index.json").is_file():  # opening would make a new one
        parser.error(f"{args.store} is no store")
    learner = Learner.open(args.store)
    if args.data:
        from tss.data.sequences import load_tasks, sequence

        tasks = load_tasks(sequence(args.sequence), args.data)
    else:
        from tss.data.demo import demo_tasks

        tasks = demo_tasks(args.seed)
    known = set(learner.store.index().names())
    print(f"{learner.method.label}, {args.sequence if args.data else f'demo, seed {args.seed}'}")
    for kind, (count, total, right) in found(learner, [t for t in tasks if t.name in known], args.most).items():
        print(f"{kind}: {right} of {total} inputs ({100 * right / total:.1f} %); by chance {100 / count:.1f} %")


if __name__ == "__main__":
    main()
