"""R7: several writers and readers on one store, writers killed at random: what was acknowledged is there, no torn read.

Writers add small tasks as fast as they get the lock in a first burst (is waiting worth it?), then 50 tasks each spread
over the time, now and then a second version that is rolled back and collected.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

from store_samples import assert_same, random_gates, record

from torture.form import Asked, Told
from tss.errors import StoreError
from tss.store import Store

BURST = 12  # tasks a writer
TASKS = 50  # a writer in all the time


def _sample(name: str):
    seed = int(name.rpartition("-")[2])
    return record(name, seed % 1000, random_gates(800, seed % 7) ^ random_gates(800, seed, 0.02))


def _add(store: Store, name: str, acknowledged: int, wait: float = 120.0) -> None:
    with store.writing(wait=wait):
        used = store.index().names()
        store.add(_sample(name), parent=used[-1] if used else None)
    os.write(acknowledged, name.encode() + b"\n")


def _writer(root: Path, acknowledged: Path, number: int, seed: int, pause: float) -> None:
    """Adds tasks for ever; each name is new, also after a kill, as it holds the count in the store."""
    store, dice = Store.open(root), random.Random(seed)
    out = os.open(acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while True:
        name = f"w{number}-{len(store.index().tasks) * 100 + number}"
        if name not in store.index().names():
            _add(store, name, out)
        if dice.random() < 0.1:
            with store.writing(wait=120.0):
                store.add(_sample(name), new_version=True)
                store.rollback(name)
                store.gc()
        time.sleep(pause * 2 * dice.random())


def _reader(root: Path, report: Path, seed: int) -> None:
    dice, out = random.Random(seed), os.open(report, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    store = Store.open(root)
    while True:
        try:
            names = store.index().names()
            for name in dice.sample(names, min(3, len(names))):
                assert_same(store.read(name), _sample(name))
            os.write(out, b".")
        except Exception as error:
            os.write(out, f"\n{type(error).__name__}: {error}\n".encode())
        time.sleep(0.02)


def _forked(work, *arguments) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work(*arguments)
            os._exit(0)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
    return pid


def _burst(asked: Asked) -> tuple[float, float]:
    """Seconds for the same number of additions by one process after another, and by all at once."""

    def add(root: Path, number: int) -> None:
        store, out = Store.open(root), os.open(os.devnull, os.O_WRONLY)
        for i in range(BURST):
            _add(store, f"b{number}-{i}", out)

    took = []
    for together in (False, True):
        root = asked.folder / f"burst {together}"
        Store.open(root, create=True)
        start = time.monotonic()
        running = []
        for number in range(asked.writers):
            pid = _forked(add, root, number)
            if together:
                running.append(pid)
            else:
                os.waitpid(pid, 0)
        for pid in running:
            os.waitpid(pid, 0)
        took.append(time.monotonic() - start)
    return took[0], took[1]


def run(asked: Asked) -> Told:
    told = Told(f"{asked.writers} writers and {asked.readers} readers on one store, a writer killed every half second")
    alone, together = _burst(asked)
    told.check(together <= 2 * alone, f"together the writers took {together:.1f} s, one by one {alone:.1f} s")
    root, dice = asked.folder / "store", random.Random(asked.seed)
    Store.open(root, create=True)
    pause = asked.seconds / TASKS / 2
    acks = [asked.folder / f"acks {number}" for number in range(asked.writers)]
    reports = [asked.folder / f"reads {number}" for number in range(asked.readers)]
    writers = [_forked(_writer, root, acks[i], i, dice.random(), pause) for i in range(asked.writers)]
    readers = [_forked(_reader, root, reports[i], i) for i in range(asked.readers)]
    kills, end = 0, min(asked.until, time.monotonic() + asked.seconds)
    while time.monotonic() < end:
        time.sleep(dice.random())
        place = dice.randrange(asked.writers)
        if time.monotonic() < end:
            os.kill(writers[place], signal.SIGKILL)
            ended = os.waitpid(writers[place], 0)[1]
            told.check(os.WIFSIGNALED(ended), f"a writer had ended by itself with {ended}")
            writers[place] = _forked(_writer, root, acks[place], place, dice.random(), pause)
            kills += 1
    for pid in (*writers, *readers):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    _look(told, root, acks, reports)
    told.numbers |= {"kills": kills, "one by one (s)": round(alone, 2), "at once (s)": round(together, 2)}
    return told


def _look(told: Told, root: Path, acks: list[Path], reports: list[Path]) -> None:
    """Everything acknowledged is there and intact; no reader met anything wrong; the next writer finds it in order."""
    said = [line for file in acks if file.exists() for line in file.read_text().split()]
    store = Store.open(root)
    try:
        with store.writing(wait=10.0):  # the last owner was killed
            store.gc()
    except StoreError as error:
        told.check(False, f"the store cannot be written afterwards: {error}")
    told.check(store.damage() == {}, f"damaged: {store.damage()}")
    there = set(store.index().names())
    lost = [name for name in said if name not in there]
    told.check(not lost, f"acknowledged but lost: {lost[:5]}")
    for name in there:
        assert_same(store.read(name), _sample(name))
    read = "".join(file.read_text() for file in reports if file.exists())
    wrong = [line for line in read.splitlines() if line.strip(".")]
    told.check(not wrong, f"{len(wrong)} torn reads: {wrong[:2]}")
    told.check(bool(said) and "." in read, "nothing was written or read")
    told.numbers = {"acknowledged": len(said), "lost": len(lost), "tasks in the end": len(there)}
    told.numbers |= {"rounds of reading": read.count("."), "torn": len(wrong)}
