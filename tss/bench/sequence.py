"""One method learns one sequence of tasks. Each task leaves a line of JSON, so a cut run goes on where it was.

A line holds the row A[k, i] of the task matrix. A method that proves its earlier tasks unchanged (the probes of every
one of them answered again, byte for byte) has equal cells there, which are taken over and not run again; for a method
that forgets, every earlier task is tested again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tss.gates.packed import overlap
from tss.learner import Learner
from tss.learning.loop import Watch
from tss.tasks.task import Task

# told after each task: (line of the task just learnt)
Told = Callable[[dict[str, Any]], None]


def run_sequence(
    learner: Learner, tasks: Sequence[Task], log: Path, *, watch: Watch | None = None, told: Told | None = None
) -> list[dict[str, Any]]:
    """Learn the tasks in order and return one line a task. Tasks that the log already has are not learnt again."""
    lines = read_log(log)
    if [line["task"] for line in lines] != [task.name for task in tasks[: len(lines)]]:
        lines = []  # another sequence; its log is overwritten
        log.unlink(missing_ok=True)
    if learner.method.joint:
        return _run_together(learner, tasks, log, watch, told)
    for k in range(len(lines), len(tasks)):
        if tasks[k].name not in learner.store.index().names():
            learner.learn(tasks[k], progress=watch)
        line = _line(learner, tasks[: k + 1], lines)
        _append(log, line)
        lines.append(line)
        if told:
            told(line)
    return lines


def _run_together(learner: Learner, tasks: Sequence[Task], log: Path, watch: Watch | None, told: Told | None) -> list:
    """A joint method: one training, then a line a task, all with the final scores."""
    if tasks[0].name not in learner.store.index().names():
        learner.learn_together(tasks, progress=watch)
    lines: list[dict[str, Any]] = []
    log.unlink(missing_ok=True)
    for k in range(len(tasks)):
        lines.append(_line(learner, tasks[: k + 1], lines))
        _append(log, lines[-1])
        if told:
            told(lines[-1])
    return lines


def read_log(log: Path) -> list[dict[str, Any]]:
    """The finished lines; a last line cut by a crash is left out."""
    if not log.exists():
        return []
    lines = []
    for text in log.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            break
    return lines


def _append(log: Path, line: dict[str, Any]) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    whole = [json.dumps(earlier) for earlier in read_log(log)] + [json.dumps(line)]
    log.write_text("\n".join(whole) + "\n", encoding="utf-8")


def _line(learner: Learner, tasks: Sequence[Task], earlier: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What there is to say about the last of the tasks, all of which are in the store."""
    name = tasks[-1].name
    record = learner.store.read(name)
    entry = learner.store.index().entry(name)
    checks = learner.verify([task.name for task in tasks[:-1]]) if len(tasks) > 1 else []
    if learner.method.forgets:
        row = [_main(learner.evaluate(task)) for task in tasks[:-1]]
    else:
        unchanged = {check.name for check in checks if check.status == "equal"}
        row = [
            line["row"][-1] if line["task"] in unchanged else _main(learner.evaluate(task))
            for line, task in zip(earlier, tasks, strict=False)
        ]
    heads = sum(t.numel() * t.element_size() for key, t in record.tensors.items() if key.startswith("head."))
    return {
        "task": name,
        "scores": record.meta["scores"],
        "row": [*row, _main(record.meta["scores"])],
        "bytes": entry.bytes,
        "gate_bytes": entry.gate_bytes or _bytes(record.tensors, "method."),
        "head_bytes": heads,
        "facts": record.meta["facts"],
        "curve": record.meta["curve"],
        "proof": {
            "comparisons": len(checks),
            "outputs": sum(check.outputs for check in checks),
            "changed_bytes": sum(check.changed_bytes for check in checks),
        },
    }


def _bytes(tensors: dict[str, Any], prefix: str) -> int:
    return sum(t.numel() * t.element_size() for key, t in tensors.items() if key.startswith(prefix))


def _main(scores: dict[str, float]) -> float:
    return next(iter(scores.values()))


def method_entry(learner: Learner, lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The lines of one method as the report wants them."""
    count = len(lines)
    facts = [line["facts"] for line in lines]
    return {
        "label": learner.method.label,
        "forgets": learner.method.forgets,
        "matrix": [line["row"] + [None] * (count - len(line["row"])) for line in lines],
        **{key: [line[key] for line in lines] for key in ("bytes", "gate_bytes", "head_bytes")},
        **{key: [f.get(key) for f in facts] for key in ("open_gates", "flips", "importance", "seconds", "steps")},
        "curves": [line["curve"] for line in lines],
        "overlap": _overlap(learner, [line["task"] for line in lines]),
    }


def proof(lines: Sequence[dict[str, Any]]) -> dict[str, int]:
    return {key: sum(line["proof"][key] for line in lines) for key in ("comparisons", "outputs", "changed_bytes")}


def _overlap(learner: Learner, names: Sequence[str]) -> list[list[float]] | None:
    """Share of equal gates of each pair of tasks."""
    gates = [learner.store.read(name).gates for name in names]
    if any(g is None for g in gates):
        return None
    return [[round(overlap(a, b), 4) for b in gates if b is not None] for a in gates if a is not None]
