"""R1: after each of many tasks of mixed kinds, the logits of all earlier ones are hashed: not a byte may change."""

from __future__ import annotations

from shared_checks import open_learner
from tiny import tiny_path
from toy_tasks import KINDS, toy

from torture.form import Asked, Told
from tss import Learner
from tss.learning import probes


def _hash(learner: Learner, name: str) -> str:
    ready = learner.ready(name, fresh=True)
    return probes.digest(probes.answer(ready.lesson, ready.record.probes, ready.added))


def run(asked: Asked) -> Told:
    learner = open_learner(asked.folder / "store", tiny_path("bart"))
    tasks = [toy(KINDS[i % len(KINDS)], f"task {i}", turned=bool(i // len(KINDS) % 2)) for i in range(asked.tasks)]
    told = Told(f"{asked.tasks} tasks of mixed kinds (TSS, tiny BART); after each, logits of all earlier ones hashed")
    hashes: dict[str, str] = {}
    scores: dict[str, dict[str, float]] = {}
    compared = changed = 0
    for number, task in enumerate(tasks):
        if not asked.in_time():
            told.whole = False
            break
        scores[task.name] = learner.learn(task).scores
        for name, before in hashes.items():
            compared += 1
            changed += not told.check(_hash(learner, name) == before, f"{name} changed when task {number} was learnt")
        hashes[task.name] = _hash(learner, task.name)
    again = Learner.open(asked.folder / "store", device="cpu")  # from disk, by another learner
    lost = 0.0
    for task in tasks[: len(scores)]:
        now = again.evaluate(task)
        lost = max([lost, *(scores[task.name][key] - now[key] for key in now)])
        told.check(_hash(again, task.name) == hashes[task.name], f"{task.name} answers otherwise from disk")
    told.check(lost == 0.0, f"the forgetting rate is {lost}, not 0.0")
    told.numbers = {"comparisons": compared, "changed": changed, "forgetting rate": lost}
    return told
