"""What a second reading gave: tests of tasks answered alone, and together with another sub-network's chances.

    python benchmarks/second.py results/second/cpu.jsonl

A line of the file is a task: its cell, who read beside it, and the answers to its tests, alone and together; tasks
without a second reading have the same in both. Interval: tests drawn anew 1,000 times, the same ones for both columns
and all orders. The option that made them was not kept (results/ideas.md).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tss.bench.examples import resampled

COLUMNS = ("alone", "together")
SMALL = 100  # test examples; the benchmark's tables take sets of fewer as one, too
Line = dict[str, Any]


def table(lines: Sequence[Line]) -> list[str]:
    """A line for each cell, one for all of them, and one for small tests."""
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(line["cell"], []).append(line)
    groups |= {"all": list(lines), "small tests": [line for line in lines if len(line["alone"]["gold"]) < SMALL]}
    return [_row(name, group) for name, group in groups.items() if group]


def _row(name: str, group: Sequence[Line]) -> str:
    alone, together = (np.mean([resampled(one["task"], one[column]) for one in group], axis=0) for column in COLUMNS)
    low, high = np.percentile((together - alone)[1:], [2.5, 97.5])
    right = [f"{_right(group, column):.1f} % right {column}" for column in COLUMNS]
    told = f"{name}: {len(group)} tasks, {sum(bool(one['beside']) for one in group)} read twice"
    means = f"macro-F1 {alone[0]:.2f} alone, {together[0]:.2f} together"
    return f"{told}; {means} ({together[0] - alone[0]:+.2f}, {low:+.2f} to {high:+.2f}); {', '.join(right)}"


def _right(group: Sequence[Line], column: str) -> float:
    """Per cent of all answers taken together."""
    parts = [(one[column]["predicted"], one[column]["gold"]) for one in group]
    return 100 * float(np.mean([a == b for predicted, gold in parts for a, b in zip(predicted, gold, strict=True)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", type=Path)
    lines = parser.parse_args().lines.read_text(encoding="utf-8").splitlines()
    print("\n".join(table([json.loads(line) for line in lines])))


if __name__ == "__main__":
    main()
