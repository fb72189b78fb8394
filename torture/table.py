"""results/reliability.md, from what the goals told."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

TITLES = {
    "R1": "No regression, proved",
    "R2": "kill -9 anywhere",
    "R3": "Disk trouble",
    "R4": "Corrupt and hostile files",
    "R5": "Bad input",
    "R6": "Names never become paths",
    "R7": "Several learners, one store",
    "R8": "Resume and repeat",
    "R9": "Overload",
    "R10": "Years of use",
}
HEAD = """# Reliability

Written by `python -m torture` (see `make torture`, `make torture-full`); the same in numbers: `reliability.json`.
A row is the last run of its goal.

| goal | what was done | numbers | verdict | seconds | command |
| --- | --- | --- | --- | --- | --- |
"""


def write_table(kept: dict[str, dict[str, Any]], path: Path) -> None:
    lines = []
    for goal, title in TITLES.items():
        if goal not in kept:
            continue
        row = kept[goal]
        numbers = "; ".join(f"{key}: {value}" for key, value in row["numbers"].items())
        seconds, command = f"{row['seconds']:.0f}", f"`{row['command']}`"
        cells = [f"{goal} {title}", row["what"], numbers, row["verdict"], seconds, command]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    problems = [
        f"- {goal}: {problem}\n" for goal, row in kept.items() for problem in row["problems"][:10] if row["problems"]
    ]
    end = f"\nPython {platform.python_version()}, {platform.system()} {platform.machine()}.\n"
    told = "\n## What went wrong\n\n" + "".join(problems) if problems else ""
    path.write_text(HEAD + "".join(lines) + end + told, encoding="utf-8")
