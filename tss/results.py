"""What the learner tells of a task it learnt, keeps or checked. Plain data, ready for JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Learned:
    """What `learn` did. scores: on the test split (on valid where there is none), in points, main metric first.

    answers: what the task answered to that split, one an example.
    """

    name: str
    version: int
    scores: dict[str, float]
    steps: int
    seconds: float
    bytes: int
    gate_bytes: int
    open_gates: float | None
    facts: dict[str, float]
    curve: list[list[float | None]]
    warnings: tuple[str, ...]
    resumed: bool
    answers: tuple[Any, ...] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Guess:
    """A task that an input may be for. distance: about 1 where it is like those the task was learnt on."""

    task: str
    distance: float


@dataclass(frozen=True)
class TaskInfo:
    name: str
    version: int
    kind: str
    labels: int
    bytes: int
    gate_bytes: int
    open_gates: float | None
    scores: dict[str, float]
    beside: tuple[str, ...] = ()  # the tasks whose sub-networks answer beside its own

    @classmethod
    def of(cls, index: Any, entry: Any) -> TaskInfo:
        """From what the store's index says of a task; no file is opened."""
        told = entry.summary
        scores = told.get("scores")
        return cls(
            name=entry.name,
            version=entry.version,
            kind=str(told.get("kind", "?")),
            labels=told.get("labels", 0),
            bytes=entry.bytes,
            gate_bytes=entry.gate_bytes,
            open_gates=told.get("open_gates"),
            scores=scores if isinstance(scores, dict) else {},
            beside=index.beside(entry),
        )


@dataclass(frozen=True)
class TaskCheck:
    """status: "equal", "close", "changed" or "damaged"; outputs: numbers compared; changed_bytes among them."""

    name: str
    status: str
    detail: str
    outputs: int = 0
    changed_bytes: int = 0
    same_environment: bool = True
