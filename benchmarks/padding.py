"""How many of the computed tokens are real, and what an epoch takes, beside padding everything to 128 tokens.

    python benchmarks/padding.py --data DATA                         # bart-nano on the CPU
    python benchmarks/padding.py --data DATA --device cuda --shape bart-large

Shares are of all training rows of a family, one epoch, batches of 32, on the real lengths: tokens that encoder and
decoder compute. Where texts are generated, those of sources and of targets; the peer pads targets to the task's
max_target, as padding="max_length" of a Trainer does. With the option `packed` (here: on a GPU, or with --packed) rows
of a batch are laid into fewer, fuller ones. Without it a batch is computed on a CPU in pieces of like length, on a GPU
in one piece whose length is rounded up to a rung, so that few shapes are recorded; the notes have that beside, and the
shapes that 15 epochs of a task meet either way. Trainer's length grouping is printed beside, too.

Epoch times are of one task a family, beside the Trainer of transformers (trainer_peer.py) that trains the same adapters
with everything padded, eager and compiled, the faster one counting; and, printed beside, our own training step fed the
same padded batches, which has no sorting and no packing to do: what the batches alone are worth.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import trainer_peer
from ratio import Figure, alternate, arguments, faster, finish, one_thread, versions, where
from shapes import many_variants, opened

from tss import Learner
from tss.data.sequences import FAMILIES, load_task, sequence
from tss.learning.loop import Training
from tss.learning.schedule import LearningConfig
from tss.tasks.batches import IGNORED, PASS_COST, Batch, cut, plan, rung
from tss.tasks.lesson import Lesson
from tss.tasks.packing import Size, arrange

GOALS = ("asc", "ner", "drg")
TIMED = ("asc/nokia6600", "ner/gum", "drg/attraction")
SIZE, LONGEST, EPOCHS = 32, 128, 15
Batches = list[list[int]]
Shape = tuple[int, ...]  # what is computed at once: rows, places of an input, places of a target


@dataclass(frozen=True)
class Rows:
    """The training rows of a task. sizes: tokens of inputs and of targets, 0 where those are no texts."""

    sizes: list[Size]
    limits: Size  # what everything is padded to

    @classmethod
    def of(cls, lesson: Lesson, family: str) -> Rows:
        texts = lesson.kind.name == "generation"
        sizes = [(len(row.ids), len(row.target) * texts) for row in lesson.train.rows]
        longest = max(LONGEST, max(size[0] for size in sizes)) if family != "sum" else 1024
        return cls(sizes, (longest, lesson.kind.lengths.max_target * texts))

    @property
    def lengths(self) -> list[int]:
        return [size[0] for size in self.sizes]

    def batches(self, epoch: int) -> Batches:
        return plan(self.lengths, SIZE, f"0/task/{epoch}")

    def longest(self, batch: Sequence[int]) -> Size:
        chosen = [self.sizes[i] for i in batch]
        return max(size[0] for size in chosen), max(size[1] for size in chosen)

    def padded(self, batches: Batches) -> list[Shape]:
        return [(len(batch), *self.longest(batch)) for batch in batches]

    def in_pieces(self, epoch: int) -> list[Shape]:
        """As the loop computes them on a CPU."""
        cuts = [(batch, cut([self.lengths[i] for i in batch], PASS_COST)) for batch in self.batches(epoch)]
        return self.padded([[batch[i] for i in piece] for batch, pieces in cuts for piece in pieces])

    def on_rungs(self, epoch: int) -> list[Shape]:
        """As the loop computes them on a GPU."""
        top = self.longest(range(len(self.sizes)))
        found = self.padded(self.batches(epoch))
        return [(n, *(min(rung(each), most) for each, most in zip(widths, top, strict=True))) for n, *widths in found]

    def packed(self, epoch: int) -> list[Shape]:
        found = [(len(batch), *arrange([self.sizes[i] for i in batch])) for batch in self.batches(epoch)]
        return [(len(groups), *places, rows) for rows, groups, places in found]


def tokens(shapes: Sequence[Shape]) -> int:
    return sum(shape[0] * (shape[1] + shape[2]) for shape in shapes)


def grouped_batches(lengths: Sequence[int]) -> Batches:
    """As the Trainer of transformers groups by length: sorted within random groups of 50 batches."""
    try:
        from transformers.trainer_pt_utils import get_length_grouped_indices as grouped
    except ImportError:
        return []
    order = grouped(list(lengths), SIZE, generator=torch.Generator().manual_seed(0))
    return [order[i : i + SIZE] for i in range(0, len(order), SIZE)]


def shares(data: Path, learner: Learner, cuda: bool, packed: bool, first: int) -> list[Figure]:
    figures = []
    for family in FAMILIES:
        every = []
        for name in sequence(family)[: first or None]:
            task = load_task(data, name)
            task = replace(task, valid=task.valid[:1], test=task.test[:1])
            every.append(Rows.of(learner._lesson(task), family))
        figures.append(share_of(family, every, cuda, packed))
    return figures


def share_of(family: str, every: list[Rows], cuda: bool, packed: bool) -> Figure:
    def part(ways: Callable[[Rows], list[Shape]]) -> float:
        return sum(sum(map(sum, rows.sizes)) for rows in every) / sum(tokens(ways(rows)) for rows in every)

    def plain(rows: Rows, epoch: int = 0) -> list[Shape]:
        return rows.on_rungs(epoch) if cuda else rows.in_pieces(epoch)

    def met(ways: Callable[[Rows, int], list[Shape]]) -> str:
        each = [len({shape for epoch in range(EPOCHS) for shape in ways(rows, epoch)}) for rows in every]
        return f"{statistics.mean(each):.0f} shapes a task, at most {max(each)}"

    share = part(lambda rows: rows.packed(0)) if packed else part(plain)
    full = part(lambda rows: [(len(rows.sizes), *rows.limits)])
    way = "rungs" if cuda else "pieces"
    note = f"padded to the longest {full:.1%}"
    if packed:
        note += f"; {way} {part(plain):.1%}; {met(Rows.packed)}, {way} {met(plain)}"
    if grouped_batches([1]):
        note += f"; Trainer's grouping {part(lambda rows: rows.padded(grouped_batches(rows.lengths))):.1%}"
    goal = 0.95 if family in GOALS else None
    reached = None if goal is None else share >= goal
    told = "printed beside" if goal is None else f">= {goal}"
    return Figure(f"real tokens, {family}", 100 * share, 100 * full, "%", share, told, reached, note)


def full_batches(lesson: Lesson) -> list[Batch]:
    """Every input padded to the longest there may be, in the order they come; targets to the longest of a batch."""
    rows, longest = lesson.train.rows, Rows.of(lesson, "").limits[0]
    starts = range(0, len(rows), SIZE)
    return [lesson.batch(rows, list(range(i, min(i + SIZE, len(rows)))), longest) for i in starts]


def fuller(batch: Batch, width: int) -> Batch:
    """Targets padded to `width`, too."""
    return replace(batch, target=F.pad(batch.target, (0, width - batch.target.shape[1]), value=IGNORED))


@dataclass(frozen=True)
class Epochs:
    """Milliseconds of an epoch. Of the Trainer: eager and compiled, each with ours of the same turns."""

    own: dict[str, float]  # "ours", "padded" (our step with everything padded) and what is printed beside
    trainer: dict[str, tuple[float, float]]

    @property
    def best(self) -> tuple[float, float]:
        return min(self.trainer.values())

    def note(self) -> str:
        told = [f"Trainer {way} {ms:.1f} ms (ours {ours:.1f} ms)" for way, (ms, ours) in self.trainer.items()]
        return "; ".join([*told, *(f"{what} {ms:.1f} ms" for what, ms in self.own.items() if what != "ours")])


def epochs(learner: Learner, lesson: Lesson, args: argparse.Namespace) -> Epochs:
    device, rounds, options = args.device, args.rounds, {"packed": args.packed, "compile": args.compile}
    method: Any = learner.method
    method.begin(lesson, None)
    config = LearningConfig(batch_size=SIZE, max_steps=10**6, precision=learner.config.learning.precision, **options)
    training = Training([lesson], method, config, None, None)
    table, short = training.tables[lesson.seed_key], full_batches(lesson)
    width = Rows.of(lesson, "").limits[1]
    long = [fuller(batch, width) for batch in short] if width else short
    training._mode(training=True)

    def ours(packed: bool) -> None:
        for each, numbers in training._epoch(0):
            training._step(each, table.batch(numbers, training.few_shapes, packed))

    def peer(batches: list[Batch]) -> None:
        for batch in batches:
            if device == "cuda":
                training._step(lesson, batch)
            else:  # where the loop would cut the batch into pieces of like length
                for p in training.parameters:
                    p.grad = None
                training.update(training._backward(lesson, batch), 1.0)

    calls: dict[str, Callable[[], None]] = {"ours": lambda: ours(training.packs), "padded": lambda: peer(long)}
    if training.packs:
        calls["not packed"] = lambda: ours(False)
    if width:
        calls["padded, but targets to the longest of a batch"] = lambda: peer(short)
    own = alternate(calls, device, rounds, warm=3 if device == "cuda" else 1)
    ways = {"eager": False} | ({"compiled": True} if args.trainer_compiled else {})
    trainer = {}
    for way, compiled in ways.items():
        begin = time.perf_counter()
        try:
            trainer[way] = trainer_peer.epochs(learner, lesson, long, calls["ours"], rounds, compiled)
        except Exception as problem:  # whatever a compiler meets, the eager peer is still there
            if not compiled:
                raise
            print(f"  the Trainer does not run {way}: {type(problem).__name__}: {str(problem)[:200]}", flush=True)
        print(f"  {lesson.name}: the Trainer, {way}, took {time.perf_counter() - begin:.0f} s", flush=True)
    return Epochs(own, trainer)


def timed(data: Path, learner: Learner, args: argparse.Namespace) -> list[Figure]:
    figures, against, padded, plain = [], [], [], []
    for name in TIMED:
        task = load_task(data, name)
        # whole batches only: a shorter last one would have the Trainer compile twice
        whole = max(SIZE, min(args.rows or len(task.train), len(task.train)) // SIZE * SIZE)
        task = replace(task, train=task.train[:whole], valid=task.valid[:8], test=task.test[:8])
        found = epochs(learner, learner._lesson(task), args)
        peer, ours = found.best
        figures.append(faster(f"epoch, {name}", ours, peer, "ms", None, found.note()))
        against.append(peer / ours)
        padded.append(found.own["padded"] / found.own["ours"])
        if "not packed" in found.own:
            plain.append(found.own["padded"] / found.own["not packed"])
    figures.append(faster("epoch, mean of the three", 1.0, statistics.geometric_mean(against), "x", 2.5, "geometric"))
    note = "geometric" + (f"; not packed {statistics.geometric_mean(plain):.2f}" if plain else "")
    mean = statistics.geometric_mean(padded)
    figures.append(faster("epoch against our own step, everything padded, mean", 1.0, mean, "x", None, note))
    return figures


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--shape", default="nano", choices=("nano", "mini", "bart-large", "toy"))
    parser.add_argument("--first", type=int, default=0, help="so many tasks a family; 0: all")
    parser.add_argument("--rows", type=int, default=0, help="at most so many rows of a timed task; 0: all")
    parser.add_argument("--packed", action=argparse.BooleanOptionalAction, help="default: on a GPU")
    parser.add_argument("--compile", action="store_true", help="our training step with the option compile")
    parser.add_argument("--no-trainer-compiled", dest="trainer_compiled", action="store_false",
                        help="the Trainer eager only")  # fmt: skip
    args = parser.parse_args()
    cuda = args.device == "cuda"
    args.packed = cuda if args.packed is None else args.packed
    if not cuda:
        one_thread()
    if args.trainer_compiled:
        many_variants()
    with tempfile.TemporaryDirectory() as folder:
        learner = opened(Path(folder), args.shape, args.device)
        figures = shares(args.data, learner, cuda, args.packed, args.first)
        figures += timed(args.data, learner, args)
    shape = f"{args.shape}, batches of {SIZE}, {learner.config.learning.precision}"
    shape += ", compiled" if args.compile else ""
    shape += "" if args.packed is cuda else ", packed" if args.packed else ", not packed"
    return finish(args, shape, where(args.device), versions("accelerate"), figures)


if __name__ == "__main__":
    sys.exit(main())
