"""What a user waits for at the start: import, help, the first answer, and opening a store with 1 and 1,000 tasks.

    python benchmarks/start_up.py

Each command runs in a new process; counted is its processor time, as others may use the same cores. Beside the first
answer: the same process that only imports torch and transformers' model class and loads the backbone.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from many_tasks import made_store, timed
from ratio import Figure, arguments, finish, one_thread, smaller, versions, where

from tss import Learner
from tss.backbones.load import resolve

IMPORT_MOST = 0.3  # seconds, a rule of the project


def seconds(command: Sequence[str]) -> float:
    """Processor seconds of a new process. Raises CalledProcessError if it fails."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, **quiet)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return used.ru_utime + used.ru_stime


def in_turns(commands: dict[str, list[str]], rounds: int) -> dict[str, float]:
    found: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds + 1):  # the first fills the disk's cache
        for name, command in commands.items():
            found[name].append(seconds(command))
    return {name: statistics.median(times[1:]) for name, times in found.items()}


def compare(folder: Path, rounds: int, many: int) -> list[Figure]:
    python, tss = sys.executable, [sys.executable, "-m", "tss"]
    few = made_store(folder / "one", 1)
    where_it_is = resolve("bart-nano")[0]
    load = f"from transformers import AutoModelForSeq2SeqLM as M; M.from_pretrained({where_it_is!r})"
    times = in_turns(
        {
            "python": [python, "-c", "pass"],
            "import": [python, "-c", "import tss"],
            "help": [*tss, "--help"],
            "predict": [*tss, "predict", str(few), "task 0", "a fine read"],
            "model": [python, "-c", load],
        },
        rounds,
    )
    grown = made_store(folder / "many", many)
    opened = [timed(lambda path=path: Learner.open(path, device="cpu"), 9) for path in (grown, few)]
    entries = len(Learner.open(grown, device="cpu").tasks())
    limit = IMPORT_MOST
    return [
        smaller("import tss (limit 0.3 s in place of a peer)", times["import"], limit, "s", 1.0),
        smaller("tss --help against python -c pass", times["help"], times["python"], "s"),
        smaller("tss predict to the first answer against loading the model", times["predict"], times["model"], "s",
                None, "peer: transformers imported and bart-nano loaded, nothing answered"),
        smaller(f"open a store of {entries:,} tasks against one of 1", opened[0], opened[1], "ms"),
        smaller(f"open a store of {entries:,} tasks (limit 100 ms in place of a peer)", opened[0], 100.0, "ms", 1.0),
    ]  # fmt: skip


def main() -> int:
    parser = arguments(__doc__, device=False)
    parser.add_argument("--rounds", type=int, default=3, help="new processes of each kind after the first")
    parser.add_argument("--tasks", type=int, default=1000)
    args = parser.parse_args()
    one_thread()
    with tempfile.TemporaryDirectory() as folder:
        figures = compare(Path(folder), args.rounds, args.tasks)
    return finish(args, "bart-nano", where("cpu"), versions("typer"), figures)


if __name__ == "__main__":
    sys.exit(main())
