"""As tests/kill_worker.py, with two more points: `after SECONDS` and `call N` (of the store's changing system calls).

Each line of stdin is `point, method, backbone, store` with tabs between; the answer is the signal that ended the child,
0 where it lived, and the seconds it took.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time

import kill_worker
from failing_system import KillingSystem

from tss.store import disk


def learn(point: str, *rest: str) -> None:
    if point.startswith("call "):
        disk.os = KillingSystem(int(point.split()[1]), 0, False)  # type: ignore[assignment]
    kill_worker.learn(point, *rest)


def main() -> None:
    kill_worker.warm_up()
    for line in sys.stdin:
        point, *rest = line.rstrip("\n").split("\t")
        start = time.monotonic()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                learn(point, *rest)
                status = 0
            finally:
                os._exit(status)
        if point.startswith("after "):
            ended_early = os.pidfd_open(child)
            select.select([ended_early], [], [], float(point.split()[1]))
            os.close(ended_early)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        _, ended = os.waitpid(child, 0)
        answer = os.WTERMSIG(ended) if os.WIFSIGNALED(ended) else -os.WEXITSTATUS(ended)
        print(answer, time.monotonic() - start, flush=True)


if __name__ == "__main__":
    main()
