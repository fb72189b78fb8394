"""What learning a task cost, in time and on the disk, beside what the paper prints."""

from __future__ import annotations

from collections.abc import Sequence

from tss.bench.collect import Run, Runs, label_of
from tss.bench.formats import MISSING, Table
from tss.bench.plan import runs_as
from tss.bench.published import COSTS, STORAGE, SYSTEMS

COLUMNS = (
    "system", "tasks", "backbone M", "trained M", "M (paper)", "minutes a task", "minutes (paper)",
    "MB a task", "gates or weights MB", "head MB",
)  # fmt: skip


def costs(runs: Runs) -> Table:
    """Means over all tasks that a method learnt; parameters trained beside the head, in millions."""
    labels = {method: label_of(method, run.header) for method in runs.grid["methods"] for run in _of(runs, method)[:1]}
    rows = []
    for method in dict.fromkeys([*SYSTEMS, *labels]):
        system = SYSTEMS.get(method, "")
        printed = COSTS.get(system, (None, None))
        found = _of(runs, method) if method in labels else []
        if found or system in COSTS:
            own = _ours(found)
            rows.append(
                (system or labels[method], *own[:3], _number(printed[0]), own[3], _number(printed[1]), *own[4:])
            )
    sizes = ", ".join(f"{what} {size:g} MB" for what, size in STORAGE.items())
    notes = (
        "Minutes are of training, on whatever machine ran the cells (their logs say which), and of what a method does "
        "before and after it (probes, importance) in logs that tell it; tasks that are learnt together share theirs. "
        "Bytes are those of a task's file, of what its method keeps for it, and of its head.",
        f"The paper reckons for one task: {sizes}; heads are not counted there.",
    )
    return Table("Cost of a task", COLUMNS, tuple(rows), notes)


def _of(runs: Runs, method: str) -> list[Run]:
    return [run for run in runs.runs if run.header["method"] == runs_as(method) and run.lines]


def _ours(runs: Sequence[Run]) -> list[str]:
    lines = [line for run in runs for line in run.lines]
    if not lines:
        return [MISSING] * 7
    millions = [_mean([run.header.get(key) for run in runs], 1e6) for key in ("parameters", "trained")]
    minutes = _mean([seconds for run in runs for seconds in run.seconds], 60.0)
    sizes = [_mean([line[key] for line in lines], 1e6) for key in ("bytes", "gate_bytes", "head_bytes")]
    return [str(len(lines)), *map(_number, [*millions, minutes, *sizes])]


def _mean(values: Sequence[float | None], unit: float) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) / unit if known else None


def _number(value: float | None) -> str:
    return MISSING if value is None else f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"
