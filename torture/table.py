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
A row is the last run of a goal in a form: `usual` is `make torture`, `full` is `make torture-full`.

| goal | form | what was done | numbers | verdict | seconds | command |
| --- | --- | --- | --- | --- | --- | --- |
"""
FORMS = ("full", "usual", "short")


def write_table(kept: dict[str, dict[str, Any]], path: Path) -> None:
    lines, problems = [], []
    for name, row in ((f"{goal} {form}", kept.get(f"{goal} {form}")) for goal in TITLES for form in FORMS):
        if row is None:
            continue
        goal, form = name.split()
        numbers = "; ".join(f"{key}: {value}" for key, value in row["numbers"].items())
        seconds, command = f"{row['seconds']:.0f}", f"`{row['command']}`"
        cells = [f"{goal} {TITLES[goal]}", form, row["what"], numbers, row["verdict"], seconds, command]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
        problems += [f"- {name}: {problem}\n" for problem in row["problems"][:10]]
    end = f"\nPython {platform.python_version()}, {platform.system()} {platform.machine()}.\n"
    told = "\n## What went wrong\n\n" + "".join(problems) if problems else ""
    path.write_text(HEAD + "".join(lines) + end + told, encoding="utf-8")
