"""What a server counts: for Prometheus, and the last minute for the page."""

from __future__ import annotations

import math
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from tss.errors import TssError

MINUTE = 60
KEPT = 200  # answers of a second whose times are kept for the page
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64)


@dataclass
class _Second:
    """What happened in one second: however much is asked, a minute takes the same memory."""

    number: int
    requests: int = 0
    refused: int = 0
    batches: int = 0
    rows: int = 0
    tasks: int = 0  # of each batch, added up
    busy: float = 0.0
    took: array[float] = field(default_factory=lambda: array("d"))  # seconds of the first answers


class Metrics:
    """Counters of one server; safe to use from any thread."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        made: dict[str, Any] = {"registry": self.registry}
        self.requests = Counter("tss_requests", "Requests by route and status.", ["route", "status"], **made)
        self.answers = Counter("tss_answers", "Inputs answered, by kind of task.", ["kind"], **made)
        self.latency = Histogram("tss_predict_seconds", "Seconds from request to answer.", buckets=_SECONDS, **made)
        self.batch = Histogram("tss_batch_rows", "Rows of a forward pass.", buckets=_SIZES, **made)
        self.mixed = Histogram("tss_batch_tasks", "Tasks that share a forward pass.", buckets=_SIZES, **made)
        self.busy = Counter("tss_model_seconds", "Seconds the model was computing.", **made)
        self._made = made
        self._lock = threading.Lock()
        self._seconds: deque[_Second] = deque(maxlen=MINUTE)

    def gauge(self, name: str, what: str, read: Callable[[], float]) -> None:
        """A number that is read when somebody asks; NaN while it cannot be."""

        def told() -> float:
            try:
                return read()
            except TssError:
                return math.nan

        Gauge(name, what, **self._made).set_function(told)

    def request(self, route: str, status: int, seconds: float) -> None:
        self.requests.labels(route, str(status)).inc()
        if route == "/predict":
            if status == 200:
                self.latency.observe(seconds)
            with self._lock:
                now = self._now()
                now.requests += 1
                now.refused += status in (429, 503)
                if status == 200 and len(now.took) < KEPT:
                    now.took.append(seconds)

    def batched(self, jobs: Sequence[Any], seconds: float) -> None:
        tasks = len({job.asked.task for job in jobs})
        self.batch.observe(len(jobs))
        self.mixed.observe(tasks)
        self.busy.inc(seconds)
        for job in jobs:
            self.answers.labels(job.kind).inc()
        with self._lock:
            now = self._now()
            now.batches += 1
            now.rows += len(jobs)
            now.tasks += tasks
            now.busy += seconds

    def _now(self) -> _Second:
        """The count of the second that runs; the lock is held."""
        number = int(time.monotonic())
        if not self._seconds or self._seconds[-1].number != number:
            self._seconds.append(_Second(number))
        return self._seconds[-1]

    def text(self) -> bytes:
        return generate_latest(self.registry)

    def last_minute(self) -> dict[str, Any]:
        """Answers a second, waiting times, batches and busy share of the last minute."""
        with self._lock:
            last = self._now().number
            kept = [replace(one) for one in self._seconds if last - one.number < MINUTE]
            good = sorted(chain.from_iterable(one.took for one in kept))
        each = [0] * MINUTE
        for one in kept:
            each[MINUTE - 1 - (last - one.number)] = one.rows
        batches, rows = sum(one.batches for one in kept), sum(one.rows for one in kept)
        return {
            "answers_each_second": each,
            "requests": sum(one.requests for one in kept),
            "refused": sum(one.refused for one in kept),
            "p50_ms": _part(good, 0.50),
            "p95_ms": _part(good, 0.95),
            "rows_a_batch": round(rows / batches, 2) if batches else None,
            "tasks_a_batch": round(sum(one.tasks for one in kept) / batches, 2) if batches else None,
            "busy": round(sum(one.busy for one in kept) / MINUTE, 4),
        }


def _part(ordered: list[float], share: float) -> float | None:
    return round(1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2) if ordered else None
