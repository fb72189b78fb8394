"""results/performance.md from the lines that the benchmarks left.

    python benchmarks/performance_report.py

Reads results/performance.jsonl and every *.json and *.jsonl of results/performance/ (lines brought from a GPU, and the
files of many_tasks_in_a_batch.py --out). Of runs with the same benchmark, shape and machine the last one counts; a
later run of a part ("… only") takes the place of that part.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ratio import LINES

TITLES = {
    "bytes_per_task": "P1: bytes of a task on disk",
    "many_tasks_in_a_batch": "P2 and P7: many tasks in a batch, hundreds at hand",
    "training_step": "P3 and P4: the training step",
    "precision": "The training step on a CPU, in bfloat16",
    "importance": "P5: exact importance of each example",
    "padding": "P6: real tokens among computed ones",
    "task_matrix": "P8: the full task matrix",
    "growth": "Growth: 200 tasks",
    "start_up": "Start-up",
    "beams": "Texts by beam search",
}
Line = dict[str, Any]


def lines_of(main: Path) -> list[Line]:
    """The last line of each benchmark, shape and machine, in the order of the goals."""
    folder = main.with_suffix("")
    files = [main, *sorted([*folder.glob("*.jsonl"), *folder.glob("*.json")])]
    found: dict[tuple[str, str, str], Line] = {}
    for file in (file for file in files if file.exists()):
        text = file.read_text(encoding="utf-8")
        for part in [one for one in text.splitlines() if one.strip()] if file.suffix == ".jsonl" else [text]:
            line = json.loads(part)
            line.setdefault("benchmark", "many_tasks_in_a_batch")
            line.setdefault("command", f"python benchmarks/{line['benchmark']}.py --shape {line['shape']}")
            found[line["benchmark"], line["shape"], line["where"]] = line
            _replace(found, line)
    order = list(TITLES)

    def place(line: Line) -> tuple[int, bool, str]:
        return order.index(line["benchmark"]), "CPU" not in line["where"], line["shape"]

    return sorted(found.values(), key=place)


def _replace(found: dict[tuple[str, str, str], Line], part: Line) -> None:
    """What a run of a part measured is no longer shown from the whole run before it."""
    whole, _, last = part["shape"].rpartition(", ")
    before = found.get((part["benchmark"], whole, part["where"]))
    if last.endswith(" only") and before:
        again = {one["what"] for one in part["figures"]}
        before["figures"] = [one for one in before["figures"] if one["what"] not in again]


def section(line: Line) -> str:
    used = ", ".join(f"{name} {value}" for name, value in line["versions"].items())
    head = f"`{line['command']}`: {line['shape']}; {line['where']}; {used}\n\n"
    head += "| what | ours | peer | | ratio | goal | |\n| --- | ---: | ---: | --- | ---: | --- | --- |\n"
    return head + "".join(_row(one) for one in line["figures"])


def _row(one: Line) -> str:
    verdict = {True: "reached", False: "**missed**", None: ""}[one["reached"]]
    what = one["what"] + (f" ({one['note']})" if one.get("note") else "")
    goal = "" if one["reached"] is None else one["goal"]
    ours, peer, ratio = (_short(one[key]) for key in ("ours", "peer", "ratio"))
    return f"| {what} | {ours} | {peer} | {one['unit']} | {ratio} | {goal} | {verdict} |\n"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def written(lines: list[Line], notes: str, picture: bool) -> str:
    goals = [one["reached"] for line in lines for one in line["figures"] if one["reached"] is not None]
    text = (
        "# Performance\n\nWritten by `python benchmarks/performance_report.py` from what `make bench` and "
        "`make bench-gpu` leave. Each\nfigure is a ratio of two numbers of one run, taken in turns, medians; times "
        "on a CPU are processor time on one\nthread. `<=`: ours / peer; `>=`: how many times ours is better. "
        f"{sum(goals)} of {len(goals)} figures meet\ntheir number. "
        "The goals are for BART-large on a GPU with every peer eager and compiled: a figure of a CPU, of a smaller\n"
        "model or with the peer eager only does not settle one, and some settings were changed after a first run had "
        "missed (see\nthe notes at the end).\n"
    )
    last = ""
    for line in lines:
        if line["benchmark"] != last:
            text += f"\n## {TITLES[line['benchmark']]}\n"
            if line["benchmark"] == "growth" and picture:
                text += "\n![time, memory and disk of learning each of 200 tasks](growth.svg)\n"
        last = line["benchmark"]
        text += f"\n{section(line)}"
    return text + (f"\n{notes}" if notes else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=Path, default=LINES)
    args = parser.parse_args()
    notes = args.lines.with_name("performance-notes.md")
    text = notes.read_text(encoding="utf-8") if notes.exists() else ""
    picture = args.lines.with_name("growth.svg").exists()
    args.lines.with_suffix(".md").write_text(written(lines_of(args.lines), text, picture), encoding="utf-8")


if __name__ == "__main__":
    main()
