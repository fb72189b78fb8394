"""What a server counts: for Prometheus, and the last minute for the page."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from tss.errors import TssError

MINUTE = 60
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64)


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
        self._recent: deque[tuple[float, float, int]] = deque(maxlen=20_000)  # when, seconds, status
        self._batches: deque[tuple[float, int, int, float]] = deque(maxlen=20_000)  # when, rows, tasks, seconds

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
                self._recent.append((time.monotonic(), seconds, status))

    def batched(self, jobs: Sequence[Any], seconds: float) -> None:
        tasks = len({job.asked.task for job in jobs})
        self.batch.observe(len(jobs))
        self.mixed.observe(tasks)
        self.busy.inc(seconds)
        for job in jobs:
            self.answers.labels(job.kind).inc()
        with self._lock:
            self._batches.append((time.monotonic(), len(jobs), tasks, seconds))

    def text(self) -> bytes:
        return generate_latest(self.registry)

    def last_minute(self) -> dict[str, Any]:
        """Answers a second, waiting times, batches and busy share of the last minute."""
        now = time.monotonic()
        with self._lock:
            recent = [one for one in self._recent if now - one[0] < MINUTE]
            batches = [one for one in self._batches if now - one[0] < MINUTE]
        each = [0] * MINUTE
        for when, rows, _, _ in batches:
            each[MINUTE - 1 - int(now - when)] += rows
        good = sorted(seconds for _, seconds, status in recent if status == 200)
        rows = sum(one[1] for one in batches)
        return {
            "answers_each_second": each,
            "requests": len(recent),
            "refused": sum(status in (429, 503) for _, _, status in recent),
            "p50_ms": _part(good, 0.50),
            "p95_ms": _part(good, 0.95),
            "rows_a_batch": round(rows / len(batches), 2) if batches else None,
            "tasks_a_batch": round(sum(one[2] for one in batches) / len(batches), 2) if batches else None,
            "busy": round(sum(one[3] for one in batches) / MINUTE, 4),
        }


def _part(ordered: list[float], share: float) -> float | None:
    return round(1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2) if ordered else None
