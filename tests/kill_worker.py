"""A process that learns a task and kills itself at a given point, as `kill -9` would: nothing is flushed or released.

Run as a program it imports everything once, then for each line `point, method, backbone, store` (with tabs between)
it forks a child that learns, and answers with the signal that ended the child (0: it lived to the end).

Points: `step N` (after the N-th step), `remembering`, and for the N-th write of a file of the store `half FILE N`,
`whole FILE N` (written, not yet in place), `placed FILE N`, and `remove FILE N`, where FILE is checkpoint, task,
shared, copy (of the index) or index.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from shared_checks import open_learner
from toy_tasks import toy

from tss.store import disk


class Killer:
    """Ends this process when the point is reached."""

    def __init__(self, point: str):
        self.point = point
        self.seen: Counter[str] = Counter()

    def reached(self, event: str, file: str | None = None) -> None:
        if file is not None:
            event = f"{event} {_sort_of(file)}"
            self.seen[event] += 1
            event = f"{event} {self.seen[event]}"
        if event == self.point:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, progress: Any) -> None:
        self.reached(f"step {progress.step}" if progress.phase == "learning" else progress.phase)

    def install(self) -> None:
        write_new, write_file, remove = disk._write_new, disk.write_file, disk.remove

        def writing(folder: int, name: str, blob: bytes) -> None:
            write_new(folder, name, blob[: len(blob) // 2])
            self.reached("half", name)
            write_new(folder, name, blob)
            self.reached("whole", name)

        def placing(root: Path, name: str, blob: bytes) -> None:
            write_file(root, name, blob)
            self.reached("placed", name)

        def removing(root: Path, name: str) -> None:
            self.reached("remove", name)
            remove(root, name)

        disk._write_new, disk.write_file, disk.remove = writing, placing, removing


def _sort_of(file: str) -> str:
    name = file.rpartition("/")[2].removeprefix(disk.TEMPORARY)
    if name.startswith("index"):
        return "index" if name == "index.json" else "copy"
    return "checkpoint" if name.endswith(".checkpoint") else "task" if "-" in name else "shared"


def learn(point: str, method: str, backbone: str, store: str) -> None:
    killer = Killer(point)
    killer.install()
    open_learner(Path(store), backbone, method).learn(toy("pair"), progress=killer.watch)


def warm_up() -> None:
    """Before any fork: import and initialise all that a child would. No gradient is computed in this process."""
    import sklearn.metrics  # noqa: F401
    import torch
    from tiny import tiny_loaded

    import tss.methods.tss  # noqa: F401
    from tss.backbones.backbone import Pass

    torch.set_num_threads(1)  # a pool of threads would not survive the fork
    ids = torch.ones(8, 8, dtype=torch.long)
    with torch.no_grad():
        tiny_loaded("bart").states(ids, ids, Pass())


def main() -> None:
    warm_up()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                learn(*line.rstrip("\n").split("\t"))
                status = 0
            finally:
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        print(os.WTERMSIG(ended) if os.WIFSIGNALED(ended) else -os.WEXITSTATUS(ended), flush=True)


if __name__ == "__main__":
    main()
