"""The queue: inputs of all requests and tasks, gathered into batches of like form and length, one model, one thread.

What is accepted is answered. What could not be answered within the latency target is refused at the door (429), so
that the time of what was accepted stays bounded however much is asked.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from tss.learning.answering import Question, answer_batch
from tss.serve.asked import Asked
from tss.serve.costs import Costs
from tss.serve.limits import Limits, Refusal
from tss.store import TaskEntry

log = logging.getLogger("tss.serve")


@dataclass
class Job:
    """One input on its way. `kind`: of its task; `encoding`: seconds that its encoding took."""

    asked: Asked
    where: str
    kind: str
    accepted: float = field(default_factory=time.monotonic)
    answer: Future = field(default_factory=Future)
    question: Question | None = None
    entry: TaskEntry | None = None
    encoding: float = 0.0

    @property
    def key(self) -> Hashable:
        """What its time is guessed by before it is encoded: the kind, and the length to a power of two."""
        return self.kind, max(self.asked.size, 32).bit_length()

    @property
    def bucket(self) -> Any:
        """Jobs of equal buckets share a batch: same form, lengths up to the same power of two."""
        assert self.question is not None
        return self.question.form, max(len(self.question.row.ids) - 1, 15).bit_length()


class Model(Protocol):
    """What the queue needs of the tasks; see `tasks.Tasks`."""

    def load(self) -> bool: ...
    def question(self, asked: Asked, where: str) -> tuple[Question, TaskEntry]: ...


class Queue:
    """Start it, submit jobs from any thread, close it: then it answers what it had accepted."""

    def __init__(self, tasks: Model, limits: Limits, watch: Callable[[Sequence[Job], float], None]):
        self.tasks, self.limits, self._watch = tasks, limits, watch
        self.ready = False  # the model is loaded
        self.failure: BaseException | None = None  # why it could not be
        self._change = threading.Condition()
        self._new: deque[Job] = deque()
        self._waiting: list[Job] = []  # encoded, oldest first; touched by the worker alone
        self._count = 0
        self._held: Counter[Hashable] = Counter()  # key -> inputs whose batch has not begun
        self._shut = False  # somebody was refused, so nobody is accepted until a batch ends: slow inputs get their turn
        self._free = 0.0  # the moment at which the batch that runs should end
        self._costs = Costs(limits.batch)
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="tss-model", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, wait: float | None = None) -> None:
        """Take nothing more, answer what was accepted, stop."""
        with self._change:
            self._closing = True
            self._change.notify()
        self._thread.join(wait)

    def __len__(self) -> int:
        """Inputs accepted and not yet answered."""
        return self._count

    def admit(self) -> None:
        """Raises Refusal if nothing is accepted at the moment, whatever it is: cheap, for the door."""
        with self._change:
            self._admit(Counter(), 1)

    def submit(self, jobs: Sequence[Job]) -> None:
        """Accept all or none. Raises Refusal: 503 before the model is there and while closing, 429 when full."""
        with self._change:
            if len(jobs) > self.limits.queue:
                raise Refusal(422, f"{len(jobs)} inputs are more than the queue holds ({self.limits.queue})")
            keys = {job.key for job in jobs}
            for key in keys:
                self._costs.asked(key)
            self._admit(Counter(keys), len(jobs))
            self._new.extend(jobs)
            self._count += len(jobs)
            self._held.update(job.key for job in jobs)
            self._change.notify()

    def _admit(self, first: Counter[Hashable], count: int) -> None:
        """first: one input of each key, whose answers should come within the target."""
        if self._closing or not self.ready:
            what = "the server is shutting down" if self._closing else "the model is being loaded"
            raise Refusal(503, f"{what}; try again soon", retry_after=1)
        if not self._count:  # an idle server takes on anything
            return
        running = max(0.0, self._free - time.monotonic())
        wait = running + self._costs.work(self._held + first)
        target = self.limits.latency or self._costs.target()
        if self._shut or wait > target or self._count + count > self.limits.queue:
            self._shut |= wait > target
            later = max(1, math.ceil(wait))
            raise Refusal(429, f"{self._count} inputs are waiting; try again in {later} s", retry_after=later)

    # The worker.
    def _work(self) -> None:
        try:
            while not self.tasks.load():  # the store is empty: wait for its first task
                with self._change:
                    if self._change.wait_for(lambda: self._closing, timeout=1.0):
                        return
        except BaseException as problem:
            self.failure = problem
            return
        self.ready = True
        while self._gather():
            if self._waiting:
                self._answer(self._choose())

    def _gather(self) -> bool:
        """Encode what has arrived; with nothing to do, wait for it. False when all is done."""
        with self._change:
            if not self._waiting and not self._new:
                self._change.wait_for(lambda: self._new or self._closing)
                if not self._new:
                    return False
                self._change.wait_for(self._enough, timeout=self.limits.linger)
            arrived = list(self._new)
            self._new.clear()
        for job in arrived:
            begin = time.monotonic()
            try:
                job.question, job.entry = self.tasks.question(job.asked, job.where)
            except Exception as problem:
                self._begun([job])
                self._finish([job], [_as_refusal(problem, job)])
            else:
                job.encoding = time.monotonic() - begin
                self._waiting.append(job)
        return True

    def _enough(self) -> bool:
        return self._closing or len(self._new) >= self.limits.batch

    def _choose(self) -> list[Job]:
        """The oldest job and those that share its bucket."""
        first = self._waiting[0].bucket
        return [job for job in self._waiting if job.bucket == first][: self.limits.batch]

    def _begun(self, jobs: list[Job], expected: float = 0.0) -> None:
        with self._change:
            self._held -= Counter(job.key for job in jobs)
            self._free = time.monotonic() + expected

    def _answer(self, jobs: list[Job]) -> None:
        self._begun(jobs, self._costs.work(Counter(job.key for job in jobs)))
        chosen = {id(job) for job in jobs}
        self._waiting = [job for job in self._waiting if id(job) not in chosen]
        late = [job for job in jobs if time.monotonic() - job.accepted > self.limits.seconds]
        gone = [job for job in jobs if job.answer.cancelled()]
        self._finish(late, [Refusal(503, "it took too long; the server is busy", retry_after=1)] * len(late))
        self._finish(gone, [None] * len(gone))
        jobs = [job for job in jobs if job not in late and job not in gone]
        if jobs:
            begin = time.monotonic()
            answers = self._tell(jobs)
            spent = time.monotonic() - begin
            self._learn_cost(jobs, spent)
            self._finish(jobs, answers)
            self._watch(jobs, spent)

    def _tell(self, jobs: list[Job]) -> list[Any]:
        """Answers, or a Refusal for each job that went wrong; one bad job spoils no other."""
        try:
            return list(answer_batch([job.question for job in jobs if job.question is not None]))
        except Exception as problem:
            if len(jobs) == 1:
                return [_as_refusal(problem, jobs[0])]
        return [answer for job in jobs for answer in self._tell([job])]

    def _learn_cost(self, jobs: list[Job], spent: float) -> None:
        with self._change:
            self._free = 0.0
            for key in {job.key for job in jobs}:
                self._costs.learn(key, len(jobs), spent + sum(job.encoding for job in jobs))

    def _finish(self, jobs: Sequence[Job], answers: Sequence[Any]) -> None:
        if not jobs:
            return
        with self._change:  # first: whoever has an answer may ask again at once
            self._count -= len(jobs)
            self._shut = False
        for job, answer in zip(jobs, answers, strict=True):
            if job.answer.set_running_or_notify_cancel():
                if isinstance(answer, Refusal):
                    job.answer.set_exception(answer)
                else:
                    job.answer.set_result(answer)


def _as_refusal(problem: Exception, job: Job) -> Refusal:
    if isinstance(problem, Refusal):
        return problem
    log.exception("task %r could not answer", job.asked.task, exc_info=problem)
    return Refusal(503, f"task {job.asked.task!r} could not answer; the others go on")
