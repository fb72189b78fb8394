"""One method learns one sequence of tasks. Each task leaves a line of JSON, so a cut run goes on where it was.

A line holds the row A[k, i] of the task matrix. A method that proves its earlier tasks unchanged (their files and the
frozen weights by hash, their probes answered again byte for byte) has equal cells there, which are taken over, not run
again; some are, as a check. For a method that forgets, earlier tasks are tested again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from tss.bench.examples import test, tested
from tss.gates.packed import overlap
from tss.learner import Learner
from tss.learning.progress import Watch
from tss.randomness import shuffler
from tss.results import Learned
from tss.tasks.task import Task

# told after each task: (line of the task just learnt)
Told = Callable[[dict[str, Any]], None]
Line = dict[str, Any]


@dataclass(frozen=True)
class Testing:
    """What is tested along a sequence, beside each task when it was learnt.

    triangle: a method that forgets is tested on all earlier tasks after each task; else after the last one only.
    probes: other methods answer the probes of all earlier tasks after each task; else after the last one only, and
    before that hashes of files and frozen weights say that nothing changed.
    examples: a line also holds what each test example contributed.
    spot: share of the cells taken as equal that are tested again, to compare; at least one a sequence if above 0.
    """

    triangle: bool = True
    probes: bool = True
    examples: bool = False
    spot: float = 0.0


def run_sequence(
    learner: Learner,
    tasks: Sequence[Task],
    log: Path,
    *,
    watch: Watch | None = None,
    told: Told | None = None,
    header: dict[str, Any] | None = None,
    testing: Testing | None = None,
) -> list[Line]:
    """Learn the tasks in order and return one line a task. Tasks that the log already has are not learnt again.

    header: what the log's first line says of the run as a whole.
    """
    lines = read_log(log)
    if [line["task"] for line in lines] != [task.name for task in tasks[: len(lines)]]:
        lines = []  # another sequence; its log is overwritten
        log.unlink(missing_ok=True)
    if header is not None and not log.exists():
        append(log, header)
    learnt: dict[str, Learned] = {}
    if len(lines) < len(tasks) and learner.method.joint and tasks[0].name not in learner.store.index().names():
        learnt = {one.name: one for one in learner.learn_together(tasks, progress=watch)}
    for k in range(len(lines), len(tasks)):
        name, begun = tasks[k].name, monotonic()
        if name not in learner.store.index().names():
            learnt[name] = learner.learn(tasks[k], progress=watch)
        line = _Testing(learner, tasks, lines, testing or Testing()).line(learnt.pop(name, None))
        line["wall"] = round(monotonic() - begun, 3)  # seconds of all of it: races, training, tests
        append(log, line)
        lines.append(line)
        if told:
            told(line)
    return lines


def names_of(tasks: Sequence[Task]) -> list[str]:
    return [task.name for task in tasks]


def read_log(log: Path) -> list[Line]:
    """The finished lines, one a task; the header and a last line cut by a crash are left out."""
    return [line for line in _whole(log)[0] if "task" in line]


def read_header(log: Path) -> dict[str, Any] | None:
    """What the log says of the run as a whole; None if it has no header."""
    lines, _ = _whole(log)
    return lines[0] if lines and "task" not in lines[0] else None


def _whole(log: Path) -> tuple[list[Line], int]:
    """The lines that are whole, and the number of bytes they take."""
    lines, size = [], 0
    for text in log.read_bytes().splitlines(keepends=True) if log.exists() else ():
        try:
            line = json.loads(text)
        except ValueError:
            break
        if not text.endswith(b"\n"):
            break
        lines.append(line)
        size += len(text)
    return lines, size


def append(log: Path, line: Line) -> None:
    """Add a line after the last whole one; when this returns it is on the disk."""
    log.parent.mkdir(parents=True, exist_ok=True)
    _, size = _whole(log)
    with open(log, "r+b" if log.exists() else "wb") as file:
        file.truncate(size)
        file.seek(size)
        file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


class _Testing:
    """What there is to say about the task after the lines so far; it is in the store, and so are those before."""

    def __init__(self, learner: Learner, tasks: Sequence[Task], lines: Sequence[Line], testing: Testing):
        self.learner, self.lines, self.testing = learner, lines, testing
        self.task, self.before = tasks[len(lines)], tasks[: len(lines)]
        self.last = len(lines) + 1 == len(tasks)
        self.record = learner.store.read(self.task.name, gates=False)

    def line(self, learnt: Learned | None) -> Line:
        """learnt: what `learn` answered; None if it was learnt by a run that was cut before this line."""
        meta, tensors = self.record.meta, self.record.tensors
        entry = self.learner.store.index().entry(self.task.name)
        line = {
            "task": self.task.name,
            "scores": meta["scores"],
            "bytes": entry.bytes,
            "gate_bytes": entry.gate_bytes or _bytes(tensors, "method."),
            "head_bytes": _bytes(tensors, "head."),
            "facts": meta["facts"],
            "curve": [[step, *(v if v is None else round(v, 4) for v in values)] for step, *values in meta["curve"]],
            "file": entry.file,
            "frozen": meta["frozen_hash"],
        }
        if meta.get("remarks"):
            line["remarks"] = meta["remarks"]
        if self.testing.examples:
            if learnt is None or learnt.answers is None:
                line["scores"], line["examples"] = test(self.learner, self.task)
            else:
                line["scores"], line["examples"] = tested(self.task, learnt.scores, learnt.answers)
        line |= self._forgotten() if self.learner.method.forgets else self._unchanged(line)
        line["row"].append(_main(line["scores"]))
        return line

    def _forgotten(self) -> Line:
        """Earlier tasks tested again; after the last task all that there is to know of them."""
        out: Line = {"row": [None] * len(self.before)}
        if self.last and self.testing.examples:
            tested = {task.name: test(self.learner, task) for task in self.before}
            out["row"] = [_main(scores) for scores, _ in tested.values()]
            out["final_scores"] = {name: scores for name, (scores, _) in tested.items()}
            out["final_examples"] = {name: found for name, (_, found) in tested.items()}
        elif self.last or self.testing.triangle:
            out["row"] = [_main(self.learner.evaluate(task)) for task in self.before]
        out["proof"] = self._proof(self.testing.probes)[0]  # here it counts what changed
        return out

    def _unchanged(self, line: Line) -> Line:
        """Cells of earlier tasks taken over where they are proved equal, else tested again."""
        probed = self.testing.probes or self.last
        proof, equal = self._proof(probed)
        if not probed:
            index = self.learner.store.index()
            equal = {
                old["task"]
                for old in self.lines
                if (index.entry(old["task"]).file, line["frozen"]) == (old["file"], old["frozen"])
            }
        row = [
            _main(old["scores"]) if old["task"] in equal else _main(self.learner.evaluate(task))
            for old, task in zip(self.lines, self.before, strict=True)
        ]
        return {"row": row, "proof": proof, "spot": self._spot_checks()}

    def _proof(self, probed: bool) -> tuple[dict[str, int], set[str]]:
        """Counts of a comparison of all earlier tasks' probes, and the tasks whose answers are equal."""
        checks = self.learner.verify(names_of(self.before)) if probed and self.before else []
        counts = {
            "comparisons": len(checks),
            "outputs": sum(check.outputs for check in checks),
            "changed_bytes": sum(check.changed_bytes for check in checks),
        }
        return counts, {check.name for check in checks if check.status == "equal"}

    def _spot_checks(self) -> list[dict[str, Any]]:
        """Some earlier tasks tested again in full and compared with what they answered when just learnt."""
        share, drawn = self.testing.spot, []
        if share:
            drawn = [i for i in range(len(self.before)) if self._draw(i) < share]
            if self.last and self.before and not drawn and not any(old["spot"] for old in self.lines):
                drawn = [0]
        out = []
        for i in drawn:
            old, (scores, found) = self.lines[i], test(self.learner, self.before[i])
            same = scores == old["scores"] and found == old.get("examples", found)
            out.append({"task": old["task"], "equal": same, "score": _main(scores)})
        return out

    def _draw(self, i: int) -> float:
        return shuffler("spot", self.task.name, self.before[i].name).random()


def _bytes(tensors: dict[str, Any], prefix: str) -> int:
    return sum(t.numel() * t.element_size() for key, t in tensors.items() if key.startswith(prefix))


def _main(scores: dict[str, float]) -> float:
    return next(iter(scores.values()))


def method_entry(learner: Learner, lines: Sequence[Line]) -> dict[str, Any]:
    """The lines of one method as the report wants them."""
    method = learner.method
    entry = entry_of(method.label, method.forgets, lines, seconds_of(lines, method.joint))
    return {**entry, "overlap": gate_overlap(learner, lines)}


def seconds_of(lines: Sequence[Line], joint: bool) -> list[float]:
    """What learning each task took. joint: all share one training, and each line tells the whole of it."""
    facts, parts = [line["facts"] for line in lines], len(lines) if joint else 1
    return [(one.get("seconds", 0.0) + one.get("seconds_beside", 0.0)) / parts for one in facts]


def entry_of(label: str, forgets: bool, lines: Sequence[Line], seconds: Sequence[float]) -> dict[str, Any]:
    """The same from the lines alone, without the overlap of gates."""
    count = len(lines)
    facts = [line["facts"] for line in lines]
    return {
        "label": label,
        "forgets": forgets,
        "matrix": [line["row"] + [None] * (count - len(line["row"])) for line in lines],
        **{key: [line[key] for line in lines] for key in ("bytes", "gate_bytes", "head_bytes")},
        **{key: [f.get(key) for f in facts] for key in ("open_gates", "flips", "importance", "steps")},
        "seconds": list(seconds),
        "curves": [line["curve"] for line in lines],
    }


def proof(lines: Sequence[Line]) -> dict[str, int]:
    return {key: sum(line["proof"][key] for line in lines) for key in ("comparisons", "outputs", "changed_bytes")}


def gate_overlap(learner: Learner, lines: Sequence[Line]) -> list[list[float]] | None:
    """Share of equal gates of each pair of tasks."""
    gates = [learner.store.read(line["task"]).gates for line in lines]
    if any(g is None for g in gates):
        return None
    return [[round(overlap(a, b), 4) for b in gates if b is not None] for a in gates if a is not None]
