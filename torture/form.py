"""What a goal is asked and what it answers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


@dataclass
class Asked:
    """How much to do. `until`: the moment to stop at, done or not; `folder`: scratch space of this goal alone."""

    folder: Path
    until: float
    seed: int = 0
    tasks: int = 40
    kills: int = 100
    calls: int = 10_000
    files: int = 5_000
    names: int = 5_000
    seconds: float = 60.0
    writers: int = 4
    readers: int = 4

    def in_time(self) -> bool:
        return time.monotonic() < self.until


@dataclass
class Told:
    """What a goal found. `problems` is empty where it is reached; `whole`: all that was asked was done."""

    what: str
    numbers: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    whole: bool = True

    @property
    def verdict(self) -> str:
        if self.problems:
            return "MISSED"
        return "reached" if self.whole else "no fault found, not all done"

    def check(self, right: bool, problem: str) -> bool:
        """Note a problem (the first hundred of them) unless `right`."""
        if not right and len(self.problems) < 100:
            self.problems.append(problem)
        return right


Goal = Callable[[Asked], Told]


def in_child(work: Callable[[], None]) -> int:
    """Run `work` in a forked process; 0, its exit status, or minus the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "backslashreplace"))
        finally:
            os._exit(status)
    _, ended = os.waitpid(pid, 0)
    return -os.WTERMSIG(ended) if os.WIFSIGNALED(ended) else os.WEXITSTATUS(ended)


def as_document(told: Told) -> dict[str, Any]:
    return {**asdict(told), "verdict": told.verdict}
