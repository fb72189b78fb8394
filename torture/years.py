"""R10: stores of earlier formats open and answer as then; a store of 500 tasks is verified in less than a minute."""

from __future__ import annotations

import shutil
import time

from many_tasks import made_store

from torture.form import ROOT, Asked, Told
from tss import Learner

TASKS, SECONDS = 500, 60


def run(asked: Asked) -> Told:
    told = Told(f"stores kept from earlier formats verified; a store of {TASKS} tasks verified")
    outputs = 0
    kept = sorted((ROOT / "tests" / "store").glob("format_*"))
    for old in kept:
        place = shutil.copytree(old, asked.folder / old.name)
        learner = Learner.open(place / "store", str(place / "backbone"), device="cpu")
        for check in learner.verify():
            outputs += check.outputs
            told.check(check.status in ("equal", "close"), f"{old.name}: {check.name} is {check.status}")
    path = made_store(asked.folder / "many", TASKS)
    start = time.monotonic()
    statuses = {check.status for check in Learner.open(path, device="cpu").verify()}
    seconds = time.monotonic() - start
    told.check(statuses == {"equal"}, f"of {TASKS} tasks: {statuses}")
    told.check(seconds < SECONDS, f"{TASKS} tasks took {seconds:.0f} s")
    told.numbers = {"formats": len(kept), "outputs compared": outputs}
    told.numbers[f"{TASKS} tasks verified in (s)"] = round(seconds, 1)
    return told
