"""A store with 10,000 tasks against one with 10: open, list, first use, switch, verify, add, and memory.

    python benchmarks/many_tasks.py [--tasks 10000] [--out results/scale.json] [--folder FOLDER]

The tasks are written, not learnt: random gates and heads on bart-nano, with probes answered by them. Writes the numbers
and, beside them, the same as a table (scale.md).
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FEW = 10
AT_ONCE = 500  # tasks a commit
USES = 50  # how often a short thing is timed
READY_BYTES, FULL_BYTES = 2 << 20, 16 << 20  # of the LRU: about 150 tasks as bits, 40 in full numbers


def made_store(path: Path, count: int) -> Path:
    """A store of `count` tasks named `task 0`, `task 1` …; returns its path."""
    from tss import Learner, Task

    rows = [("a fine read", "good"), ("a dull read", "bad")]
    learner = Learner.open(path, device="cpu", config={"max_steps": 1})
    learner.learn(Task.from_lists("task 0", "classification", rows * 2, rows, rows))
    with learner.store.writing():
        for first in range(1, count, AT_ONCE):
            learner.store.add_all(list(_records(learner, range(first, min(count, first + AT_ONCE)))))
    return path


def _records(learner: Any, numbers: range) -> Iterator[Any]:
    """Records as `learn` would leave them, with random gates and heads."""
    from dataclasses import replace

    import torch

    from tss.learning import probes
    from tss.learning.resident import Ready

    first = learner.store.read("task 0")
    asked = {name: tensor[:1] for name, tensor in first.probes.items() if name.startswith("input.")}
    for number in numbers:
        dice = torch.Generator().manual_seed(number)
        gates = torch.rand(first.gates.numel(), generator=dice) < 0.5
        tensors = {key: torch.randn(old.shape, generator=dice) for key, old in first.tensors.items()}
        record = replace(first, name=f"task {number}", gates=gates, tensors=tensors)
        ready = Ready.of(record, learner.backbone, learner.method)
        outputs = probes.answer(ready.lesson, asked, ready.added)
        meta = {**first.meta, "probe_hash": probes.digest(outputs)}
        yield replace(record, meta=meta, probes={**asked, **outputs})


def timed(work: Callable[[], Any], times: int = 1) -> float:
    """Milliseconds, the median of so many calls."""
    took = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        took.append(time.perf_counter() - start)
    return 1000 * statistics.median(took)


def memory() -> float:
    """Resident megabytes of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def measure(path: Path, count: int) -> dict[str, float]:
    """What a user of the store waits for, in milliseconds unless said otherwise."""
    from tss import Learner
    from tss.learning import resident

    found = {"open": timed(lambda: Learner.open(path, device="cpu"), 5)}
    found["list of tasks"] = timed(lambda: Learner.open(path, device="cpu").tasks(), 5)
    learner = Learner.open(path, device="cpu")
    learner.predict("task 0", ["warm up"])  # loads the backbone
    time.sleep(2.1)  # from then on a look at the index's times is enough to know that it is unchanged
    names = [f"task {number * (count // FEW) % count}" for number in range(1, FEW)]
    unused = iter([f"task {count - 1 - number}" for number in range(min(USES, count - 1))] * (USES // FEW + 1))

    def first_use() -> None:
        learner.resident.clear()
        learner.ready(next(unused))

    found["first use of a task"] = timed(first_use, USES)
    for name in names:
        learner.predict(name, ["warm up"])
    turn = iter(names * USES)
    found["switch to a resident task"] = timed(lambda: learner.ready(next(turn)), USES)
    turn = iter(names * USES)
    found["answer of the next task"] = timed(lambda: learner.predict(next(turn), ["a fine read"]), USES)
    turn = iter(names * USES)
    found["verify a task"] = timed(lambda: _verified(learner, next(turn)), USES)
    found["check all files"] = timed(learner.store.damage)
    extra = list(_records(learner, range(count, count + 3)))
    found["add a task"] = timed(lambda: _add(learner, extra.pop()), 3)
    found["index (MB)"] = (path / "index.json").stat().st_size / 1e6
    found["store (MB)"] = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / 1e6
    learner.resident, resident.FULL_BYTES["cpu"] = resident.Resident(READY_BYTES), FULL_BYTES
    for number in range(count):
        learner.predict(f"task {number}", ["a fine read"])
        if number + 1 == min(count, 1000):
            found["memory after the first 1,000 uses (MB)"] = memory()
    found["memory after using every task (MB)"] = memory()
    return found


def _verified(learner: Any, name: str) -> None:
    status = learner.verify([name])[0].status
    assert status == "equal", f"{name} is {status}"


def _add(learner: Any, record: Any) -> None:
    with learner.store.writing():
        learner.store.add(record)


def table(result: dict[str, Any]) -> str:
    few, many = result["few"], result["many"]
    head = f"""# A store with {result["tasks"]:,} tasks

Written by `{result["command"]}` on {result["machine"]}: bart-nano on one
CPU thread, random gates, not learnt. Medians, in milliseconds unless said otherwise. Writing all tasks took
{result["seconds to write"]:.0f} s. The memory rows have an LRU of {result["lru (MB)"]:.0f} MB.
What grows with the number of tasks is what reads or writes the whole index, or every file.

| what | {FEW} tasks | {result["tasks"]:,} tasks | ratio |
| --- | --- | --- | --- |
"""
    rows = [f"| {key} | {_short(few[key])} | {_short(many[key])} | {_short(many[key] / few[key])} |\n" for key in few]
    return head + "".join(rows)


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=Path("results/scale.json"))
    parser.add_argument("--folder", type=Path, help="make the stores here and leave them")
    args = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    folder = args.folder or Path(tempfile.mkdtemp(prefix="many-tasks-"))
    few = measure(made_store(folder / "few", FEW), FEW)
    start = time.monotonic()
    many = made_store(folder / "many", args.tasks)
    seconds = time.monotonic() - start
    result = {
        "tasks": args.tasks,
        "few": few,
        "many": measure(many, args.tasks),
        "seconds to write": seconds,
        "lru (MB)": (READY_BYTES + FULL_BYTES) / 1e6,
        "command": f"python benchmarks/many_tasks.py --tasks {args.tasks}",
        "machine": f"{platform.system()} {platform.machine()}, torch {torch.__version__}",
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    args.out.with_suffix(".md").write_text(table(result))
    if args.folder is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
