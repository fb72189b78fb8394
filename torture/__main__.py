"""`python -m torture [GOAL ...]`: run goals, write results/reliability.json and .md. See --help."""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import shlex
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
ROOT = Path(__file__).parents[1]
PATHS = [str(ROOT / part) for part in (".", "tests", "tests/store", "benchmarks")]
sys.path[:0] = PATHS
os.environ["PYTHONPATH"] = os.pathsep.join([*PATHS, os.environ.get("PYTHONPATH", "")])

from torture.form import Asked, as_document  # noqa: E402
from torture.table import write_table  # noqa: E402

GOALS = {
    "R1": "no_regression",
    "R2": "kills",
    "R3": "disks",
    "R4": "hostile",
    "R5": "bad_inputs",
    "R6": "names",
    "R7": "writers",
    "R8": "repeats",
    "R9": "overload",
    "R10": "years",
}
# how much, and at most how many seconds, in the three forms
SHORT: dict[str, dict[str, Any]] = {
    "R1": {"tasks": 6},
    "R2": {"kills": 4},
    "R3": {"calls": 3},
    "R4": {"files": 200},
    "R5": {},
    "R6": {"names": 200},
    "R7": {"seconds": 2.0, "writers": 2, "readers": 1},
}
USUAL: dict[str, dict[str, Any]] = {
    "R1": {"tasks": 40},
    "R2": {"kills": 100},
    "R3": {},
    "R4": {"files": 5_000},
    "R5": {},
    "R6": {"names": 5_000},
    "R7": {"seconds": 60.0, "writers": 4, "readers": 4},
    "R9": {"seconds": 60.0},
}
FULL: dict[str, dict[str, Any]] = {
    "R1": {"tasks": 40},
    "R2": {"kills": 1_000},
    "R3": {},
    "R4": {"files": 100_000},
    "R5": {},
    "R6": {"names": 5_000},
    "R7": {"seconds": 600.0, "writers": 8, "readers": 16},
    "R8": {},
    "R9": {"seconds": 600.0},
    "R10": {},
}
FORMS = {"short": SHORT, "usual": USUAL, "full": FULL}
AMOUNTS = {"tasks": int, "kills": int, "calls": int, "files": int, "names": int, "seconds": float, "writers": int}
AMOUNTS |= {"readers": int}


def main(arguments: list[str] | None = None) -> int:
    asked = _arguments(arguments)
    form = FORMS[asked.form]
    goals = asked.goals or list(form)
    until = time.monotonic() + asked.budget
    results = asked.results / "reliability.json"
    missed = False
    for place, goal in enumerate(goals):
        if importlib.util.find_spec(f"torture.{GOALS[goal]}") is None:
            print(f"{goal}: not run, there is no torture/{GOALS[goal]}.py", flush=True)
            continue
        key = {"form": asked.form, "code": _code(), "seed": asked.seed, **_given(asked)}
        old = _kept(results).get(f"{goal} {asked.form}")
        if old and old["key"] == key and old["verdict"] == "reached" and not asked.again:
            print(f"{goal}: reached already with this code; --again repeats it", flush=True)
            continue
        share = (until - time.monotonic()) / (len(goals) - place) * (2 if place + 1 < len(goals) else 1)
        found = _run(goal, {**form.get(goal, {}), **_given(asked)}, min(until, time.monotonic() + share), asked.seed)
        command = _command(arguments if arguments is not None else sys.argv[1:])
        row = {**found, "key": key, "command": command}
        kept = {**_kept(results), f"{goal} {asked.form}": row}  # others may have written meanwhile
        missed |= found["verdict"] == "MISSED"
        print(f"{goal}: {found['verdict']} in {found['seconds']:.0f} s {json.dumps(found['numbers'])}", flush=True)
        for problem in found["problems"]:
            print(f"  {problem}", flush=True)
        asked.results.mkdir(parents=True, exist_ok=True)
        results.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        write_table(kept, asked.results / "reliability.md")
    return int(missed)


def _arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m torture", description="Make everything fail, and look what is left.")
    parser.add_argument("goals", nargs="*", metavar="GOAL", help=f"{', '.join(GOALS)}; by default all of the form")
    parser.add_argument("--form", choices=FORMS, default="usual", help="how much to do: seconds, minutes, hours")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds for all goals together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="repeat what was reached with this very code")
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    for name, kind in AMOUNTS.items():
        parser.add_argument(f"--{name}", type=kind)
    asked = parser.parse_args(given)
    unknown = [goal for goal in asked.goals if goal not in GOALS]
    if unknown:
        parser.error(f"there is no goal {unknown[0]}; there are {', '.join(GOALS)}")
    return asked


def _kept(results: Path) -> dict[str, Any]:
    return json.loads(results.read_text()) if results.exists() else {}


def _command(arguments: list[str]) -> str:
    """What was asked for; where the results went is nobody's business."""
    place = arguments.index("--results") if "--results" in arguments else len(arguments)
    return shlex.join(["python", "-m", "torture", *arguments[:place], *arguments[place + 2 :]])


def _given(asked: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(asked, name) for name in AMOUNTS if getattr(asked, name) is not None}


def _run(goal: str, amounts: dict[str, Any], until: float, seed: int) -> dict[str, Any]:
    module = importlib.import_module(f"torture.{GOALS[goal]}")
    folder = Path(tempfile.mkdtemp(prefix=f"torture-{goal}-"))
    start = time.monotonic()
    try:
        told = module.run(Asked(folder=folder, until=until, seed=seed, **amounts))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {**as_document(told), "seconds": round(time.monotonic() - start, 1)}


def _code() -> str:
    """Changes with anything that could change the outcome."""
    total = hashlib.sha256()
    for folder in ("tss", "torture", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            total.update(path.read_bytes())
    return total.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
