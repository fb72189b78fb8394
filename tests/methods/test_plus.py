"""TSS+: which stored task a new one starts from, and what it inherits."""

from __future__ import annotations

import pytest
import torch
from small_lessons import small_lesson, small_method, small_task
from tiny import tiny_path

from tss.errors import ConfigError, DamagedError
from tss.learner import Learner
from tss.learning.loop import train
from tss.learning.schedule import LearningConfig
from tss.methods.method import Earlier, Kept, Remembered
from tss.methods.plus import PlusConfig, inherit_head, left_out_error

QUICK = {"max_steps": 6, "race_steps": 3, "bottleneck": 4, "eval_steps": 3}


def inner(lessons, method, **changes):
    return train(lessons, method, LearningConfig(**{"batch_size": 8, "max_steps": 6, "eval_steps": 3, **changes}))


def stored(method, name="old", kind="classification", labels=("good", "bad"), share=0.5):
    gates = torch.rand(method.bank.size, generator=torch.Generator().manual_seed(len(name))) < share
    head = {k: torch.full_like(v, 3.0) for k, v in small_lesson(kind).head.state_dict().items()}
    return Earlier(name, kind, lambda: Remembered(Kept(gates), head, labels))


def test_left_out_error_is_that_of_fitting_without_each_row():
    dice = torch.Generator().manual_seed(0)
    features = torch.randn(12, 5, generator=dice, dtype=torch.float64)
    targets = torch.randint(0, 3, (12,), generator=dice)
    x = torch.nn.functional.normalize(features - features.mean(0), dim=-1)
    x = torch.cat([x, torch.ones(12, 1, dtype=x.dtype)], dim=1)
    y = torch.nn.functional.one_hot(targets, 3).to(x)
    errors = []
    for i in range(12):
        rest = [j for j in range(12) if j != i]
        fit = torch.linalg.solve(x[rest].T @ x[rest] + 0.1 * torch.eye(6, dtype=x.dtype), x[rest].T @ y[rest])
        errors.append((y[i] - x[i] @ fit).square().sum())
    assert left_out_error(features, targets, 3) == pytest.approx(float(torch.stack(errors).mean()), rel=1e-9)


def test_features_that_tell_the_labels_suit_better():
    dice = torch.Generator().manual_seed(0)
    targets = torch.arange(40) % 2
    noise = torch.randn(40, 8, generator=dice, dtype=torch.float64)
    telling = noise + 4.0 * (2 * targets[:, None] - 1)
    assert left_out_error(telling, targets, 2) < 0.5 * left_out_error(noise, targets, 2)


def test_a_first_task_starts_fresh_and_is_supsup_bit_for_bit():
    mine, plain = (small_method(small_lesson("classification"), name) for name in ("tss+", "supsup"))
    mine.begin(small_lesson("classification", count=24), inner)
    plain.begin(small_lesson("classification", count=24), inner)
    assert torch.equal(mine.scores, plain.scores) and mine.parent is None and mine.facts()["inherited"] == 0.0


def test_of_many_stored_tasks_the_latest_are_screened(monkeypatch):
    lesson = small_lesson("classification", count=24)
    method = small_method(lesson, "tss+")
    monkeypatch.setattr("tss.methods.plus.LATEST", 3)
    monkeypatch.setattr("tss.methods.plus.unfitness", lambda lesson, split, added: 0.0)
    kinds = ["classification", "tagging"] * 5
    method.earlier = [stored(method, f"old {i}", kind) for i, kind in enumerate(kinds)]
    assert [earlier.name for earlier, _ in method._screen(lesson)] == ["old 4", "old 6", "old 8"]


def test_an_inherited_start_has_the_parents_gates_and_fresh_sizes(monkeypatch):
    lesson = small_lesson("classification", count=24)
    method = small_method(lesson, "tss+", sticky=3.0)
    method.earlier = [stored(method)]
    monkeypatch.setattr(method, "_race", lambda lesson, starts, train: starts[1])
    method.begin(lesson, inner)
    parent = method.earlier[0].read()
    fresh = small_method(lesson, "supsup")
    fresh.begin(lesson, inner)
    assert torch.equal(method.kept().gates, parent.kept.gates)
    assert torch.allclose(method.scores.abs(), 3.0 * fresh.scores.abs())
    assert method.parent == "old" and method.facts()["flips"] == 0.0


def test_the_race_is_won_by_the_smallest_loss_and_leaves_the_head_as_it_was():
    lesson = small_lesson("classification", count=24)
    method = small_method(lesson, "tss+")
    losses = iter([0.5, 0.9, 0.2])
    seen = []

    def race(lessons, method, **changes):
        seen.append((method.kept().gates, len(lessons[0].train), len(lessons[0].valid), changes["max_steps"]))
        return type("Out", (), {"dev_loss": next(losses)})

    method.earlier = [stored(method, "one"), stored(method, "other", share=0.9)]
    before = {k: v.clone() for k, v in lesson.head.state_dict().items()}
    known = method._screen(lesson)
    chosen = method._race(lesson, [None, *known], race)
    assert chosen is known[1] and len(seen) == 3
    assert all((train_rows, steps) == (18, 40) for _, train_rows, _, steps in seen)  # a quarter is held out
    assert all(valid == 6 + 6 for _, _, valid, _ in seen)
    assert all(torch.equal(v, before[k]) for k, v in lesson.head.state_dict().items())


def test_only_tasks_of_the_kind_race_and_damaged_ones_are_left_out():
    lesson = small_lesson("tagging", count=24)
    method = small_method(lesson, "tss+")

    def broken():
        raise DamagedError("bad file")

    labels = ("O", "B-PER", "I-PER")
    method.earlier = [
        stored(method, "text"),
        Earlier("bad", "tagging", broken),
        stored(method, "tags", "tagging", labels),
    ]
    assert [earlier.name for earlier, _ in method._screen(lesson)] == ["tags"]


def test_the_head_inherits_rows_of_labels_with_the_same_name():
    lesson = small_lesson("tagging")
    before = lesson.head.outer.weight.detach().clone()
    rows = torch.arange(2.0)[:, None].expand(2, before.shape[1]) + 5
    head = {"outer.weight": rows, "outer.bias": torch.tensor([1.0, 2.0])}
    inherit_head(lesson, Remembered(Kept(), head, ("B-LOC", "B-PER")))
    where = lesson.kind.labels.index("B-PER")
    assert torch.equal(lesson.head.outer.weight[where], head["outer.weight"][1])
    assert lesson.head.outer.bias[where].item() == 2.0
    others = [i for i in range(len(before)) if i != where]
    assert torch.equal(lesson.head.outer.weight[others], before[others])


def test_a_store_of_inherited_tasks_never_changes_and_names_parents(tmp_path):
    learner = Learner.open(tmp_path, backbone=str(tiny_path("bart")), method="tss+", config=QUICK)
    answers = {}
    for i, kind in enumerate(["generation", "tagging", "generation", "classification", "generation"]):
        task = small_task(kind, 24, name=f"{kind}{i}", seed=i)
        learner.learn(task)
        answers[task.name] = (task, learner.predict(task.name, [e.input for e in task.test]))
    assert all(learner.predict(n, [e.input for e in task.test]) == told for n, (task, told) in answers.items())
    assert all(check.status == "equal" for check in learner.verify())


def test_signed_weights_have_their_own_size_which_a_wider_backbone_has_less_of():
    method = small_method(small_lesson("tagging"), "tss+", signed_std=0.0, adapter_std=0.02)
    assert method.signed_std == 0.05 * (288 / method.bank.width) ** 0.5
    mine = method.bank.fixed(method.signed_std)
    torch.testing.assert_close(mine, method.bank.fixed() * (method.signed_std / method.bank.config.adapter_std))
    method.begin(small_lesson("tagging", count=24), inner)
    assert torch.equal(method.base, mine) and method.signed
    method.begin(small_lesson("classification", count=24), inner)
    assert torch.equal(method.base, method.fixed) and not method.signed
    told = small_method(small_lesson("tagging"), "tss+", signed_std=0.02, adapter_std=0.02)
    told.begin(small_lesson("tagging", count=24), inner)
    assert torch.equal(told.base, told.fixed)  # the same size as the others'
    wide = small_method(small_lesson("tagging"), "tss+", bottleneck=128, even=True)
    assert wide.signed_std == pytest.approx(method.signed_std * 0.5**0.25)


def test_tasks_signed_at_different_sizes_are_opened_one_by_one():
    method = small_method(small_lesson("tagging"), "tss+")
    gates = torch.ones(2, method.bank.size, dtype=torch.bool)
    marks = [{"signed": torch.tensor(std, dtype=torch.float64)} for std in (0.1, 0.2)]
    assert method.opened(gates, marks) is None
    assert torch.equal(method.opened(gates, [marks[0], {}])[0], method.bank.fixed(0.1))
    assert torch.equal(method.opened(gates, [marks[0], {}])[1], method.fixed)


def test_closed_gates_turn_signs_in_tasks_of_the_kinds_named(tmp_path):
    """Tags and texts unless told otherwise; it is kept with the task, whatever the options of who reads it."""
    learner = Learner.open(tmp_path / "a", backbone=str(tiny_path("bart")), method="tss+", config=QUICK)
    fixed = learner.method.bank.fixed(learner.method.signed_std).abs()
    for kind, signed in (("classification", False), ("tagging", True), ("generation", True)):
        task = small_task(kind, 24, name=kind)
        learner.learn(task)
        weights = learner.ready(kind).added.adapters.weights
        assert torch.equal(weights.abs(), fixed) is signed and bool((weights == 0).any()) is not signed
        inputs = [e.input for e in task.test]
        again = Learner.open(tmp_path / "a").predict(kind, inputs)
        assert again == learner.predict(kind, inputs)
    assert all(check.status == "equal" for check in learner.verify())
    plain = Learner.open(tmp_path / "b", backbone=str(tiny_path("bart")), method="tss+", config={**QUICK, "signed": ""})
    learner.export("tagging", tmp_path / "tagging.task")
    plain.import_(tmp_path / "tagging.task")
    inputs = [e.input for e in small_task("tagging", 24, name="tagging").test]
    assert plain.predict("tagging", inputs) == learner.predict("tagging", inputs)


@pytest.mark.parametrize(
    "bad", [{"sticky": 0.0}, {"rivals": -1}, {"race_steps": 0}, {"signed": "texts"}, {"signed_std": -1.0}]
)
def test_bad_options_are_refused(bad):
    with pytest.raises(ConfigError):
        PlusConfig(**bad)
