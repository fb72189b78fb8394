"""R2: kill -9 of a real learning process, half at each system call of a save in turn, half at random moments."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from shared_checks import assert_same_bits, open_learner, state
from tiny import tiny_path
from toy_tasks import toy

from torture.form import ROOT, Asked, Told

BEFORE, NEW = "toy tagging", "toy pair"


class Worker:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "torture.kill_worker"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def learn(self, point: str, store: Path) -> tuple[int, float]:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write("\t".join([point, "tss", str(tiny_path("bart")), str(store)]) + "\n")
        self.process.stdin.flush()
        ended, seconds = self.process.stdout.readline().split()
        return int(ended), float(seconds)

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(timeout=60)


def _check(told: Told, store: Path, end: dict, curve: list, where: str) -> bool:
    """The store opens, nothing finished is lost, and going on gives the unbroken run's bits; was the task there?"""
    try:
        learner = open_learner(store, tiny_path("bart"))
        names = [info.name for info in learner.tasks()]
        there = names == [BEFORE, NEW]
        told.check(there or names == [BEFORE], f"{where}: the store lists {names}")
        told.check(learner.verify([BEFORE])[0].status == "equal", f"{where}: the finished task changed")
        if not there:
            learned = learner.learn(toy("pair"))
            told.check(learned.curve == curve, f"{where}: the run taken up has other numbers")
        for name in (BEFORE, NEW):
            assert_same_bits(state(learner, name), end[name])
        with learner.store.writing():  # sweeps
            found = {str(path.relative_to(store)) for path in store.rglob("*") if path.is_file()}
        extra = found - learner.store.index().files() - {"index.json", "index.backup.json", "lock"}
        told.check(not extra, f"{where}: left over {sorted(extra)}")
        return there
    except Exception as error:
        told.check(False, f"{where}: {type(error).__name__}: {error}")
        return False


def run(asked: Asked) -> Told:
    torch.set_num_threads(1)
    told = Told("a process that learns is killed (SIGKILL); then opened, compared, taken up, compared bit by bit")
    start = asked.folder / "start"
    open_learner(start, tiny_path("bart")).learn(toy("tagging"))
    unbroken = open_learner(shutil.copytree(start, asked.folder / "unbroken"), tiny_path("bart"))
    curve = unbroken.learn(toy("pair")).curve
    end = {name: state(unbroken, name) for name in (BEFORE, NEW)}
    dice, worker = random.Random(asked.seed), Worker()
    whole = worker.learn("never", shutil.copytree(start, asked.folder / "timed"))[1]
    killed = {"at a call": 0, "at a moment": 0}
    runs = finished = lived = call = 0
    first_round = True
    while sum(killed.values()) < asked.kills and runs < 3 * asked.kills and asked.in_time():
        at_call = killed["at a call"] <= killed["at a moment"]
        call += at_call
        point = f"call {call}" if at_call else f"after {dice.random() * whole:.4f}"
        store = shutil.copytree(start, asked.folder / "store")
        ended, _ = worker.learn(point, store)
        if at_call and ended == 0:
            call, first_round = 0, False  # behind the last call: begin again
        lived += ended == 0
        told.check(ended in (0, 9), f"{point}: the process ended by {ended}")
        killed["at a call" if at_call else "at a moment"] += ended == 9
        finished += _check(told, store, end, curve, point)
        shutil.rmtree(store)
        runs += 1
    worker.close()
    told.whole = sum(killed.values()) == asked.kills
    told.numbers = {"runs": runs, **{f"killed {key}": n for key, n in killed.items()}, "ended before the kill": lived}
    told.numbers |= {"calls reached": "all" if not first_round else call, "task kept before the kill": finished}
    told.numbers["seconds of an unbroken run"] = round(whole, 2)
    return told
