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
    assert [earlier.name for earlier, _ in method._known(lesson)] == [f"old {i}" for i in range(0, 10, 2)]


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


def sentiment(name, rows):
    from tss.tasks.task import Task

    return Task.from_lists(name, "classification", rows, rows[:8], rows[:8])


WORDS = ["fine", "fair", "dull", "poor", "warm", "cold", "kind", "rude"]
GOOD = {"fine", "fair", "warm", "kind"}


def rows_of(words):
    return [(f"a {one} {two}", "good" if one in GOOD else "bad") for one in words for two in ("day", "book", "meal")]


def in_company(path, **changes):
    config = {**QUICK, "max_steps": 30, "company": 2, "head_lr": 3e-2, **changes}
    learner = Learner.open(path, method="tss+", backbone=str(tiny_path("bart")), device="cpu", config=config)
    for i, words in enumerate((WORDS, WORDS[2:], WORDS[:6])):
        learner.learn(sentiment(f"task {i}", rows_of(words)))
    return learner


def chances_alone(path, names, text):
    """What each task's own sub-network and head say, whatever its company."""
    learner, chances = Learner.open(path, device="cpu"), []
    for name in names:
        ready = learner.ready(name)
        ready.lesson.company = ()
        batch = ready.lesson.batch([ready.lesson.kind.input_row(learner.backbone, (one,)) for one in text])
        with torch.no_grad():
            chances.append(ready.lesson.logits(batch, ready.added).softmax(-1))
    return chances


@pytest.fixture
def asked(monkeypatch):
    """Everyone that is known is asked, whether it helps or not."""
    import tss.methods.plus as plus

    monkeypatch.setattr(plus, "invited", lambda lesson, own, guests, most: list(range(len(guests)))[:most])


def test_tasks_answer_together_with_those_that_know_their_labels(tmp_path, asked):
    learner = in_company(tmp_path / "store")
    index = learner.store.index()
    assert [[one.name for one in index.company(index.entry(f"task {i}"))] for i in range(3)] == [
        [],
        ["task 0"],
        ["task 0", "task 1"],
    ]
    text = ["a fine day", "a rude book", "a dull meal"]
    chances = chances_alone(tmp_path / "store", ("task 2", "task 0", "task 1"), text)
    both = chances[0] / 2 + (chances[1] + chances[2]) / 4
    told = learner.predict("task 2", text, details=True)
    for one, expected in zip(told, both, strict=True):
        assert one["confidence"] == pytest.approx(float(expected.max()), abs=1e-5)
    mixed = learner.predict(["task 2", "task 0", "task 2"], [text[0], text[1], text[2]], details=True)
    assert [mixed[0]["answer"], mixed[2]["answer"]] == [told[0]["answer"], told[2]["answer"]]
    assert all(check.status == "equal" for check in learner.verify())


def test_company_stays_when_its_tasks_are_removed_and_collected(tmp_path, asked):
    learner = in_company(tmp_path / "store")
    before = learner.predict("task 2", ["a fine day"], details=True)
    learner.remove("task 0")
    assert learner.gc().tasks == ()  # it is still asked
    again = Learner.open(tmp_path / "store", device="cpu")
    assert again.predict("task 2", ["a fine day"], details=True) == before
    assert [info.name for info in again.tasks()] == ["task 1", "task 2"]
    assert all(check.status == "equal" for check in again.verify())
    again.remove("task 1")
    again.remove("task 2")  # nobody asks task 0 any more
    assert {name for name, _ in again.gc().tasks} == {"task 0", "task 1", "task 2"}
    assert again.store.index().tasks == ()


def test_damage_of_one_is_told_of_those_that_ask_it(tmp_path, asked):
    learner = in_company(tmp_path / "store", rivals=0, lined="")  # no parent, whose damage would be its own
    entry = learner.store.index().entry("task 1")
    (tmp_path / "store" / entry.file).write_bytes(b"gone")
    found = learner.store.damage()
    assert set(found) == {"task 1", "task 2"} and "'task 1', which answers beside it" in found["task 2"]
    with pytest.raises(DamagedError, match="task 1"):
        Learner.open(tmp_path / "store", device="cpu").predict("task 2", ["a fine day"])
    assert Learner.open(tmp_path / "store", device="cpu").predict("task 0", ["a fine day"])


def test_a_task_takes_its_company_along(tmp_path, asked):
    """To a new store, where they stay out of use; to one that has them, where nothing comes twice; and on again."""
    learner = in_company(tmp_path / "store")
    text = ["a fine day", "a rude book"]
    wanted = learner.predict("task 2", text, details=True)
    learner.export("task 2", tmp_path / "two")
    learner.export("task 1", tmp_path / "one")
    other = Learner.open(tmp_path / "other", method="tss+", backbone=str(tiny_path("bart")), config=QUICK)
    assert other.import_(tmp_path / "two").beside == ("task 0", "task 1")
    assert [info.name for info in other.tasks()] == ["task 2"]
    assert other.predict("task 2", text, details=True) == wanted
    count = len(other.store.index().tasks)
    assert other.import_(tmp_path / "one").beside == ("task 0",)  # it is there
    assert len(other.store.index().tasks) == count + 1
    assert other.predict("task 1", text, details=True) == learner.predict("task 1", text, details=True)
    assert other.gc().tasks == () and len(other.store.index().tasks) == count + 1
    other.export("task 2", tmp_path / "again")
    third = Learner.open(tmp_path / "third", method="tss+", backbone=str(tiny_path("bart")), config=QUICK)
    third.import_(tmp_path / "again", name="task 0")  # the name of one that answers beside it
    assert third.predict("task 0", text, details=True) == wanted
    for one in (other, third):
        assert all(check.status == "equal" for check in Learner.open(one.store.path).verify())
    other.remove("task 2")
    other.remove("task 1")
    other.gc()
    assert other.store.index().tasks == ()


def test_an_import_whose_company_is_spoilt_leaves_the_store_as_it_was(tmp_path, asked):
    from dataclasses import replace

    from tss.errors import StoreError
    from tss.store import portable

    learner = in_company(tmp_path / "store")
    learner.export("task 1", tmp_path / "good")
    carried = portable.read(tmp_path / "good")
    (one,) = carried.beside
    other = Learner.open(tmp_path / "other", method="tss+", backbone=str(tiny_path("bart")), config=QUICK)
    for place, bad in enumerate(
        [
            replace(one, gates=~one.gates),
            replace(one, gates=one.gates[:-1]),
            replace(one, tensors={}),
            replace(one, meta={}),
            replace(one, meta={**one.meta, "labels": ["good"]}),
            replace(one, probes={"input.ids": torch.zeros(2)}),
        ]
    ):
        portable.write(tmp_path / f"bad {place}", replace(carried, beside=(bad,)))
        with pytest.raises(StoreError):
            other.import_(tmp_path / f"bad {place}")
        assert not other.store.index().tasks and not other.store.index().identity
    portable.write(tmp_path / "alone", replace(carried, beside=()))
    with pytest.raises(StoreError, match="otherwise"):
        other.import_(tmp_path / "alone")


def test_company_is_asked_only_where_dev_says_so():
    from tss.backbones.backbone import Pass
    from tss.methods.company import guest, invited

    lesson = small_lesson("classification", count=24)
    method = small_method(lesson, "tss+")
    one = stored(method, labels=lesson.kind.labels).read()
    gates = Pass(method.bank.functions(method.fixed))
    right, wrong = (guest(lesson, one, gates) for _ in range(2))
    gold = torch.tensor([row.target[0] for row in lesson.valid.rows])

    class Knows(torch.nn.Module):
        """A head that gives each row of the one batch the right label, or the other one; `but`: so to the first row."""

        def __init__(self, sure, but=None):
            super().__init__()
            self.sure, self.but = sure, but

        def forward(self, features):
            numbers = next(iter(lesson.batches(lesson.valid.rows, 64))).numbers
            sure = torch.full((len(numbers), 1), self.sure)
            sure[0] = self.sure if self.but is None else self.but
            return sure * torch.nn.functional.one_hot(gold[list(numbers)], len(lesson.kind.labels)).float()

    object.__setattr__(right, "head", Knows(9.0))
    object.__setattr__(wrong, "head", Knows(-9.0))
    assert invited(lesson, gates, [wrong, right], 1) == [1]
    assert invited(lesson, gates, [wrong], 1) == []
    lesson.head = Knows(0.2)  # right everywhere, hardly sure
    assert invited(lesson, gates, [right], 1) == [0]
    object.__setattr__(right, "head", Knows(9.0, but=-2.0))  # a smaller loss, but one answer less is right
    assert invited(lesson, gates, [right], 1) == []
    assert guest(lesson, Remembered(one.kept, one.head, ("other",)), gates) is None


def test_company_must_be_a_number_of_tasks():
    with pytest.raises(ConfigError, match="company is at least 0"):
        PlusConfig(company=-1)


def test_earlier_tasks_revisited_answer_together_with_later_ones_and_can_go_back(tmp_path, asked):
    learner = in_company(tmp_path / "store")
    text = ["a fine day", "a rude book"]
    before = {name: learner.predict(name, text, details=True) for name in ("task 0", "task 1", "task 2")}
    changed = learner.revisit()
    assert [(info.name, info.version) for info in changed] == [("task 0", 2), ("task 1", 2)]
    index = learner.store.index()
    together = [
        {one.name for one in (index.entry(f"task {i}"), *index.company(index.entry(f"task {i}")))} for i in range(3)
    ]
    assert together == [{"task 0", "task 1", "task 2"}] * 3
    assert learner.predict("task 2", text, details=True) == before["task 2"]
    # The same three answer for each of them now, its own counting one half.
    own, second, third = chances_alone(tmp_path / "store", ("task 0", "task 1", "task 2"), text)
    first = learner.predict("task 0", text, details=True)
    for one, expected in zip(first, own / 2 + (second + third) / 4, strict=True):
        assert one["confidence"] == pytest.approx(float(expected.max()), abs=1e-5)
    assert first != before["task 0"]
    assert all(check.status == "equal" for check in learner.verify())
    assert learner.revisit() == []
    learner.rollback("task 0")
    assert learner.predict("task 0", text, details=True) == before["task 0"]


def test_no_more_are_asked_than_a_new_task_may_ask(tmp_path, asked):
    learner = in_company(tmp_path / "store", company=1)
    assert [info.name for info in learner.revisit()] == ["task 0"]
    index = learner.store.index()
    assert [len(index.company(index.entry(f"task {i}"))) for i in range(3)] == [1, 1, 1]


def test_stores_without_company_have_nothing_to_revisit(tmp_path):
    learner = in_company(tmp_path / "store", company=0)
    assert learner.revisit() == [] and learner.store.index().next_id == 4
