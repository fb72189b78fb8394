"""A training taken up in the middle ends bit-equal to one that was never broken."""

from __future__ import annotations

import json

import pytest
import torch
from scripted import ScriptedLesson, ScriptedMethod
from small_lessons import small_lesson, small_method

from tss.learning.loop import train
from tss.learning.resume import Keyed
from tss.learning.schedule import LearningConfig

CONFIG = {"batch_size": 5, "max_steps": 11, "eval_steps": 3, "checkpoint_steps": 4, "patience": 99}


class Broken(Exception):
    """The power failed."""


class Memory:
    """Checkpoints in memory, as plain bytes and JSON, as a store would keep them."""

    def __init__(self) -> None:
        self.kept: tuple[bytes, str] | None = None
        self.saved = 0

    def save(self, tensors, meta) -> None:
        from safetensors.torch import save

        self.kept = save({name: tensor.contiguous() for name, tensor in tensors.items()}), json.dumps(meta)
        self.saved += 1

    def load(self):
        from safetensors.torch import load

        return None if self.kept is None else (load(self.kept[0]), json.loads(self.kept[1]))


def learn(kind: str, family: str, name: str, place: Memory, break_at: int | None = None, importance=None, **options):
    """Train from the start, or from where the checkpoint is; all objects are made anew, as in a new process."""
    lesson = small_lesson(kind, family, count=14, head_dropout=0.2)
    method = small_method(lesson, name, **({"softmask_apply": options.pop("apply")} if "apply" in options else {}))
    if importance is not None:
        method.importance = torch.full((method.bank.size,), importance)
    method.begin(lesson, None)

    def watch(progress) -> None:
        if progress.step == break_at:
            raise Broken

    outcome = train([lesson], method, LearningConfig(**{**CONFIG, **options}), watch=watch, checkpoints=place)
    state = [p.detach().clone() for group in method.groups() for p in group.parameters]
    return outcome, [*state, *(p.detach().clone() for p in lesson.head.parameters())]


CASES = [
    ("classification", "bart", {"name": "tss"}),
    ("tagging", "bert", {"name": "one-adapter"}),
    ("generation", "t5", {"name": "tss", "importance": 0.5}),
    ("classification", "gpt2", {"name": "tss", "importance": 0.5, "apply": "sgd"}),
    ("classification", "bart", {"name": "tss", "importance": 0.5, "apply": "grad", "adam_eps_uncorrected": True}),
]


@pytest.mark.parametrize(("kind", "family", "options"), CASES, ids=str)
@pytest.mark.parametrize("break_at", [5, 8, 11])
def test_resumed_is_bit_equal_to_unbroken(kind, family, options, break_at):
    """Dropout is on, in the backbone and in the head."""
    options = dict(options)
    whole, expected = learn(kind, family, place=Memory(), **options)
    place = Memory()
    with pytest.raises(Broken):
        learn(kind, family, place=place, break_at=break_at, **options)
    assert place.saved == (2 if break_at >= 9 else 1)
    resumed, found = learn(kind, family, place=place, **options)
    assert resumed.resumed and not whole.resumed
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert (resumed.steps, resumed.best_step, resumed.dev, resumed.dev_loss) == (
        whole.steps,
        whole.best_step,
        whole.dev,
        whole.dev_loss,
    )
    assert resumed.curve == whole.curve


def test_broken_again_and_again():
    _, expected = learn("classification", "bart", "tss", Memory(), checkpoint_steps=1)
    place = Memory()
    for break_at in range(1, 12, 2):
        with pytest.raises(Broken):
            learn("classification", "bart", "tss", place, break_at, checkpoint_steps=1)
    _, found = learn("classification", "bart", "tss", place, checkpoint_steps=1)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_a_finished_training_is_not_trained_again():
    place = Memory()
    _, expected = learn("classification", "bart", "tss", place)
    assert place.saved == 3  # steps 4, 8 and the last
    outcome, found = learn("classification", "bart", "tss", place)
    assert place.saved == 3 and outcome.steps == 11
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_stopping_early_is_remembered():
    """Evaluations without improvement before the break count after it."""
    config = LearningConfig(batch_size=4, eval_steps=1, min_steps=0, warmup=0.0, patience=3, checkpoint_steps=1)
    dev = [(9.0, 1.0)] + [(1.0, 1.0)] * 30
    whole = train([ScriptedLesson(dev)], ScriptedMethod(), config)
    place = Memory()

    def watch(progress) -> None:
        if progress.step == 6:
            raise Broken

    with pytest.raises(Broken):
        train([ScriptedLesson(dev)], ScriptedMethod(), config, watch=watch, checkpoints=place)
    rest = train([ScriptedLesson(dev[2:])], ScriptedMethod(), config, checkpoints=place)
    assert (rest.steps, rest.best_step, rest.curve) == (whole.steps, whole.best_step, whole.curve)


def test_bad_steps_before_the_break_count():
    from math import nan

    from tss.errors import TrainingError

    config = LearningConfig(batch_size=4, eval_steps=50, min_steps=0, checkpoint_steps=1, bad_steps=4)
    place = Memory()
    first = ScriptedMethod({2: nan, 3: nan})

    def watch(progress) -> None:
        if progress.step == 4:
            raise Broken

    with pytest.raises(Broken):
        train([ScriptedLesson([(1.0, 1.0)])], first, config, watch=watch, checkpoints=place)
    second = ScriptedMethod({0: nan, 1: nan, 2: nan})
    with pytest.raises(TrainingError, match="4 steps in a row"):
        train([ScriptedLesson([(1.0, 1.0)])], second, config, checkpoints=place)
    assert second.calls == 3  # the checkpoint is that of step 3: one bad step before it, three after


def test_a_checkpoint_of_another_training_is_left_alone():
    place = Memory()
    Keyed(place, "one").save({"a": torch.zeros(1)}, {"step": 3})
    assert Keyed(place, "other").load() is None
    found = Keyed(place, "one").load()
    assert found is not None and found[1]["step"] == 3
    assert Keyed(Memory(), "one").load() is None


def test_checkpoints_are_as_far_apart_as_asked(monkeypatch: pytest.MonkeyPatch):
    class Place:
        def __init__(self) -> None:
            self.saved: list[int] = []

        def save(self, tensors, meta) -> None:
            self.saved.append(meta["step"])

        def load(self):
            return None

    now = [0.0]
    monkeypatch.setattr("tss.learning.resume.time.monotonic", lambda: now[0])
    for apart, expected in ((0.0, [0, 10, 20, 30, 40]), (15.0, [20, 40])):
        now[0] = 0.0
        place = Place()
        keyed = Keyed(place, "training", apart)
        for second in range(0, 50, 10):
            now[0] = float(second)
            keyed.save({}, {"step": second})
        assert place.saved == expected
