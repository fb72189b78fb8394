"""kill -9 at many points of learning and saving, of a real process, in a store that holds a finished task.

Each time the store opens, what was finished is intact, and the run that is taken up again ends bit for bit as the
unbroken one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copytree

import pytest
import torch
from shared_checks import assert_same_bits, open_learner, state
from tiny import tiny_path
from toy_tasks import toy

from tss.errors import StoreError

HERE = Path(__file__).parent
BEFORE = ["toy tagging"]  # learnt before the kill
AFTER = [*BEFORE, "toy pair"]  # what the killed process was to add

# Eight steps, a checkpoint after steps 3, 6 and 8; the point, and whether the new task exists afterwards.
POINTS = [
    ("step 1", False),
    ("half checkpoint 1", False),
    ("whole checkpoint 1", False),
    ("step 4", False),
    ("half checkpoint 2", False),
    ("placed checkpoint 3", False),
    ("remembering", False),
    ("half task 1", False),
    ("placed task 1", False),
    ("half shared 1", False),
    ("placed shared 1", False),
    ("placed copy 1", False),
    ("half index 1", False),
    ("whole index 1", False),
    ("placed index 1", True),
    ("remove shared 1", True),
    ("remove checkpoint 1", True),
]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """As in the processes that are killed: bits are compared."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def killed() -> Iterator[Callable[..., int]]:
    """`killed(point, store)`: the signal that ended a process that learnt in the store."""
    paths = [str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    worker = subprocess.Popen(
        [sys.executable, str(HERE / "kill_worker.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
    )
    assert worker.stdin and worker.stdout
    asked, told = worker.stdin, worker.stdout

    def kill(point: str, store: Path, method: str = "tss") -> int:
        asked.write("\t".join([point, method, str(tiny_path("bart")), str(store)]) + "\n")
        asked.flush()
        return int(told.readline())

    yield kill
    asked.close()
    worker.wait(timeout=60)
    told.close()


class Stores:
    """A store with one finished task, copied for each test, and the state of the unbroken run in it."""

    def __init__(self, folder: Path, method: str):
        self.folder, self.method = folder, method
        open_learner(folder / "start", tiny_path("bart"), method).learn(toy("tagging"))
        unbroken = open_learner(self.copy(folder / "unbroken"), tiny_path("bart"), method)
        self.learned = unbroken.learn(toy("pair"))
        self.end = {name: state(unbroken, name) for name in AFTER}

    def copy(self, to: Path) -> Path:
        return Path(copytree(self.folder / "start", to))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(tmp_path_factory.mktemp("kill"), "tss")


def check_taken_up(store: Path, stores: Stores, exists: bool) -> None:
    """Nothing is lost, the learning goes on, and no file is left over."""
    learner = open_learner(store, tiny_path("bart"), stores.method)
    assert [info.name for info in learner.tasks()] == (AFTER if exists else BEFORE)
    assert {check.name: check.status for check in learner.verify()}[learner.tasks()[-1].name] == "equal"
    if exists:
        with pytest.raises(StoreError, match="already"):
            learner.learn(toy("pair"))
    else:
        learned = learner.learn(toy("pair"))
        assert (learned.scores, learned.curve) == (stores.learned.scores, stores.learned.curve)
    for name in AFTER:
        assert_same_bits(state(learner, name), stores.end[name])
    with learner.store.writing():  # sweeps what killed writers left
        found = {str(path.relative_to(store)) for path in store.rglob("*") if path.is_file()}
    assert found == {*learner.store.index().files(), "index.json", "index.backup.json", "lock"}


@pytest.mark.parametrize(("point", "exists"), POINTS)
def test_kill(tmp_path: Path, killed: Callable[..., int], stores: Stores, point: str, exists: bool):
    store = stores.copy(tmp_path / "store")
    assert killed(point, store) == signal.SIGKILL
    check_taken_up(store, stores, exists)


def test_killed_again_and_again(tmp_path: Path, killed: Callable[..., int], stores: Stores):
    """Each attempt goes on from the checkpoint of the one before: the fourth step is made once, the seventh twice."""
    store = stores.copy(tmp_path / "store")
    for point in ("step 5", "half checkpoint 1", "step 7", "half task 1", "half index 1"):
        assert killed(point, store) == signal.SIGKILL
    check_taken_up(store, stores, exists=False)


@pytest.mark.parametrize(("point", "exists"), [("step 5", False), ("whole index 1", False), ("placed index 1", True)])
def test_kill_while_shared_weights_are_trained(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, killed: Callable[..., int], point: str, exists: bool
):
    """NCL trains what earlier tasks answer with: these answers change when the new task is kept, not before."""
    stores = Stores(tmp_path_factory.mktemp("ncl"), "ncl-adapter")
    store = stores.copy(tmp_path / "store")
    assert killed(point, store, "ncl-adapter") == signal.SIGKILL
    check_taken_up(store, stores, exists)


def test_without_a_kill_the_process_ends_well(tmp_path: Path, killed: Callable[..., int], stores: Stores):
    store = stores.copy(tmp_path / "store")
    assert killed("never", store) == 0
    check_taken_up(store, stores, exists=True)
