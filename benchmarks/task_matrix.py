"""The full task matrix of 40 tasks: every earlier task after every task, with proofs in place of runs.

    python benchmarks/task_matrix.py

After each task both sides fill a row of the matrix: `tss bench` takes over the cells of earlier tasks whose files and
frozen weights are proved equal by hash and tests about 5 % of them again; the plain loop tests every one of them. The
cells must be the same numbers. The probes of all tasks are answered again after the last. A task's own test, when it
was just learnt, is the same on both sides and counts on neither.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from method_growth import THINGS
from ratio import Figure, arguments, finish, one_thread, smaller, versions, where

from tss import Learner, Task
from tss.bench.sequence import Testing, run_sequence

STEPS = {"max_steps": 2, "batch_size": 8, "eval_steps": 2, "checkpoint_steps": 10**6, "dev_examples": 8}


def made_task(number: int, tests: int) -> Task:
    """A small sentiment task with as many test texts as asked for."""
    rows = [
        (f"{word} {THINGS[i % len(THINGS)]} of kind {number} and piece {i}", label)
        for i in range(tests + 16)
        for word, label in [(("bad", "no"), ("good", "yes"))[i % 2]]
    ]
    return Task.from_lists(f"task {number}", "classification", rows[:8], rows[8:16], rows[16:])


@dataclass
class Clock:
    """Processor time of both sides, and both matrices."""

    learner: Learner
    tasks: list[Task]
    ours: float = 0.0
    plain: float = 0.0
    begun: float = 0.0
    rows: list[list[float]] = field(default_factory=list)

    def learn(self, task: Task, **options: Any) -> Any:
        found = Learner.learn(self.learner, task, **options)
        self.begun = time.process_time()
        return found

    def told(self, line: dict[str, Any]) -> None:
        """Our row is there: now the plain loop's."""
        now = time.process_time()
        self.ours += now - self.begun
        row = [next(iter(self.learner.evaluate(task).values())) for task in self.tasks[: len(self.rows)]]
        self.plain += time.process_time() - now
        self.rows.append(row)
        assert line["row"][:-1] == row, f"the cells after {line['task']} differ: {line['row']} and {row}"
        assert all(spot["equal"] for spot in line["spot"]), "a spot check differs"


def compare(backbone: str, count: int, tests: int) -> list[Figure]:
    tasks = [made_task(number, tests) for number in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        learner = Learner.open(Path(folder, "store"), backbone, "tss", device="cpu", config=STEPS)
        clock = Clock(learner, tasks)
        learner.learn = clock.learn  # type: ignore[method-assign]
        testing = Testing(probes=False, spot=0.05)
        lines = run_sequence(learner, tasks, Path(folder, "log.jsonl"), told=clock.told, testing=testing)
    cells = sum(len(row) for row in clock.rows)
    again = sum(len(line["spot"]) for line in lines)
    note = f"{cells} cells of earlier tasks, {tests} texts each, equal; {again} tested again; learning tests its own"
    return [smaller(f"task matrix of {count} tasks", clock.ours, clock.plain, "s", 0.1, note)]


def main() -> int:
    parser = arguments(__doc__, device=False)
    parser.add_argument("--backbone", default="bart-nano")
    parser.add_argument("--tasks", type=int, default=40)
    parser.add_argument("--tests", type=int, default=64, help="test texts a task")
    args = parser.parse_args()
    one_thread()
    figures = compare(args.backbone, args.tasks, args.tests)
    return finish(args, f"{Path(args.backbone).name}, {args.tasks} tasks", where("cpu"), versions(), figures)


if __name__ == "__main__":
    sys.exit(main())
