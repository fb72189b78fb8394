"""Stores full of tasks that nobody learnt: random gates and heads, written in a moment, for answering alone."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from tss import Learner, randomness
from tss.learning import probes
from tss.store import TaskRecord
from tss.tasks.kind import ReadingConfig
from tss.tasks.lesson import Lesson
from tss.tasks.task import Lengths

LENGTHS = {"max_input": 48, "max_target": 8, "beams": 2}
OPTIONS: dict[str, Any] = {"bottleneck": 4, "adapter_std": 0.5, "adapter_init": "normal002"}

# name -> kind, labels, pair, lengths that differ
TASKS: dict[str, tuple[str, int, bool, dict[str, int]]] = {
    "mood": ("classification", 2, False, {}),
    "topic": ("classification", 7, False, {}),
    "aspect": ("classification", 3, True, {}),
    "people": ("tagging", 3, False, {}),
    "places": ("tagging", 5, False, {}),
    "summary": ("generation", 0, False, {}),
    "reply": ("generation", 0, False, {}),
    "headline": ("generation", 0, False, {"beams": 3, "max_target": 6}),
}


def planted(path: Path, backbone: Path | str, tasks: dict | None = None, method: str = "supsup", **options) -> Learner:
    """A store of the tasks, and a learner that answers from it."""
    learner = Learner.open(path, str(backbone), method, device="cpu", config={**OPTIONS, **options})
    with learner.store.writing(wait=5.0):
        learner._identify()
        for name, (kind, labels, pair, lengths) in (tasks or TASKS).items():
            plant(learner, name, kind, labels, pair, lengths)
    return learner


def plant(
    learner: Learner, name: str, kind: str, labels: int, pair: bool = False, lengths: dict | None = None, **add: Any
) -> None:
    """Add one task to the store, which the caller is writing to. `salt` makes another version of it.

    company: numbers of stored tasks that answer beside it; like: a task whose labels it has.
    """
    salt, company, like = add.pop("salt", ""), add.pop("company", []), add.pop("like", name)
    names = [f"{like} {i}" for i in range(labels)] if kind == "classification" else ["O", *_tags(labels - 1)]
    limits = Lengths(**{**LENGTHS, **(lengths or {})})
    reading = ReadingConfig()
    made = learner.method.kinds[kind](names if labels else (), limits, "", reading)
    lesson = Lesson(learner.backbone, made, name, f"planted/{name}{salt}")
    with torch.no_grad():
        for parameter in lesson.head.parameters():
            parameter.mul_(30)  # wide apart, so that float noise decides no label
    meta = {
        "kind": kind, "labels": list(made.labels), "lengths": asdict(limits), "metric": made.metric,
        "reading": asdict(reading), "pair": pair, "facts": {},
        "environment": probes.environment(learner.backbone.device, learner.backbone.model.dtype),
    }  # fmt: skip
    gates = randomness.uniform(f"planted/{name}{salt}", learner.method.bank.size, 1.0) > 0
    head = {f"head.{key}": value.detach().cpu() for key, value in lesson.head.state_dict().items()}
    gated = learner.settings.method == "supsup"
    kept = {} if gated else {f"method.{k}": v for k, v in _kept(learner, name).items()}
    if gated and kind in learner.method.config.signed_kinds():
        kept = {"method.signed": torch.tensor(learner.method.signed_std, dtype=torch.float64)}
    summary = {"kind": kind, "labels": labels, "scores": {made.metric: 50.0}, "open_gates": float(gates.float().mean())}
    if company:
        summary["company"] = company
    record = TaskRecord(name, meta, gates if gated else None, {**head, **kept}, {}, summary)
    learner.store.add(record, **add)


def _tags(count: int) -> list[str]:
    return [f"{mark}-{kind}" for kind in ("X", "Y", "Z") for mark in "BI"][:count]


def _kept(learner: Learner, name: str) -> dict[str, torch.Tensor]:
    bank = learner.method.bank
    return {
        "weights": randomness.normal(f"planted/{name}", bank.size, 0.5),
        "biases": randomness.normal(f"planted/{name}/b", bank.bias_size, 0.5),
    }


TEXTS = (
    "the screen is great",
    "John Smith went to Paris and met Anna at the bank on Monday",
    "a poor film",
    "book a table for two at the restaurant please and say that the train leaves at ten",
    "nice day",
)


def mixed_questions(tasks: dict | None = None, rounds: int = 2) -> tuple[list[str], list[Any]]:
    """Task names and inputs, all tasks in turn, some more often than others."""
    names, inputs = [], []
    for turn in range(rounds):
        for i, (name, (_, _, pair, _)) in enumerate((tasks or TASKS).items()):
            if turn and i % 3 == 0:
                continue
            text = TEXTS[(i + turn) % len(TEXTS)]
            names.append(name)
            inputs.append((text, "the sound") if pair else text)
    return names, inputs
