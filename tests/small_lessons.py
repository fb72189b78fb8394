"""Small tasks of every kind, and lessons made of them on tiny backbones, for tests of the inner parts."""

from __future__ import annotations

import random

from tiny import tiny_loaded

from tss.backbones.adapters import AdapterConfig
from tss.config import resolve
from tss.methods import method_class
from tss.methods.method import Method
from tss.tasks.kind import ReadingConfig
from tss.tasks.lesson import Lesson
from tss.tasks.task import Task

GOOD, BAD = ["great", "good", "nice"], ["poor", "bad", "cheap"]
THINGS = ["screen", "battery", "film", "sound", "table", "bank"]
NAMES = ["John", "Anna", "Smith"]


def small_task(kind: str, count: int = 12, name: str = "", seed: int = 0) -> Task:
    """A task that can be learnt: `count` training examples and 6 more each for valid and test."""
    dice = random.Random(f"{kind}/{seed}")
    rows = [_EXAMPLES[kind](dice) for _ in range(count + 12)]
    splits = rows[:count], rows[count : count + 6], rows[count + 6 :]
    labels = {"classification": ["good", "bad"], "tagging": ["O", "B-PER", "I-PER"], "generation": None}[kind]
    lengths = {"max_input": 32, "max_target": 12, "beams": 2}
    return Task.from_lists(name or kind, kind, *splits, labels=labels, lengths=lengths)


def _classification(dice: random.Random) -> tuple[str, str]:
    label = dice.choice(["good", "bad"])
    words = ["the", dice.choice(THINGS), "is", dice.choice(GOOD if label == "good" else BAD)]
    return " ".join(words + ["and"] * dice.randrange(4)), label


def _tagging(dice: random.Random) -> tuple[list[str], list[str]]:
    before = [dice.choice(THINGS) for _ in range(dice.randrange(1, 4))]
    return [*before, "met", dice.choice(NAMES), "Smith"], ["O"] * (len(before) + 1) + ["B-PER", "I-PER"]


def _generation(dice: random.Random) -> tuple[str, str]:
    thing, word = dice.choice(THINGS), dice.choice(GOOD + BAD)
    return f"the {thing} is {word}" + " and" * dice.randrange(3), " ".join(
        [word, thing, "bank"][: dice.randrange(1, 4)]
    )


_EXAMPLES = {"classification": _classification, "tagging": _tagging, "generation": _generation}


def small_lesson(kind: str, family: str = "bart", count: int = 12, backbone=None, kinds=None, **reading) -> Lesson:
    """A lesson on a tiny backbone."""
    return Lesson.of(small_task(kind, count), backbone or tiny_loaded(family), ReadingConfig(**reading), 0, kinds)


def small_method(lesson: Lesson, name: str = "tss", **options) -> Method:
    """A method ready to train on the lesson's backbone, not yet begun."""
    config = resolve(name, given={"bottleneck": 4, **options})
    return method_class(name)(lesson.backbone, config.adapter, config.method, 0)


def small_bank(lesson: Lesson):
    from tss.backbones.adapters import AdapterBank

    return AdapterBank(lesson.backbone.sites, AdapterConfig(bottleneck=4))
