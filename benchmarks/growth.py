"""What learning task t costs for t = 1 … 200: time, memory and disk must stay flat.

    python benchmarks/growth.py [--picture results/growth.svg]

Very short tasks of all kinds on bart-nano. The last tasks are learnt twice, in turns: in the grown store, and in a copy
of what the store was after its first six tasks; so both see the same state of the machine. Memory and disk compare the
last tasks with early ones.
"""

from __future__ import annotations

import resource
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from method_growth import toy
from ratio import Figure, arguments, finish, one_thread, smaller, versions, where

from tss import Learner, Task

WINDOW, YOUNG = 30, 6
GOAL = 1.1


def megabytes_here() -> float:
    """Resident memory of this process now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def bytes_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def seconds_of(learner: Learner, task: Task) -> float:
    begin = time.process_time()
    learner.learn(task)
    return time.process_time() - begin


def measure(backbone: str, count: int, method: str, window: int) -> list[dict[str, float]]:
    """A row a task: processor seconds (for the last ones also in the small store), megabytes, bytes added."""
    options = {"max_steps": 2, "batch_size": 4, "eval_steps": 2, "checkpoint_steps": 10**6}
    rows: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        store, young = Path(folder, "store"), Path(folder, "young")
        learner = Learner.open(store, backbone, method, device="cpu", config=options)
        assert learner.method.label  # loads the backbone, which is no task's cost
        size = 0
        for number in range(count):
            task = toy(number)
            row = {"seconds": seconds_of(learner, task)}
            if number + 1 == YOUNG:
                shutil.copytree(store, young)
            if number >= count - window:
                copy = shutil.copytree(young, Path(folder, f"copy {number}"))
                small = Learner.open(copy, backbone, method, device="cpu", config=options)
                small.__dict__["backbone"] = learner.backbone  # loaded once
                small.learn(toy(count))  # its first task warms up
                row["small"] = seconds_of(small, task)
                shutil.rmtree(copy)
            grown = bytes_of(store)
            rows.append({**row, "megabytes": megabytes_here(), "bytes": float(grown - size)})
            size = grown
    return rows


def figures_of(rows: list[dict[str, float]], window: int) -> list[Figure]:
    early, late = rows[YOUNG : YOUNG + window], rows[-window:]

    def over(some: list[dict[str, float]], key: str) -> float:
        return statistics.fmean(row[key] for row in some)

    note = f"last {window} tasks of {len(rows)} against tasks {YOUNG + 1} to {YOUNG + window}"
    seconds = [statistics.median(row[key] for row in late) for key in ("seconds", "small")]
    told = f"the same {window} tasks in the store of {len(rows)} and in one of {YOUNG + 1}, in turns"
    return [
        smaller("seconds of learning a task", seconds[0], seconds[1], "s", GOAL, told),
        smaller("memory of the process", over(late, "megabytes"), over(early, "megabytes"), "MB", GOAL, note),
        smaller("bytes a task adds to the store", over(late, "bytes"), over(early, "bytes"), "bytes", 1.15, note),
    ]


def picture(rows: list[dict[str, float]]) -> str:
    """Time, memory and disk of each task relative to their medians, as one SVG."""
    width, height, edge = 760, 300, 40
    drawn = []
    for i, (key, colour) in enumerate({"seconds": "#1f6feb", "megabytes": "#c2410c", "bytes": "#15803d"}.items()):
        middle = statistics.median(row[key] for row in rows)
        smooth = [statistics.median(r[key] for r in rows[max(0, t - 4) : t + 5]) / middle for t in range(len(rows))]
        points = " ".join(
            f"{edge + t * (width - 2 * edge) / max(len(rows) - 1, 1):.1f},{height - edge - min(v, 2) * 110:.1f}"
            for t, v in enumerate(smooth)
        )
        drawn.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>')
        drawn.append(f'<text x="{edge + i * 150}" y="24" fill="{colour}">{key} a task</text>')
    marks = "".join(
        f'<text x="4" y="{height - edge - v * 110 + 4:.0f}" fill="#666">{v:g}</text>'
        f'<line x1="{edge}" x2="{width - edge}" y1="{height - edge - v * 110:.0f}" y2="{height - edge - v * 110:.0f}" '
        'stroke="#ccc"/>'
        for v in (0, 0.5, 1, 1.5, 2)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="13" role="img" aria-label="cost of learning each of {len(rows)} tasks, relative to the median">'
        f'<rect width="{width}" height="{height}" fill="#fff"/>{marks}{"".join(drawn)}'
        f'<text x="{width // 2 - 60}" y="{height - 8}" fill="#333">task 1 to {len(rows)}</text></svg>\n'
    )


def main() -> int:
    parser = arguments(__doc__, device=False)
    parser.add_argument("--backbone", default="bart-nano")
    parser.add_argument("--method", default="tss")
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--picture", type=Path)
    args = parser.parse_args()
    one_thread()
    window = min(WINDOW, 3 * (args.tasks // 9))
    rows = measure(args.backbone, args.tasks, args.method, window)
    if args.picture:
        args.picture.parent.mkdir(parents=True, exist_ok=True)
        args.picture.write_text(picture(rows), encoding="utf-8")
    shape = f"{Path(args.backbone).name}, {args.method}, {args.tasks} tasks"
    return finish(args, shape, where("cpu"), versions(), figures_of(rows, window))


if __name__ == "__main__":
    sys.exit(main())
