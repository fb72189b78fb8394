"""Teach a frozen language model task after task; nothing learnt is ever forgotten.

Two names are public, `Learner` and `Task`. They load on first use, so `import tss` is quick and leaves torch alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tss.learner import Learner
    from tss.tasks.task import Task

__version__ = "0.1.0"
__all__ = ["Learner", "Task", "__version__"]


def __getattr__(name: str) -> object:
    if name == "Learner":
        from tss.learner import Learner

        return Learner
    if name == "Task":
        from tss.tasks.task import Task

        return Task
    raise AttributeError(f"module 'tss' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
