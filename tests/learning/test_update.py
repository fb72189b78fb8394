"""The update as one recordable function gives the numbers of the plain one, and skips what is no number."""

from __future__ import annotations

from math import inf, nan

import pytest
import torch
from small_lessons import small_lesson, small_method
from torch.optim import AdamW

from tss.learning.update import Made, OnTheWay, Update


class Calling:
    """A recorder that records nothing, so that what a GPU would record runs on any machine."""

    on = True

    def __call__(self, key, function, *inputs):
        return function(*inputs)


def moved(recorder, steps, importance, at_once=False):
    """Scores after steps of (loss, gradient scale), and what the updates said. at_once: with the pass before."""
    lesson = small_lesson("classification")
    method = small_method(lesson, "tss")
    method.importance = torch.full((method.bank.size,), importance)
    method.begin(lesson, None)
    optimiser = AdamW([method.scores], lr=0.1, weight_decay=0.0, fused=True)
    optimiser.param_groups[0]["peak"] = 0.1
    update = Update([method.scores], [optimiser], method, 0.0, recorder)
    told = []
    for i, (loss, scale) in enumerate(steps):
        gradient = scale * torch.sin(torch.arange(method.bank.size) * (i + 1.0))
        if at_once:
            told += update.at_once("step", lambda x, loss=loss: (torch.tensor(loss), x), [gradient], 1.0 - i / 10)
        else:
            method.scores.grad = gradient
            told += update(torch.tensor(loss), 1.0 - i / 10)
    return method.scores.detach().clone(), [*told, *update.settle()], update


class Off:
    on = False


@pytest.mark.parametrize("importance", [0.0, 0.4])
def test_both_ways_give_the_same_numbers(importance: float):
    steps = [(1.0, 1.0), (0.5, 1e-3), (nan, 1.0), (0.4, inf), (0.25, 2.0)]
    plain, told, update = moved(Off(), steps, importance)
    same, also, other = moved(Calling(), steps, importance)
    assert (update.recordable, other.recordable) == (False, True)
    assert [one.made for one in told] == [one.made for one in also] == [True, True, False, False, True]
    assert [one for one in told if one.made] == [one for one in also if one.made]
    torch.testing.assert_close(same, plain, rtol=1e-6, atol=1e-7)


def test_a_step_with_the_pass_before_it_gives_the_same_numbers():
    steps = [(1.0, 1.0), (nan, 1.0), (0.4, inf), (0.25, 2.0)]
    apart, told, _ = moved(Calling(), steps, 0.4)
    together, also, _ = moved(Calling(), steps, 0.4, at_once=True)
    assert torch.equal(apart, together) and [one.made for one in told] == [one.made for one in also]


def test_a_step_that_is_no_number_leaves_everything_as_it_was():
    before, _, _ = moved(Calling(), [(1.0, 1.0)], 0.0)
    after, _, update = moved(Calling(), [(1.0, 1.0), (nan, 1.0)], 0.0)
    assert torch.equal(before, after)
    (state,) = update.optimisers[0].state.values()
    assert float(state["step"]) == 1.0


@pytest.mark.parametrize("change", [{"clip": 1.0}, {"rule": "sgd"}])
def test_what_needs_the_host_is_never_recorded(change: dict):
    lesson = small_lesson("classification")
    method = small_method(lesson, "tss")
    method.begin(lesson, None)
    made = AdamW([method.scores], fused=True) if "rule" not in change else torch.optim.SGD([method.scores], lr=0.1)
    assert not Update([method.scores], [made], method, change.get("clip", 0.0), Calling()).recordable


def test_what_is_recorded_is_told_one_step_later():
    on_the_way, told = OnTheWay(), torch.zeros(2)
    found = []
    for i in range(3):
        told[0], told[1] = i, i == 1  # overwritten as a recorded graph's output is
        found.append(on_the_way.send(told))
    assert found == [[], [Made(0.0, True)], [Made(1.0, False)]]
    assert on_the_way.read() == [Made(2.0, True)] and on_the_way.read() == []


def test_a_recording_that_fails_on_the_way_changes_no_number():
    class Failing(Calling):
        def __call__(self, key, function, *inputs):
            self.on = False
            return function(*inputs)

    steps = [(1.0, 1.0), (0.5, 1e-3), (0.25, 2.0)]
    (scores, told, _), (same, also, _) = (moved(recorder, steps, 0.4) for recorder in (Calling(), Failing()))
    assert torch.equal(scores, same) and told == also
