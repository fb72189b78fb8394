"""Recorded steps give the numbers of plain ones. On a CPU nothing is recorded; the rest needs a GPU."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest
import torch
from small_lessons import small_lesson, small_method
from tiny import tiny_loaded

from tss.backbones import recorded
from tss.backbones.recorded import Recorder
from tss.learning.loop import train
from tss.learning.schedule import LearningConfig
from tss.methods import METHODS, method_class
from tss.methods.similarity import transfer_score

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def test_without_a_gpu_functions_are_called_as_they_are():
    calls = []
    recorder = Recorder(on=False)
    for i in range(3):
        (out,) = recorder("key", lambda x: calls.append(1) or (x + 1,), torch.tensor(float(i)))
        assert float(out) == i + 1.0
    assert len(calls) == 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classification", "generation"])
def test_a_compiled_training_is_the_plain_one_but_for_rounding(kind):
    found = []
    for compiled in (False, True):
        lesson = small_lesson(kind, count=24, backbone=tiny_loaded("bart"))
        for module in lesson.backbone.model.modules():  # a compiler draws what is dropped in its own order
            for key in ("dropout", "attention_dropout", "activation_dropout"):
                if isinstance(getattr(module, key, None), float):
                    setattr(module, key, 0.0)
        method = small_method(lesson, "tss")
        config = LearningConfig(max_steps=6, eval_steps=3, batch_size=8, compile=compiled)
        method.begin(lesson, None)
        found.append([entry[1] for entry in train([lesson], method, config).curve])
    assert len(found[0]) == 2 and found[1] == pytest.approx(found[0], rel=1e-4)


@pytest.mark.gpu
@needs_gpu
def test_replays_follow_inputs_and_parameters():
    weight = torch.ones(4, device="cuda", requires_grad=True)
    recorder = Recorder(on=True)

    def derive(x):
        loss = (weight * x).square().sum()
        return loss.detach(), *torch.autograd.grad(loss, [weight])

    for i in range(6):
        x = torch.full((4,), float(i), device="cuda")
        loss, gradient = recorder("key", derive, x)
        assert float(loss) == pytest.approx(float((weight * x).square().sum()))
        assert torch.allclose(gradient, 2 * weight * x * x)
        with torch.no_grad():
            weight += 1.0
    assert not recorder.trouble and any(recorder._seen.values())


def test_what_is_in_its_place_is_not_copied():
    places = [torch.zeros(2), torch.zeros(3), torch.zeros(1, dtype=torch.long)]
    values = [torch.ones(2), places[1], torch.tensor([7])]
    recorded._fill(places, values)
    assert [p.tolist() for p in places] == [[1.0, 1.0], [0.0, 0.0, 0.0], [7]]


@pytest.mark.gpu
@needs_gpu
def test_results_of_every_length_are_left_in_one_place_and_taken_from_there():
    recorder, found = Recorder(on=True), set()
    for length in (4, 8, 4):
        for i in range(4):
            x = torch.full((length,), float(i), device="cuda")
            (total,) = recorder("first", lambda x: (x.sum(),), x)
            (more,) = recorder("second", lambda total: (total + 1.0,), total)
            assert (float(total), float(more)) == (i * length, i * length + 1.0)
            if i == 3:
                found.add(total.data_ptr())
    (second,) = [record for key, record in recorder._seen.items() if key[0] == "second"]
    assert len(found) == 1 and second.inputs[0].data_ptr() in found and not recorder.trouble


@pytest.mark.gpu
@needs_gpu
def test_what_cannot_be_recorded_runs_plainly_and_says_why():
    recorder = Recorder(on=True)

    def reads(x):
        return (x * float(x.sum()),)

    for i in range(4):
        (out,) = recorder("key", reads, torch.full((2,), float(i), device="cuda"))
        assert torch.allclose(out, torch.full((2,), 2.0 * i * i, device="cuda"))
    assert recorder.trouble and not recorder.on


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name in METHODS for kind in method_class(name).kinds])
def test_a_recorded_training_is_the_plain_one(name, kind):
    found = []
    for record in (False, True):
        backbone = tiny_loaded("bart")
        backbone.model.to("cuda")
        for module in backbone.model.modules():  # what is dropped depends on the shape, which rounding changes
            for key in ("dropout", "attention_dropout", "activation_dropout"):
                if isinstance(getattr(module, key, None), float):
                    setattr(module, key, 0.0)
        lesson = small_lesson(kind, count=40, backbone=backbone, kinds=method_class(name).kinds)
        method = small_method(lesson, name)
        config = LearningConfig(max_steps=24, eval_steps=8, batch_size=8, record=record)
        method.begin(lesson, lambda lessons, method, config=config: train(lessons, method, config))
        seen = [lesson] if method.joint else method.lessons(lesson)
        outcome = train(seen, method, config)
        found.append([entry[1] for entry in outcome.curve])
    assert found[1] == pytest.approx(found[0], rel=1e-3, abs=1e-4)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("compiled", [False, True])
def test_a_graph_left_behind_as_garbage_does_not_stop_recording(compiled):
    """As a compiler's frames do: a cycle keeps the plain call's graph alive. It stands in the way if nobody minds."""
    weight = torch.ones(4, device="cuda", requires_grad=True)
    recorder = Recorder(on=True, compiled=compiled)

    def derive(x):
        loss = (weight * x).square().sum()
        cycle = [loss]
        cycle.append(cycle)
        return loss.detach(), *torch.autograd.grad(loss, [weight], retain_graph=True)

    gc.disable()
    try:
        for i in range(3):
            x = torch.full((4,), float(i + 1), device="cuda")
            _, gradient = recorder("key", derive, x)
            assert torch.allclose(gradient, 2 * weight * x * x)
    finally:
        gc.enable()
    assert recorder.on is compiled and bool(recorder.trouble) is not compiled


@pytest.mark.gpu
@needs_gpu
def test_a_recording_that_fails_on_the_way_changes_no_number(monkeypatch):
    real, asked = Recorder._record, []

    def failing(self, key, function, inputs):
        asked.append(1)
        if len(asked) == 3:
            return real(self, key, lambda *_: (torch.full((), float(method.scores.sum())),), inputs)  # reads a number
        return real(self, key, function, inputs)

    found = []
    for patched in (False, True):
        if patched:
            monkeypatch.setattr(Recorder, "_record", failing)
        backbone = tiny_loaded("bart")
        backbone.model.to("cuda")
        lesson = small_lesson("classification", count=40, backbone=backbone)
        method = small_method(lesson, "tss")
        method.begin(lesson, None)
        found.append(train([lesson], method, LearningConfig(max_steps=24, eval_steps=8, batch_size=8)))
    assert found[0].curve == found[1].curve
    assert not found[0].troubles and "could not be recorded" in found[1].troubles[0]


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("kind", ["classification", "tagging"])
def test_a_readout_over_remembered_states_is_recorded(kind):
    found = []
    for record in (False, True):
        backbone = tiny_loaded("bart")
        backbone.model.to("cuda")
        lesson = small_lesson(kind, count=40, backbone=backbone)
        method = small_method(lesson, "cat")
        method.begin(lesson, None)
        config = LearningConfig(max_steps=24, eval_steps=8, batch_size=8, record=record)

        def inner(lessons, probe, config=config, **changed):
            found.append(train(lessons, probe, replace(config, **changed)))
            return found[-1]

        transfer_score(method, torch.ones(method.layers.units, device="cuda"), lesson, inner, epochs=4)
    assert not found[1].troubles and found[1].steps == found[0].steps
    assert [at[1] for at in found[1].curve] == pytest.approx([at[1] for at in found[0].curve], rel=1e-3, abs=1e-4)
