"""What every method must pass, whatever its kind of task. One `Course` is taught a method and kind; the checks read it.

A course: a store learns a toy task, then two later tasks of other kinds (a joint method learns all three together).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_tasks import inputs, others, toy

from tss import Learner, Task
from tss.backbones.backbone import hash_tensors
from tss.errors import TaskError
from tss.methods import METHODS, method_class
from tss.results import Learned

# Small enough to be quick, with learning rates at which a tiny random model learns something in a dozen steps.
OPTIONS: dict[str, Any] = {
    "max_steps": 8,
    "eval_steps": 4,
    "batch_size": 8,
    "checkpoint_steps": 3,
    "bottleneck": 4,
    "adapter_std": 0.2,
    "head_lr": 3e-2,
}
# One name a class: a second name of the same class ("w/o SM" is SupSup) would repeat every check.
DISTINCT = tuple(sorted({place: name for name, place in reversed(METHODS.items())}.values()))
STOPPED_AT = 5  # the step after which a training is interrupted: between two checkpoints


class Interrupted(Exception):
    """Stands for whatever ends a training from outside."""


@dataclass(frozen=True)
class Course:
    """What was seen while a method was taught. `before`, `after`: of the first task, then and after the later ones.

    together: tasks learnt at once with the first.
    """

    store: Path
    task: Task
    together: int
    first: Learned
    losses: list[float]
    frozen: tuple[str, str]
    files: dict[str, bytes]
    before: list[Any]
    after: list[Any]
    changed: int
    state: dict[str, torch.Tensor]


def options_for(method: str, **changed: Any) -> dict[str, Any]:
    """The options of a short training, with what shows in a few steps: rates, soft masks, short prompts."""
    known = {one.name for one in fields(method_class(method).Config)}
    short = {"adapter_lr": 1e-2, "lm_lr": 1e-2, "hat_smax": 4.0, "prompt_length": 4}
    return {**OPTIONS, **{key: value for key, value in short.items() if key in known}, **changed}


def open_learner(store: Path, backbone: Path | str, method: str = "tss", **options: Any) -> Learner:
    """A learner on the CPU with the short options."""
    return Learner.open(store, str(backbone), method, device="cpu", config=options_for(method, **options))


def learn(learner: Learner, tasks: Sequence[Task], watch: Callable | None = None) -> list[Learned]:
    """Learn the tasks: together if that is the method's way, else one after another."""
    if learner.method.joint:
        return learner.learn_together(tasks, progress=watch)
    return [learner.learn(task, progress=watch) for task in tasks]


def state(learner: Learner, name: str) -> dict[str, torch.Tensor]:
    """All that learning a task left behind: gates, head, the method's tensors, probes, shared state."""
    record = learner.store.read(name)
    found = {f"shared {key}": tensor for key, tensor in learner.store.read_shared().items()}
    found |= {f"task {key}": tensor for key, tensor in record.tensors.items()}
    found |= {f"probe {key}": tensor for key, tensor in record.probes.items()}
    return found if record.gates is None else {**found, "gates": record.gates}


def assert_same_bits(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    differing = [key for key in one if hash_tensors({"": one[key]}) != hash_tensors({"": other[key]})]
    assert differing == []


def answers(learner: Learner, task: Task) -> list[Any]:
    return learner.predict(task.name, inputs(task), details=True)


def files_of(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((store / "tasks").iterdir())}


def teach(folder: Path, backbone: Path, method: str, kind: str) -> Course:
    """Teach the course: the first task, then the later ones, and look at the first again in a new learner."""
    learner = open_learner(folder / "store", backbone, method)
    task, later = toy(kind), others(kind, learner.method.kinds)
    frozen = hash_tensors(learner.method.frozen())
    losses: list[float] = []

    def watch(progress: Any) -> None:
        if progress.phase == "learning":
            losses.append(progress.loss)

    at_once = [task, *later] if learner.method.joint else [task]
    first = learn(learner, at_once, watch)[0]
    before, files, then = answers(learner, task), files_of(learner.store.path), state(learner, task.name)
    if not learner.method.joint:
        learn(learner, later)
    frozen_after = hash_tensors(learner.method.frozen())
    again = Learner.open(folder / "store", device="cpu")
    check = again.verify([task.name])[0]
    after = answers(again, task)
    kept = files, before, after, check.changed_bytes, then
    return Course(folder / "store", task, len(at_once), first, losses, (frozen, frozen_after), *kept)


def check_learns(course: Course) -> None:
    """The loss falls, every planned step was made, and scores are points."""
    assert course.first.steps == OPTIONS["max_steps"] * course.together == len(course.losses)
    first, last = sum(course.losses[:3]) / 3, sum(course.losses[-3:]) / 3
    assert last < first - 0.02, course.losses
    assert course.first.scores and all(0.0 <= score <= 100.0 for score in course.first.scores.values())
    assert all(math.isfinite(value) for value in course.first.facts.values())


def check_frozen(course: Course) -> None:
    """What the method declares frozen is there, and is the same after all tasks; stored files are never touched."""
    assert course.frozen[0] == course.frozen[1]
    now = files_of(course.store)
    assert {name: now[name] for name in course.files} == course.files


def check_memory(course: Course, forgets: bool) -> None:
    """A method that claims not to forget answers as before, byte for byte, also from disk; another one does not."""
    if forgets:
        assert course.changed > 0  # bytes of probes; answers are rounded and may well stay
    else:
        assert course.changed == 0 and course.before == course.after


def check_resume(folder: Path, backbone: Path, method: str, course: Course, kind: str) -> None:
    """A training that is cut off and taken up by a new learner ends bit for bit where the unbroken one did."""

    def stop(progress: Any) -> None:
        if progress.step == STOPPED_AT:
            raise Interrupted

    joint = method_class(method).joint
    tasks = [course.task, *others(kind, method_class(method).kinds)] if joint else [course.task]
    with pytest.raises(Interrupted):
        learn(open_learner(folder / "store", backbone, method), tasks, stop)
    learner = open_learner(folder / "store", backbone, method)
    assert learner.tasks() == []
    learned = learn(learner, tasks)[0]
    assert learned.resumed and not course.first.resumed
    assert_same_bits(state(learner, course.task.name), course.state)
    assert learned.scores == course.first.scores and learned.curve == course.first.curve


def check_odd_tasks(folder: Path, backbone: Path, method: str) -> None:
    """An empty task is refused; one example, or one class, is learnt with a warning and has defined scores."""
    learner = open_learner(folder / "store", backbone, method, max_steps=2)
    for kind in ("classification", "tagging", "generation"):
        with pytest.raises(TaskError, match="no training examples"):
            learn(learner, [Task(f"empty {kind}", kind, labels=() if kind == "generation" else ("O",))])
        with pytest.raises(TaskError, match="no training examples"):
            Task.from_lists("empty", kind, [])
    assert learner.tasks() == []
    odd = {
        "one training example": [
            Task.from_lists("one text", "classification", [("good", "yes")]),
            Task.from_lists("one sentence", "tagging", [(["good"], ["B-X"])]),
            Task.from_lists("one reply", "generation", [("good", "day")]),
        ],
        "one class only": [Task.from_lists("one class", "classification", [("good", "yes"), ("bad", "yes")] * 2)],
        "other than O": [Task.from_lists("no entity", "tagging", [(["good", "day"], ["O", "O"])] * 2)],
    }
    odd = {warning: [task for task in tasks if task.kind in learner.method.kinds] for warning, tasks in odd.items()}
    learned = learn(learner, [task for tasks in odd.values() for task in tasks])
    wanted = [warning for warning, tasks in odd.items() for _ in tasks]
    for result, warning in zip(learned, wanted, strict=True):
        assert any(warning in told for told in result.warnings), result
        assert all(0.0 <= score <= 100.0 for score in result.scores.values())
    if learner.method.kinds["classification"].single:  # a head knows no other answer; a method that writes does
        assert learner.predict("one class", ["good", "what"]) == ["yes", "yes"]
