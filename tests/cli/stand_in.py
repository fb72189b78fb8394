"""What stands in for the learner where the command line is tested by itself, and a terminal of 60 columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from typer.testing import CliRunner

from tss.cli import app
from tss.errors import StoreError, UnknownTaskError


@dataclass(frozen=True)
class Info:
    name: str = "reviews"
    version: int = 1
    kind: str = "classification"
    bytes: int = 14_200
    gate_bytes: int = 12_000
    open_gates: float | None = 0.5
    scores: dict[str, float] = field(default_factory=lambda: {"accuracy": 87.5})
    beside: tuple[str, ...] = ()


@dataclass(frozen=True)
class Check:
    name: str
    status: str
    detail: str = "8 of 8 equal"
    outputs: int = 8
    same_environment: bool = True


@dataclass(frozen=True)
class Learned:
    name: str = "reviews"
    scores: dict[str, float] = field(default_factory=lambda: {"accuracy": 87.5, "macro_f1": float("nan")})
    seconds: float = 75.0
    steps: int = 200
    bytes: int = 14_200
    gate_bytes: int = 12_000
    open_gates: float | None = 0.5
    warnings: tuple[str, ...] = ("the sub-network is full",)
    resumed: bool = False


class StandIn:
    """Answers as a learner does and remembers what it was asked."""

    def __init__(self) -> None:
        self.opened: dict[str, object] = {}
        self.inputs: list[object] = []
        self.infos = [Info(), Info(name="entities", kind="tagging")]
        self.checks = [Check("reviews", "equal")]
        self.raises: BaseException | None = None

    def open(self, store: Path, create: bool = True, **options: object) -> StandIn:
        if not create and not Path(store).exists():
            raise StoreError(f"{store} does not exist")
        self.opened = {"store": store, **options}
        return self

    def learn(self, task, *, new_version=False, progress=None) -> Learned:
        if self.raises:
            raise self.raises
        if progress:
            progress(SimpleNamespace(task=task.name, step=1, steps=2, loss=0.5, dev=0.25, best=0.25, phase="learning"))
        return Learned(name=task.name)

    def plan(self, task) -> dict[str, object]:
        return {"steps": 200, "seconds": 75.0, "bytes": 14_200}

    def predict(self, name, inputs, details=False) -> list[dict[str, object]]:
        if name not in [info.name for info in self.infos]:
            raise UnknownTaskError(f"no task {name!r}; did you mean 'reviews'?")
        self.inputs = inputs
        if name == "entities":
            return [{"answer": ["O"] * len(text.split()), "truncated": False} for text in inputs]
        return [{"answer": "yes", "confidence": 0.9, "truncated": len(str(one)) > 50} for one in inputs]

    def evaluate(self, task, name=None) -> dict[str, float]:
        return {"accuracy": 75.0}

    def tasks(self) -> list[Info]:
        return self.infos

    def verify(self, names=None, progress=None) -> list[Check]:
        return self.checks


def run(*arguments: object, given: str | bytes = "", status: int = 0, columns: int = 60):
    """The result of `tss ARGUMENTS` in a terminal of 60 columns."""
    environment = {"COLUMNS": str(columns)}
    result = CliRunner().invoke(
        app, [str(a) for a in arguments], input=given, env=environment, terminal_width=columns, prog_name="tss"
    )
    assert result.exit_code == status, result.output
    return result
