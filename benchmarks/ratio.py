"""What every benchmark of this folder shares: taking turns, medians, figures with goals, one line of JSON a run.

A line: {"benchmark", "command", "shape", "where", "versions", "figures": [{"what", "ours", "peer", "unit", "ratio",
"goal", "reached", "note"}]}. `performance_report.py` makes results/performance.md of the lines.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

LINES = Path("results/performance.jsonl")
ROUNDS = 7


@dataclass(frozen=True)
class Figure:
    what: str
    ours: float
    peer: float
    unit: str
    ratio: float
    goal: str
    reached: bool | None  # None: printed beside the goals, not one of them
    note: str = ""


def smaller(what: str, ours: float, peer: float, unit: str, most: float | None = None, note: str = "") -> Figure:
    """ours / peer, at most `most`."""
    ratio = ours / peer
    goal = "printed beside" if most is None else f"<= {most:.4g}"
    return Figure(what, ours, peer, unit, ratio, goal, None if most is None else ratio <= most, note)


def faster(what: str, ours: float, peer: float, unit: str, least: float | None = None, note: str = "") -> Figure:
    """How many times faster ours is: peer / ours, at least `least`."""
    ratio = peer / ours
    goal = "printed beside" if least is None else f">= {least:.4g}"
    return Figure(what, ours, peer, unit, ratio, goal, None if least is None else ratio >= least, note)


def alternate(
    calls: dict[str, Callable[[], Any]], device: str, rounds: int = ROUNDS, warm: int = 2
) -> dict[str, float]:
    """Median milliseconds of each, taking turns. On a CPU: processor time, as others may use the same cores.

    Python's collector waits until a call is timed: calls that take turns have it come at the same place of each turn,
    so that one of them would pay for all.
    """
    clock = time.perf_counter if device == "cuda" else time.process_time
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + warm):
        for name, call in calls.items():
            with collected():
                synchronise(device)
                begin = clock()
                call()
                synchronise(device)
                took = clock() - begin
            if turn >= warm:
                times[name].append(1e3 * took)
    return {name: statistics.median(found) for name, found in times.items()}


@contextmanager
def collected() -> Iterator[None]:
    """No garbage at the beginning, and none collected until the end."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def synchronise(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def arguments(text: str | None, device: bool = True) -> argparse.ArgumentParser:
    """The options that the benchmarks have in common."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=LINES, help=f"add the line of JSON to this file ({LINES})")
    if device:
        parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
        parser.add_argument("--rounds", type=int, default=ROUNDS)
    return parser


def one_thread() -> None:
    """Ratios on a shared CPU hold for one thread only."""
    import torch

    torch.set_num_threads(1)


def where(device: str) -> str:
    import torch

    return torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} thread(s)"


def versions(*packages: str) -> dict[str, str]:
    found = {}
    for package in ("torch", "transformers", *packages):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "absent"
    return found


def finish(args: argparse.Namespace, shape: str, place: str, used: dict[str, str], figures: list[Figure]) -> int:
    """Print the figures, add the line, and say by the exit status whether all goals were reached."""
    name = Path(sys.argv[0]).stem
    print(f"{name}: {shape} on {place}; {', '.join(f'{k} {v}' for k, v in used.items())}")
    for one in figures:
        verdict = {True: "reached", False: "MISSED", None: ""}[one.reached]
        print(
            f"{one.what:58s} ours {one.ours:11.3f} peer {one.peer:11.3f} {one.unit:7s} ratio {one.ratio:8.4f} "
            f"{one.goal} {verdict} {one.note}".rstrip()
        )
    given = [part for part in sys.argv[1:] if not part.startswith("/")]  # folders of this machine say nothing
    line = {"benchmark": name, "command": " ".join(["python", f"benchmarks/{name}.py", *_paths_named(given)])}
    line |= {"shape": shape, "where": place, "versions": used, "figures": [asdict(one) for one in figures]}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    return int(any(one.reached is False for one in figures))


def _paths_named(given: list[str]) -> list[str]:
    """Options whose folder was left out get a word in its place; --out is nobody's business."""
    told: list[str] = []
    taking = {"--data": "DATA", "--store": "STORE", "--peer-python": "PYTHON", "--out": ""}
    for i, part in enumerate(given):
        if part == "--out" or (i and given[i - 1] == "--out"):
            continue
        told.append(part)
        following = given[i + 1] if i + 1 < len(given) else "--"
        if part in taking and following.startswith("--"):
            told.append(taking[part])
    return told
