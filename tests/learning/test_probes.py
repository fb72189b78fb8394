"""Probes: answers kept with a task, asked again later, compared byte for byte."""

from __future__ import annotations

import pytest
import torch
from small_lessons import small_lesson, small_method

from tss.backbones.backbone import Pass
from tss.learning import probes

KINDS = [("classification", "bart"), ("tagging", "bert"), ("generation", "t5"), ("generation", "gpt2")]


def made(kind: str, family: str, name: str = "supsup"):
    lesson = small_lesson(kind, family)
    method = small_method(lesson, name, adapter_std=0.3)
    method.begin(lesson, None)
    added = method.recall(method.kept())
    kept, digest = probes.make(lesson, lesson.test.rows, added)
    return lesson, method, added, kept, digest


def here(lesson) -> dict[str, str]:
    return probes.environment(lesson.backbone.device, lesson.backbone.model.dtype)


@pytest.mark.parametrize(("kind", "family"), KINDS)
def test_the_same_answers_come_back_byte_for_byte(kind, family):
    lesson, _, added, kept, digest = made(kind, family)
    found = probes.compare(lesson, kept, added, here(lesson))
    assert (found.status, found.changed_bytes, found.same_environment) == ("equal", 0, True)
    outputs = {name: tensor for name, tensor in kept.items() if name.startswith("output.")}
    assert found.outputs == sum(tensor.numel() for tensor in outputs.values())
    assert probes.digest(outputs) == digest
    assert probes.digest(probes.answer(lesson, kept, added)) == digest


@pytest.mark.parametrize(("kind", "family"), KINDS)
def test_dropout_or_training_mode_do_not_matter(kind, family):
    lesson, _, added, kept, _ = made(kind, family)
    lesson.backbone.model.train()
    lesson.head.train()
    assert probes.compare(lesson, kept, added, here(lesson)).status == "equal"


@pytest.mark.parametrize(("kind", "family"), KINDS)
def test_another_sub_network_is_noticed(kind, family):
    lesson, method, _, kept, _ = made(kind, family)
    with torch.no_grad():
        method.scores.neg_()
    other = method.recall(method.kept())
    found = probes.compare(lesson, kept, other, here(lesson))
    assert found.status == "changed" and found.changed_bytes > 0
    assert probes.compare(lesson, kept, Pass(), here(lesson)).status == "changed"


def test_one_gate_is_noticed():
    lesson, method, _, kept, _ = made("classification", "bart")
    with torch.no_grad():
        method.scores[:40].neg_()
    assert probes.compare(lesson, kept, method.recall(method.kept()), here(lesson)).changed_bytes > 0


def test_one_bit_of_a_head_is_noticed():
    lesson, _, added, kept, _ = made("classification", "bart")
    with torch.no_grad():
        lesson.head.outer.bias[0] += 1e-3
    assert probes.compare(lesson, kept, added, here(lesson)).status == "changed"


def test_another_environment_gets_a_tolerance_and_no_more():
    lesson, _, added, kept, _ = made("classification", "bart")
    elsewhere = {**here(lesson), "torch": "0.0"}
    found = probes.compare(lesson, kept, added, elsewhere)
    assert found.status == "equal" and not found.same_environment
    near = {**kept, "output.logits": kept["output.logits"] + probes.TOLERANCE / 2}
    found = probes.compare(lesson, near, added, elsewhere)
    assert found.status == "close" and found.largest == pytest.approx(probes.TOLERANCE / 2, rel=0.01)
    assert probes.compare(lesson, near, added, here(lesson)).status == "changed"  # here not a bit may differ
    far = {**kept, "output.logits": kept["output.logits"] + 2 * probes.TOLERANCE}
    assert probes.compare(lesson, far, added, elsewhere).status == "changed"


def test_answers_that_are_no_numbers_are_changed():
    lesson, _, added, kept, _ = made("classification", "bart")
    broken = {**kept, "output.logits": kept["output.logits"] * float("nan")}
    for where in (here(lesson), {**here(lesson), "torch": "0.0"}):
        assert probes.compare(lesson, broken, added, where).status == "changed"


def test_outputs_of_another_shape_are_changed():
    lesson, _, added, kept, _ = made("classification", "bart")
    other = {**kept, "output.logits": kept["output.logits"][:, :1]}
    assert probes.compare(lesson, other, added, here(lesson)).status == "changed"


@pytest.mark.parametrize(("kind", "family"), KINDS)
def test_probes_are_few_short_and_whole_numbers(kind, family):
    lesson, _, added, _, _ = made(kind, family)
    rows = lesson.train.rows + lesson.test.rows
    kept, _ = probes.make(lesson, rows, added)
    assert kept["input.ids"].shape[0] == probes.COUNT
    assert kept["input.ids"].shape[1] <= probes.LONGEST and kept["input.target"].shape[-1] <= probes.LONGEST
    assert {kept[f"input.{name}"].dtype for name in ("ids", "mask", "target")} == {torch.int32}
    assert all(tensor.device.type == "cpu" for tensor in kept.values())


def test_environment_names_what_decides_the_bits():
    lesson = small_lesson("classification")
    assert set(here(lesson)) == {"torch", "transformers", "device", "machine", "dtype", "threads"}
    assert here(lesson)["dtype"] == "float32"
    assert all(isinstance(value, str) for value in here(lesson).values())
