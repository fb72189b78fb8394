"""How many of the computed tokens are real, and what an epoch takes, beside padding everything to 128 tokens.

    python benchmarks/padding.py --data DATA                         # bart-nano on the CPU
    python benchmarks/padding.py --data DATA --device cuda --shape bart-large

Shares are of all training rows of a family, one epoch, batches of 32, on the real lengths. On a CPU a batch is computed
in pieces of like length; on a GPU in one piece whose length is rounded up, so that few shapes are recorded: those pad
tokens count. Trainer's length grouping is printed beside. Epoch times are of one task a family, with the same training
step on both sides; the peer has no sorting to do.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from ratio import Figure, alternate, arguments, faster, finish, one_thread, versions, where
from training_step import opened

from tss import Learner
from tss.data.sequences import FAMILIES, load_task, sequence
from tss.learning.loop import Training
from tss.learning.schedule import LearningConfig
from tss.tasks.batches import PASS_COST, cut, plan, rung
from tss.tasks.lesson import Lesson

GOALS = ("asc", "ner", "drg")
TIMED = ("asc/nokia6600", "ner/gum", "drg/attraction")
SIZE, LONGEST = 32, 128
Batches = list[list[int]]


def padded(batches: Batches, lengths: Sequence[int], width: Callable[[int], int] = lambda n: n) -> int:
    return sum(len(batch) * width(max(lengths[i] for i in batch)) for batch in batches)


def our_batches(lengths: Sequence[int], pieces: bool) -> Batches:
    """Of the first epoch, as the loop computes them."""
    whole = plan(lengths, SIZE, "0/task/0")
    if not pieces:
        return whole
    return [[b[i] for i in piece] for b in whole for piece in cut([lengths[i] for i in b], PASS_COST)]


def grouped_batches(lengths: Sequence[int]) -> Batches:
    """As the Trainer of transformers groups by length: sorted within random groups of 50 batches."""
    try:
        from transformers.trainer_pt_utils import get_length_grouped_indices as grouped
    except ImportError:
        return []
    order = grouped(list(lengths), SIZE, generator=torch.Generator().manual_seed(0))
    return [order[i : i + SIZE] for i in range(0, len(order), SIZE)]


def shares(data: Path, learner: Learner, cuda: bool, first: int) -> list[Figure]:
    figures = []
    for family in FAMILIES:
        real = ours = longest = grouped = 0
        pieces, batches = 0, 0
        for name in sequence(family)[: first or None]:
            task = load_task(data, name)
            task = replace(task, valid=task.valid[:1], test=task.test[:1])
            lengths = learner._lesson(task).train.lengths()
            found = our_batches(lengths, pieces=not cuda)
            pieces, batches = pieces + len(found), batches + len(plan(lengths, SIZE, None))
            real += sum(lengths)
            top = max(LONGEST, max(lengths)) if family != "sum" else 1024
            ours += padded(found, lengths, (lambda n, top=top: min(rung(n), top)) if cuda else lambda n: n)
            longest += len(lengths) * top
            grouped += padded(grouped_batches(lengths), lengths)
        share, goal = real / ours, 0.95 if family in GOALS else None
        note = f"{pieces / batches:.1f} pieces a batch; padded to the longest {real / longest:.1%}"
        note += f"; Trainer's grouping {real / grouped:.1%}" if grouped else ""
        reached = None if goal is None else share >= goal
        told = "printed beside" if goal is None else f">= {goal}"
        figures.append(
            Figure(f"real tokens, {family}", 100 * share, 100 * real / longest, "%", share, told, reached, note)
        )
    return figures


def epochs(learner: Learner, lesson: Lesson, device: str, rounds: int) -> dict[str, float]:
    """Milliseconds of an epoch: ours, and every text padded to 128 tokens in the order they come."""
    method: Any = learner.method
    method.begin(lesson, None)
    config = LearningConfig(batch_size=SIZE, max_steps=10**6, precision=learner.config.learning.precision)
    training = Training([lesson], method, config, None, None)
    rows, table = lesson.train.rows, training.tables[lesson.seed_key]
    long = [lesson.batch(rows, list(range(i, min(i + SIZE, len(rows)))), LONGEST) for i in range(0, len(rows), SIZE)]
    training._mode(training=True)

    def ours() -> None:
        for each, numbers in training._epoch(0):
            training._step(each, table.batch(numbers, rounded=training.recorder.on))

    def peer() -> None:
        for batch in long:
            for p in training.parameters:
                p.grad = None
            training.update(training._backward(lesson, batch), 1.0)

    return alternate({"ours": ours, "peer": peer}, device, rounds, warm=3 if device == "cuda" else 1)


def timed(data: Path, learner: Learner, device: str, rounds: int, rows: int) -> list[Figure]:
    figures, every = [], []
    for name in TIMED:
        task = load_task(data, name)
        task = replace(task, train=task.train[: rows or None], valid=task.valid[:8], test=task.test[:8])
        found = epochs(learner, learner._lesson(task), device, rounds)
        every.append(found["peer"] / found["ours"])
        figures.append(faster(f"epoch, {name}", found["ours"], found["peer"], "ms", None))
    mean = statistics.geometric_mean(every)
    figures.append(faster("epoch, mean of the three", 1.0, mean, "x", 2.5, "geometric mean"))
    return figures


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--shape", default="nano", choices=("nano", "mini", "bart-large", "toy"))
    parser.add_argument("--first", type=int, default=0, help="so many tasks a family; 0: all")
    parser.add_argument("--rows", type=int, default=0, help="so many rows of a timed task; 0: all")
    args = parser.parse_args()
    if args.device == "cpu":
        one_thread()
    with tempfile.TemporaryDirectory() as folder:
        learner = opened(Path(folder), args.shape, args.device)
        figures = shares(args.data, learner, args.device == "cuda", args.first)
        figures += timed(args.data, learner, args.device, args.rounds, args.rows)
    shape = f"{args.shape}, batches of {SIZE}, {learner.config.learning.precision}"
    return finish(args, shape, where(args.device), versions(), figures)


if __name__ == "__main__":
    sys.exit(main())
