"""The one training loop, for every method and every kind of task."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tss.errors import TrainingError
from tss.learning.optimisers import build, set_rate
from tss.learning.resume import Checkpoints, capture, restore
from tss.learning.schedule import LearningConfig
from tss.methods.method import Group, Method, Moment
from tss.randomness import seed_of, shuffler
from tss.tasks.batches import Batch, plan
from tss.tasks.lesson import Lesson


@dataclass(frozen=True)
class Progress:
    """Told to whoever watches. dev: the latest dev score (or minus the dev loss); phase: what is going on."""

    task: str
    step: int
    steps: int
    loss: float
    dev: float | None
    best: float | None
    phase: str = "learning"


@dataclass(frozen=True)
class Outcome:
    """curve: [step, training loss, dev score or None] at every evaluation."""

    steps: int
    planned: int
    best_step: int
    dev: float
    dev_loss: float
    seconds: float
    skipped: int
    pieces: int  # more than asked for: batches were cut because memory ran out
    resumed: bool
    curve: list[list[float | None]]


Watch = Callable[[Progress], None]


def train(
    lessons: Sequence[Lesson],
    method: Method,
    config: LearningConfig,
    *,
    watch: Watch | None = None,
    checkpoints: Checkpoints | None = None,
) -> Outcome:
    """Train what the method says on the lessons; the best state by dev is in place at the end.

    Raises TrainingError after `bad_steps` losses in a row that are no numbers; the last checkpoint stays.
    """
    return Training(lessons, method, config, watch, checkpoints).run()


class Training:
    """One training under way. Everything that changes is named in `resume.MARKS` or held in tensors."""

    def __init__(
        self,
        lessons: Sequence[Lesson],
        method: Method,
        config: LearningConfig,
        watch: Watch | None,
        checkpoints: Checkpoints | None,
    ):
        self.lessons, self.method, self.config = list(lessons), method, config
        self.watch, self.checkpoints = watch, checkpoints
        self.device = method.device
        self.name = " + ".join(lesson.name for lesson in self.lessons)
        self.key = "/".join(lesson.seed_key for lesson in self.lessons)
        heads = [p for lesson in self.lessons for p in lesson.head.parameters()]
        groups = [*method.groups(), Group(heads, config.head_lr)]
        self.parameters: list[nn.Parameter] = [p for group in groups for p in group.parameters]
        self.optimisers = build(groups, config)
        self.per_epoch = len(self._epoch(0))
        self.total = config.planned(self.per_epoch)
        self.every = max(self.per_epoch, config.eval_steps)
        self.best = [p.detach().clone() for p in self.parameters]
        self.best_key: tuple[float, float] | None = None
        self.best_step = self.step = self.stale = self.skipped = 0
        self.pieces = config.accumulation
        self.curve: list[list[float | None]] = []
        self.seconds, self.bad = 0.0, 0

    def run(self) -> Outcome:
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed_of(self.key, "dropout"))
            saved = self.checkpoints.load() if self.checkpoints else None
            if saved is not None:
                restore(self, *saved)
            self._learn(time.perf_counter() - self.seconds)
        if self.config.select == "dev":
            with torch.no_grad():
                for p, best in zip(self.parameters, self.best, strict=True):
                    p.copy_(best)
        if not all(bool(torch.isfinite(p).all()) for p in self.parameters):
            raise TrainingError(
                f"{self.name}: what was trained is not finite after {self.step} steps. Nothing was added to the "
                "store. Try a smaller learning rate."
            )
        self._mode(training=False)
        dev, loss = self.best_key or (0.0, 0.0)
        return Outcome(
            steps=self.step,
            planned=self.total,
            best_step=self.best_step,
            dev=dev,
            dev_loss=-loss,
            seconds=self.seconds,
            skipped=self.skipped,
            pieces=self.pieces,
            resumed=saved is not None,
            curve=self.curve,
        )

    def _learn(self, started: float) -> None:
        stream = self._stream(self.step)
        while self.step < self.total and not self._stop():
            lesson, batch = next(stream)
            loss = self._step(lesson, batch)
            self.step += 1
            self.seconds = time.perf_counter() - started
            dev = None
            if self.step % self.every == 0 or self.step == self.total:
                dev = self._evaluate(loss)
            self._tell(loss, dev)
            if self.checkpoints and (self.step % self.config.checkpoint_steps == 0 or self.step == self.total):
                self.checkpoints.save(*capture(self))

    def _epoch(self, epoch: int) -> list[tuple[Lesson, list[int]]]:
        """Batches of one epoch: of all lessons, in random order."""
        size = self.config.batch_size
        batches = [
            (lesson, numbers)
            for lesson in self.lessons
            for numbers in plan(lesson.train.lengths(), size, f"{lesson.seed_key}/{epoch}")
        ]
        if len(self.lessons) > 1:
            shuffler(self.key, epoch).shuffle(batches)
        return batches

    def _stream(self, start: int) -> Iterator[tuple[Lesson, Batch]]:
        epoch, skip = divmod(start, self.per_epoch)
        while True:
            for lesson, numbers in self._epoch(epoch)[skip:]:
                yield lesson, lesson.batch(lesson.train.rows, numbers)
            epoch, skip = epoch + 1, 0

    def _step(self, lesson: Lesson, batch: Batch) -> float:
        """One optimiser step; a step whose loss or gradient is no number is left out and counted."""
        self._mode(training=True)
        set_rate(self.optimisers, self.config.factor(self.step, self.total))
        loss = self._gradients(lesson, batch)
        norm = torch.stack([p.grad.norm() for p in self.parameters if p.grad is not None]).norm()
        loss, size = torch.stack([loss, norm.to(loss)]).tolist()
        if not abs(loss) + size < float("inf"):
            self._count_bad(lesson, batch)
            return loss
        self.bad = 0
        if self.config.clip and size > self.config.clip:
            for p in self.parameters:
                if p.grad is not None:
                    p.grad.mul_(self.config.clip / size)
        self.method.before_step()
        for optimiser in self.optimisers:
            optimiser.step()
        self.method.after_step()
        return loss

    def _gradients(self, lesson: Lesson, batch: Batch) -> Tensor:
        """Backward over the batch, in pieces if asked or if memory runs out: the maths is the same."""
        while True:
            for p in self.parameters:
                p.grad = None
            try:
                whole, total = lesson.kind.weight(batch), torch.zeros((), device=self.device)
                for piece in batch.split(self.pieces) if self.pieces > 1 else [batch]:
                    loss = self.method.loss(lesson, piece) * (lesson.kind.weight(piece) / whole)
                    loss.backward()
                    total += loss.detach()
                return total
            except torch.cuda.OutOfMemoryError as problem:
                if self.pieces >= len(batch):
                    raise TrainingError(f"{self.name}: not even one example fits the GPU's memory: {problem}") from None
                self.pieces *= 2
                torch.cuda.empty_cache()

    def _count_bad(self, lesson: Lesson, batch: Batch) -> None:
        self.skipped, self.bad = self.skipped + 1, self.bad + 1
        if self.bad >= self.config.bad_steps:
            rows = ", ".join(str(n + 1) for n in batch.numbers[:8])
            raise TrainingError(
                f"{lesson.name}: loss or gradient is not a number in {self.bad} steps in a row, up to step "
                f"{self.step} (training rows {rows}, …). Nothing was added to the store. Try a smaller learning rate "
                "(for TSS: --set score_lr=…) or precision=float32."
            )

    def _evaluate(self, loss: float) -> float:
        """Dev score of all lessons (minus the loss where that decides); keeps the best state."""
        self._mode(training=False)
        added = self.method.passing()
        found = [lesson.develop(lesson.valid.first(self.config.dev_examples), added) for lesson in self.lessons]
        dev_loss = sum(f[1] for f in found) / len(found)
        scores = [f[0] for f in found if f[0] is not None]
        score = sum(scores) / len(scores) if scores else -dev_loss
        key = (score, -dev_loss)  # ties are decided by dev loss
        if dev_loss == dev_loss and (self.best_key is None or key > self.best_key):
            self.best_key, self.best_step, self.stale = key, self.step, 0
            self.best = [p.detach().clone() for p in self.parameters]
        elif self.step > self.config.warm_steps(self.total):
            self.stale += 1
        self.curve.append([self.step, loss, score])
        return score

    def _stop(self) -> bool:
        return self.stale >= self.config.patience and self.step >= self.config.min_steps

    def _mode(self, training: bool) -> None:
        self.method.moment = Moment(self.step % self.per_epoch, self.per_epoch) if training else None
        self.method.backbone.model.train(training)
        for lesson in self.lessons:
            lesson.head.train(training)

    def _tell(self, loss: float, dev: float | None) -> None:
        if self.watch:
            best = None if self.best_key is None else self.best_key[0]
            self.watch(Progress(self.name, self.step, self.total, loss, dev, best))
