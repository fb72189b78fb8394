"""A second reading: another task's sub-network through a head fitted to the task."""

from __future__ import annotations

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from small_lessons import small_lesson, small_method, small_task
from tiny import tiny_path

from tss.backbones.backbone import Pass
from tss.learner import Learner
from tss.methods.method import Kept, Remembered
from tss.methods.reading import features, fitted, folds, helps, readable, regression
from tss.tasks.lesson import Split

QUICK = {"max_steps": 8, "bottleneck": 4, "adapter_std": 0.5, "race_steps": 2, "eval_steps": 4, "second": True}


def drawn(rows: int, width: int = 6, labels: int = 3):
    generator = torch.Generator().manual_seed(0)
    x = 3 + 2 * torch.randn(rows, width, generator=generator, dtype=torch.float64)
    return x, (x[:, :labels] + torch.randn(rows, labels, generator=generator)).argmax(1)


@pytest.mark.parametrize("strength", [1e-2, 1.0])
def test_the_fit_near_zero_is_logistic_regression(strength):
    x, y = drawn(80)
    weight, bias = regression(x, y, (torch.zeros(3, 6).double(), torch.zeros(3).double()), strength)
    mean, spread = x.mean(0), x.std(0)
    peer = LogisticRegression(C=strength, tol=1e-8, max_iter=1000).fit(((x - mean) / spread).numpy(), y.numpy())
    ours = torch.nn.functional.linear(x, weight, bias).softmax(-1)
    theirs = torch.from_numpy(peer.predict_proba(((x - mean) / spread).numpy()))
    torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=0)


def test_the_fewer_its_freedom_the_nearer_a_fit_stays_to_the_other_head():
    x, y = drawn(80)
    near = torch.randn(3, 6, generator=torch.Generator().manual_seed(1)).double(), torch.zeros(3).double()
    apart = [float((regression(x, y, near, strength)[0] - near[0]).norm()) for strength in (1e-9, 1e-3, 1.0)]
    assert apart[0] < 1e-4 < apart[1] < apart[2]


def test_rows_of_one_text_are_left_out_together():
    rows = small_lesson("classification", count=24).train.rows
    fold = folds([*rows, *rows])
    assert torch.equal(fold[: len(rows)], fold[len(rows) :]) and len(fold.unique()) == 5


def test_a_head_is_fitted_for_linear_heads_and_one_label_a_row():
    assert readable(small_lesson("classification"))
    assert not readable(small_lesson("tagging")) and not readable(small_lesson("generation"))


def test_what_is_fitted_reads_better_than_chance_and_starts_from_heads_with_the_same_labels():
    lesson = small_lesson("classification", count=24)
    method = small_method(lesson, "tss+")
    added = Pass(method.bank.functions(method.fixed))
    head = {k: v.detach().clone() for k, v in lesson.head.state_dict().items()}
    there = Remembered(Kept(), head, tuple(lesson.kind.labels))
    elsewhere = Remembered(Kept(), head, tuple(f"other {label}" for label in lesson.kind.labels))
    for theirs in (there, elsewhere):
        member, left_out = fitted(lesson, theirs, added)
        x = features(lesson, lesson.train.rows, added).float()
        target = lesson.batch(lesson.train.rows).target
        assert torch.nn.functional.cross_entropy(member.head(x), target) < torch.log(torch.tensor(2.0))
        assert member.own and left_out > 0
        assert torch.equal(fitted(lesson, theirs, added)[0].head.outer.weight, member.head.outer.weight)


def test_it_helps_only_where_the_dev_loss_gets_smaller():
    lesson = small_lesson("classification", count=24)
    method = small_method(lesson, "tss+")
    added = Pass(method.bank.functions(method.fixed))
    theirs = Remembered(Kept(), {k: v for k, v in lesson.head.state_dict().items()}, tuple(lesson.kind.labels))
    member, _ = fitted(lesson, theirs, added)
    first = [i for i, row in enumerate(lesson.valid.rows) if row.target[0] == 0]
    lesson.valid = Split([lesson.valid.rows[i] for i in first], [lesson.valid.gold[i] for i in first])
    with torch.no_grad():
        for head in (lesson.head, member.head):  # each says the same of every row
            head.outer.weight.zero_()
            head.outer.bias.zero_()
        assert first and not helps(lesson, added, member)  # the same as alone
        member.head.outer.bias[0] = 1.0
        assert helps(lesson, added, member)
        member.head.outer.bias[0] = -1.0
        assert not helps(lesson, added, member)


@pytest.fixture
def welcome(monkeypatch):
    """A second reading is taken whether it helps or not."""
    import tss.methods.plus as plus

    monkeypatch.setattr(plus, "helps", lambda lesson, own, member: True)


def test_a_second_reading_is_kept_with_the_task_and_answers_again(tmp_path, welcome):
    learner = Learner.open(tmp_path, backbone=str(tiny_path("bart")), method="tss+", config=QUICK)
    tasks = [small_task("classification", 24, name=f"task {i}", seed=i) for i in range(3)]
    told = [learner.learn(task) for task in [*tasks, small_task("tagging", 24, name="tags")]]
    assert [one.facts["members"] for one in told] == [0.0, 1.0, 1.0, 0.0]
    asked = [example.input for example in tasks[2].test]
    before = learner.predict("task 2", asked, details=True)
    again = Learner.open(tmp_path)
    assert again.predict("task 2", asked, details=True) == before
    (member,) = again.ready("task 2").lesson.company
    assert member.own and not torch.equal(member.head.outer.weight, again.ready("task 2").lesson.head.outer.weight)
    ready = again.ready("task 2")
    batch = ready.lesson.batch([ready.lesson.kind.input_row(again.backbone, one) for one in asked])
    with torch.no_grad():
        both = ready.lesson.logits(batch, ready.added).exp()
        ready.lesson.company = ()
        alone = ready.lesson.logits(batch, ready.added).softmax(-1)
        other = ready.lesson.asked(member, batch).softmax(-1)
    torch.testing.assert_close(both, (alone + other) / 2)
    assert all(check.status == "equal" for check in again.verify())
    assert [len(info.beside) for info in again.tasks()] == [0, 1, 1, 0]
    assert again.tasks()[1].beside == ("task 0",)
    again.export("task 2", tmp_path / "carried")
    other = Learner.open(tmp_path / "other", backbone=str(tiny_path("bart")), method="tss+", config=QUICK)
    other.import_(tmp_path / "carried")
    assert other.predict("task 2", asked, details=True) == before
    assert again.revisit() == []


def test_a_second_reading_changes_nothing_of_the_task_itself(tmp_path, welcome):
    stores = {}
    for second in (True, False):
        learner = Learner.open(
            tmp_path / str(second), backbone=str(tiny_path("bart")), method="tss+", config={**QUICK, "second": second}
        )
        for i in range(2):
            learner.learn(small_task("classification", 24, name=f"task {i}", seed=i))
        stores[second] = learner.store.read("task 1")
    assert torch.equal(stores[True].gates, stores[False].gates)
    assert torch.equal(stores[True].tensors["head.outer.weight"], stores[False].tensors["head.outer.weight"])
    extra = set(stores[True].tensors) - set(stores[False].tensors)
    assert extra == {"beside.0.outer.weight", "beside.0.outer.bias"}
