"""The queue: inputs of all requests and tasks, gathered into batches of like form and length, one model, one thread.

What is accepted is answered. What would have to wait longer than the latency target is refused at the door (429), so
that the waiting time of what was accepted stays bounded however much is asked.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from tss.learning.answering import Question, answer_batch
from tss.serve.asked import Asked
from tss.serve.limits import Limits, Refusal
from tss.store import TaskEntry

log = logging.getLogger("tss.serve")


@dataclass
class Job:
    """One input on its way. `kind`: of its task, for the guess how long it takes."""

    asked: Asked
    where: str
    kind: str
    accepted: float = field(default_factory=time.monotonic)
    answer: Future = field(default_factory=Future)
    question: Question | None = None
    entry: TaskEntry | None = None

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
        self._backlog = 0.0  # guessed seconds of work accepted and not finished
        self._count = 0
        self._cost: dict[str, float] = {}  # kind -> seconds an input takes in a batch, lately
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

    def submit(self, jobs: Sequence[Job]) -> None:
        """Accept all or none. Raises Refusal: 503 before the model is there and while closing, 429 when full."""
        with self._change:
            if self._closing or not self.ready:
                what = "the server is shutting down" if self._closing else "the model is being loaded"
                raise Refusal(503, f"{what}; try again soon", retry_after=1)
            late = self._backlog > self.limits.latency
            if late or (self._count and self._count + len(jobs) > self.limits.queue):
                wait = max(1, math.ceil(self._backlog))
                raise Refusal(429, f"{self._count} inputs are waiting; try again in {wait} s", retry_after=wait)
            if len(jobs) > self.limits.queue:
                raise Refusal(422, f"{len(jobs)} inputs are more than the queue holds ({self.limits.queue})")
            self._new.extend(jobs)
            self._count += len(jobs)
            self._backlog += sum(self._guess(job) for job in jobs)
            self._change.notify()

    def _guess(self, job: Job) -> float:
        return self._cost.get(job.kind, 0.0)

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
            try:
                job.question, job.entry = self.tasks.question(job.asked, job.where)
            except Exception as problem:
                self._finish([job], [_as_refusal(problem, job)])
            else:
                self._waiting.append(job)
        return True

    def _enough(self) -> bool:
        return self._closing or len(self._new) >= self.limits.batch

    def _choose(self) -> list[Job]:
        """The oldest job and those that share its bucket, no more than fit the latency target."""
        first = self._waiting[0]
        alike = [job for job in self._waiting if job.bucket == first.bucket]
        cost = max(self._guess(job) for job in alike)
        most = self.limits.batch if cost <= 0 else max(1, min(self.limits.batch, int(self.limits.latency / cost)))
        return alike[:most]

    def _answer(self, jobs: list[Job]) -> None:
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
        each = spent / len(jobs)
        for kind in {job.kind for job in jobs}:
            self._cost[kind] = 0.7 * self._cost.get(kind, each) + 0.3 * each

    def _finish(self, jobs: Sequence[Job], answers: Sequence[Any]) -> None:
        if not jobs:
            return
        for job, answer in zip(jobs, answers, strict=True):
            if job.answer.set_running_or_notify_cancel():
                if isinstance(answer, Refusal):
                    job.answer.set_exception(answer)
                else:
                    job.answer.set_result(answer)
        with self._change:
            self._count -= len(jobs)
            left = [*self._waiting, *self._new]
            self._backlog = sum(self._guess(job) for job in left)


def _as_refusal(problem: Exception, job: Job) -> Refusal:
    if isinstance(problem, Refusal):
        return problem
    log.exception("task %r could not answer", job.asked.task, exc_info=problem)
    return Refusal(503, f"task {job.asked.task!r} could not answer; the others go on")
