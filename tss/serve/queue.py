"""The queue: inputs of all requests and tasks, gathered into batches of like form and length, one model, one thread.

What is accepted is answered. What could not be answered within the latency target, or would keep others from it, is
refused at the door (429), so that the time of what was accepted stays bounded however much is asked.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from bisect import insort
from collections import deque
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any, Protocol

from tss.learning.answering import Question, answer_batch
from tss.serve.asked import Asked
from tss.serve.costs import Costs
from tss.serve.job import Job
from tss.serve.limits import Limits, Refusal
from tss.store import TaskEntry

log = logging.getLogger("tss.serve")

BURST, BURST_TIMES = 0.2, 1.6  # for so many seconds of too much, so many times the target is allowed
CALM = 1.0  # seconds without too much after which it is a new burst


class Model(Protocol):
    """What the queue needs of the tasks; see `tasks.Tasks`."""

    def load(self) -> bool: ...
    def question(self, asked: Asked, where: str) -> tuple[Question, TaskEntry]: ...
    def samples(self) -> list[tuple[Asked, Question, TaskEntry]]: ...


class Queue:
    """Start it, submit jobs from any thread, close it: then it answers what it had accepted."""

    warming = 1.0  # seconds at most, for samples before the first request

    def __init__(self, tasks: Model, limits: Limits, watch: Callable[[Sequence[Job], float], None]):
        self.tasks, self.limits, self._watch = tasks, limits, watch
        self.ready = False  # the model is loaded and warm
        self.failure: BaseException | None = None  # why it could not be
        self._change = threading.Condition()
        self._new: deque[Job] = deque()
        self._waiting: list[Job] = []  # encoded, oldest first; touched by the worker alone
        self._count = 0
        self._held: dict[Hashable, list[float]] = {}  # key -> when its inputs came whose batch has not begun
        self._shut = False  # somebody was refused, so nobody is accepted until a batch ends: slow inputs get their turn
        self._pressed = (-math.inf, -math.inf)  # since when and until when more was asked than the target allows
        self._free = 0.0  # the moment at which the batch that runs should end
        self._doubt = 0.0  # the variance of that
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
            self._admit((), 1)

    def submit(self, jobs: Sequence[Job]) -> None:
        """Accept all or none. Raises Refusal: 503 before the model is there and while closing, 429 when full."""
        with self._change:
            if len(jobs) > self.limits.queue:
                raise Refusal(422, f"{len(jobs)} inputs are more than the queue holds ({self.limits.queue})")
            for job in jobs:
                job.key = self._costs.guess(job.signs)
            keys = {job.key for job in jobs}
            for key in keys:
                self._costs.asked(key)
            self._admit(keys, len(jobs))
            self._new.extend(jobs)
            self._count += len(jobs)
            for job in jobs:
                self._held.setdefault(job.key, []).append(job.accepted)
            self._change.notify()

    def _admit(self, keys: Collection[Hashable], count: int) -> None:
        """keys: of the inputs that would come; the first of each should be answered within the target."""
        if self._closing or not self.ready:
            what = "the server is shutting down" if self._closing else "the model is being loaded"
            raise Refusal(503, f"{what}; try again soon", retry_after=1)
        if not self._count:  # an idle server takes on anything
            return
        wait, longest = self._foreseen(keys)
        late = longest > (self.limits.latency or self._target(longest))
        if self._shut or late or self._count + count > self.limits.queue:
            self._shut |= late
            later = max(1, math.ceil(wait))
            raise Refusal(429, f"{self._count} inputs are waiting; try again in {later} s", retry_after=later)

    def _target(self, longest: float) -> float:
        """A moment of too much is a burst, and may take somewhat longer; what lasts is overload."""
        target, now = self._costs.target(), time.monotonic()
        if longest <= target:
            return target
        if now - self._pressed[1] > CALM:
            self._pressed = now, now
        self._pressed = self._pressed[0], now
        return target if now - self._pressed[0] > BURST else BURST_TIMES * target

    def _foreseen(self, keys: Collection[Hashable]) -> tuple[float, float]:
        """Seconds until all is answered with one more input of each key, and the longest time that any input takes:
        a standard deviation more than is likely, for on a busy machine batches may take longer than the last ones."""
        now = time.monotonic()
        batches = {key: (came[0], len(came)) for key, came in self._held.items()}
        for key in keys:
            first, rows = batches.get(key, (now, 0))
            batches[key] = first, rows + 1
        end, longest, doubt = max(now, self._free), 0.0, self._doubt
        for key, (first, rows) in sorted(batches.items(), key=lambda one: one[1][0]):  # the oldest is answered first
            end += self._costs.work(key, rows)
            doubt += self._costs.doubt(key)
            longest = max(longest, end + math.sqrt(doubt) - first)
        return end - now, longest

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
        self._warm()
        self.ready = True
        while self._gather():
            if self._waiting:
                self._answer(self._choose())

    def _warm(self) -> None:
        """Answer samples in ever larger batches: who comes first does not pay for all first uses, the memory that
        batches take is taken, and the time of batches is known before it must be promised."""
        until = time.monotonic() + self.warming
        jobs = []
        try:
            for asked, question, entry in self.tasks.samples() if self.warming else ():
                job = Job(asked, "the sample", entry.summary["kind"], question=question)
                jobs.append((job, question))
                self._costs.seen(job.signs, job.bucket)
                answer_batch([question])  # all first uses are in this one, so its time says nothing
            for rows in (2**power for power in range(self.limits.batch.bit_length())):
                for job, question in jobs:
                    if self._closing or time.monotonic() > until:
                        return
                    begin = time.monotonic()
                    answer_batch([question] * rows)
                    self._costs.learn(job.bucket, rows, time.monotonic() - begin)
        except Exception:  # whoever asks that task will be told
            log.exception("a sample could not be answered")

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
                self._known(job)
                self._waiting.append(job)
        return True

    def _known(self, job: Job) -> None:
        """Now that it is encoded, its bucket is no guess any more."""
        with self._change:
            self._costs.seen(job.signs, job.bucket)
            self._release(job)
            job.key = job.bucket
            insort(self._held.setdefault(job.key, []), job.accepted)

    def _enough(self) -> bool:
        return self._closing or len(self._new) >= self.limits.batch

    def _choose(self) -> list[Job]:
        """The oldest job and those that share its bucket."""
        first = self._waiting[0].bucket
        return [job for job in self._waiting if job.bucket == first][: self.limits.batch]

    def _release(self, job: Job) -> None:
        came = self._held[job.key]
        came.remove(job.accepted)
        if not came:
            del self._held[job.key]

    def _begun(self, jobs: list[Job], expected: float = 0.0, doubt: float = 0.0) -> None:
        with self._change:
            for job in jobs:
                self._release(job)
            self._free, self._doubt = time.monotonic() + expected, doubt

    def _answer(self, jobs: list[Job]) -> None:
        self._begun(jobs, self._costs.work(jobs[0].key, len(jobs)), self._costs.doubt(jobs[0].key))
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
            self._free = self._doubt = 0.0
            self._costs.learn(jobs[0].key, len(jobs), spent + sum(job.encoding for job in jobs))

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
