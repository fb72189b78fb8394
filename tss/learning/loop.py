"""The one training loop, for every method and every kind of task."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from tss.backbones.recorded import Outputs, Recorder
from tss.backbones.repeatable import Repeatable
from tss.errors import TrainingError
from tss.learning.compiled import compiled, plain
from tss.learning.optimisers import build
from tss.learning.parallel import ALONE, Ranks
from tss.learning.progress import Outcome, Progress, Watch
from tss.learning.resume import Checkpoints, capture, restore
from tss.learning.schedule import LearningConfig
from tss.learning.update import Made, Update, no_number
from tss.methods.method import Group, Method, Moment
from tss.randomness import seed_of, shuffler
from tss.tasks.batches import Batch, plan
from tss.tasks.lesson import Lesson

DEV_BATCH = 64


def train(
    lessons: Sequence[Lesson],
    method: Method,
    config: LearningConfig,
    *,
    watch: Watch | None = None,
    checkpoints: Checkpoints | None = None,
    ranks: Ranks = ALONE,
) -> Outcome:
    """Train what the method says on the lessons; the best state by dev is in place at the end.

    Raises TrainingError after `bad_steps` losses in a row that are no numbers; the last checkpoint stays.
    """
    return Training(lessons, method, config, watch, checkpoints, ranks).run()


class Training:
    """One training under way. Everything that changes is named in `resume.MARKS` or held in tensors."""

    def __init__(
        self,
        lessons: Sequence[Lesson],
        method: Method,
        config: LearningConfig,
        watch: Watch | None,
        checkpoints: Checkpoints | None,
        ranks: Ranks = ALONE,
    ):
        self.lessons, self.method, self.config = list(lessons), method, config
        self.watch, self.checkpoints, self.ranks = watch, checkpoints, ranks
        self.device = method.device
        self.name = " + ".join(lesson.name for lesson in self.lessons)
        self.key = "/".join(lesson.seed_key for lesson in self.lessons)
        heads = [p for lesson in self.lessons for p in lesson.head.parameters()]
        groups = [*method.groups(), Group(heads, config.head_lr)]
        self.parameters: list[nn.Parameter] = [p for group in groups for p in group.parameters]
        self.optimisers = build(groups, config)
        self.loss = compiled(method) if config.compile else plain(method)
        self.repeatable = Repeatable(self.device)
        self.recorder = Recorder(self.device.type == "cuda" and config.record, config.compile)
        self.few_shapes = self.recorder.on  # and still if recording fails on the way: the numbers stay the same
        self.rows_apart = method.by_row and ranks.count == 1
        self.packs = config.packed and self.rows_apart and method.backbone.packs
        self.passed = torch.zeros((), device=self.device)
        self.update = Update(self.parameters, self.optimisers, method, config.clip, self.recorder)
        for lesson in self.lessons if config.balance else ():
            lesson.balance(config.balance)
        self.tables = {lesson.seed_key: lesson.table(lesson.train) for lesson in self.lessons}
        self.dev = [lesson.valid.first(config.dev_examples) for lesson in self.lessons]
        self.dev_batches = [
            list(lesson.batches(split.rows, DEV_BATCH)) for lesson, split in zip(self.lessons, self.dev, strict=True)
        ]
        self.per_epoch = len(self._epoch(0))
        self.total = config.planned(self.per_epoch, len(self.lessons) if method.joint else 1)
        self.every = max(self.per_epoch, config.eval_steps)
        self.best = [p.detach().clone() for p in self.parameters]
        self.best_key: tuple[float, float] | None = None
        self.best_step = self.step = self.stale = self.skipped = 0
        self.pieces = config.accumulation
        self.curve: list[list[float | None]] = []
        self.seconds, self.bad = 0.0, 0
        self.last: float | None = None  # the loss known last
        self.unknown: list[tuple[Lesson, Batch]] = []  # batches whose loss is not known yet

    def run(self) -> Outcome:
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(seed_of(self.key, "dropout"))
            saved = self.checkpoints.load() if self.checkpoints else None
            if saved is not None:
                restore(self, *saved)
            self.ranks.part_ways(self.key, "dropout", self.step)
            self._learn(time.perf_counter() - self.seconds)
        for p in self.parameters:
            p.grad = None
        self.recorder.close()
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
            troubles=[text for text in (self.recorder.trouble, self.repeatable.trouble) if text],
            curve=self.curve,
        )

    def _learn(self, started: float) -> None:
        stream = self._stream(self.step)
        while self.step < self.total and not self._stop():
            self._step(*next(stream))
            self.step += 1
            evaluated = self.step % self.every == 0 or self.step == self.total
            saved = self.checkpoints and (self.step % self.config.checkpoint_steps == 0 or self.step == self.total)
            if evaluated or saved:
                self._note(self.update.settle())
            self.seconds = time.perf_counter() - started
            self._tell(self._evaluate() if evaluated else None)
            if self.checkpoints and saved:
                self.checkpoints.save(*capture(self))

    def _epoch(self, epoch: int) -> list[tuple[Lesson, list[int]]]:
        """Batches of one epoch: of all lessons, in random order."""
        batches = [
            (lesson, numbers)
            for lesson in self.lessons
            for numbers in plan(lesson.train.lengths(), self.config.batch_size, f"{lesson.seed_key}/{epoch}")
        ]
        if len(self.lessons) > 1:
            shuffler(self.key, epoch).shuffle(batches)
        return batches

    def _stream(self, start: int) -> Iterator[tuple[Lesson, Batch]]:
        epoch, skip = divmod(start, self.per_epoch)
        while True:
            for lesson, numbers in self._epoch(epoch)[skip:]:
                packed = self.packs and self.pieces == 1
                yield lesson, self.tables[lesson.seed_key].batch(numbers, self.few_shapes, packed)
            epoch, skip = epoch + 1, 0

    def _step(self, lesson: Lesson, batch: Batch) -> None:
        """One optimiser step; a step whose loss or gradient is no number is left out and counted."""
        self._mode(training=True)
        self.unknown.append((lesson, batch))
        factor = self.config.factor(self.step, self.total)
        if self.update.recordable and self.pieces == 1 and self.ranks.count == 1:
            try:
                return self._note(self.update.at_once((lesson.seed_key, "step"), *self._pass(lesson, batch), factor))
            except torch.cuda.OutOfMemoryError:  # before anything moved: in pieces, then
                torch.cuda.empty_cache()
        mine, share = self.ranks.mine(lesson.kind, batch)
        loss = self.ranks.reduce(self.parameters, self._gradients(lesson, mine), share)
        self._note(self.update(loss, factor))

    def _note(self, found: Sequence[Made]) -> None:
        for one in found:
            self.last, (lesson, batch) = one.loss, self.unknown.pop(0)
            self.bad = 0 if one.made else self.bad + 1
            self.skipped += not one.made
            if self.bad >= self.config.bad_steps:
                raise no_number(lesson.name, self.bad, self.step, batch.numbers)

    def _gradients(self, lesson: Lesson, batch: Batch) -> Tensor:
        """Backward over the batch, in pieces if asked or if memory runs out: the maths is the same."""
        while True:
            for p in self.parameters:
                p.grad = None
            try:
                pieces = self._cut(lesson, batch)
                if len(pieces) < 2:
                    return self._backward(lesson, batch)
                whole, total = lesson.kind.weight(batch), torch.zeros((), device=self.device)
                for piece in pieces:
                    total += self._backward(lesson, piece, lesson.kind.weight(piece) / whole)
                return total
            except torch.cuda.OutOfMemoryError as problem:
                if self.pieces >= len(batch):
                    raise TrainingError(f"{self.name}: not even one example fits the GPU's memory: {problem}") from None
                self.pieces *= 2
                torch.cuda.empty_cache()

    def _cut(self, lesson: Lesson, batch: Batch) -> list[Batch]:
        """Pieces that fit the memory; else, on a CPU, of like length, as a GPU has padding for less than a launch."""
        if self.pieces == 1 and self.rows_apart and self.device.type == "cpu" and not batch.packing:
            return self.tables[lesson.seed_key].pieces(batch.numbers)
        return batch.split(self.pieces)

    def _backward(self, lesson: Lesson, batch: Batch, share: float = 1.0) -> Tensor:
        """Add the gradients of a batch that counts `share`; its loss."""
        derive, inputs = self._pass(lesson, batch, share)
        recorded = self.method.steady and share == 1.0
        key = lesson.seed_key, "gradients"
        loss, *gradients = self.recorder(key, derive, *inputs) if recorded else derive(*inputs)
        for p, gradient in zip(self.parameters, gradients, strict=True):
            if gradient is not None:
                p.grad = gradient if p.grad is None else p.grad + gradient
        assert loss is not None
        return loss

    def _pass(self, lesson: Lesson, batch: Batch, share: float = 1.0) -> tuple[Callable[..., Outputs], list[Tensor]]:
        """What gives the loss and the gradients of a batch that counts `share`, and the tensors it is given."""

        def derive(*tensors: Tensor) -> Outputs:
            loss = self.loss(lesson, batch.holding(tensors))
            loss = loss if share == 1.0 else loss * share
            return loss.detach(), *torch.autograd.grad(loss, self.parameters, allow_unused=True)

        return partial(self.repeatable, derive), batch.tensors()

    def _evaluate(self) -> float:
        """Dev score of all lessons (minus the loss where that decides); keeps the best state."""
        self._mode(training=False)
        each = zip(self.lessons, self.dev, self.dev_batches, strict=True)
        found = [lesson.develop(split, batches, self._forward) for lesson, split, batches in each]
        dev_loss = sum(f[1] for f in found) / len(found)
        scores = [f[0] for f in found if f[0] is not None]
        score = sum(scores) / len(scores) if scores else -dev_loss
        score, dev_loss = self.ranks.agree((score, dev_loss))
        key = (score, -dev_loss)  # ties are decided by dev loss
        if dev_loss == dev_loss and (self.best_key is None or key > self.best_key):
            self.best_key, self.best_step, self.stale = key, self.step, 0
            self.best = [p.detach().clone() for p in self.parameters]
        elif self.step > self.config.warm_steps(self.total):
            self.stale += 1
        self.curve.append([self.step, self.last, score])
        return score

    def _forward(self, lesson: Lesson, number: int, batch: Batch) -> tuple[Tensor, Tensor]:
        """Logits (empty where nobody reads them) and loss of a dev batch."""

        def forward() -> tuple[Tensor | None, ...]:
            logits = lesson.logits(batch, self.method.passing())
            loss = lesson.kind.loss(logits, batch)
            return logits.new_empty(0) if lesson.kind.by_loss else logits, loss

        logits, loss = self.recorder((lesson.seed_key, "dev", number), forward)
        assert logits is not None and loss is not None
        return logits, loss

    def _stop(self) -> bool:
        return self.stale >= self.config.patience and self.step >= self.config.min_steps

    def _mode(self, training: bool) -> None:
        self.method.moment = self._moment() if training else None
        for module in (self.method.backbone.model, *(lesson.head for lesson in self.lessons)):
            if module.training is not training:  # telling every layer at every step takes milliseconds
                module.train(training)

    def _moment(self) -> Moment:
        batch = self.step % self.per_epoch
        if not self.few_shapes:
            return Moment(batch, self.per_epoch)
        self.passed.fill_(batch / (self.per_epoch - 1) if self.per_epoch > 1 else 1.0)
        return Moment(batch, self.per_epoch, self.passed)

    def _tell(self, dev: float | None) -> None:
        if self.watch and self.last is not None:
            best = None if self.best_key is None else self.best_key[0]
            self.watch(Progress(self.name, self.step, self.total, self.last, dev, best))
