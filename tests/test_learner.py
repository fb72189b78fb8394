"""`Learner` as a user meets it: learn, predict, evaluate, tasks, verify, plan, new versions."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree
from time import sleep

import pytest
import torch
from shared_checks import OPTIONS, answers, assert_same_bits, open_learner, state
from small_lessons import small_task
from tiny import tiny_path
from toy_tasks import inputs, toy

from tss import Learner, Task
from tss.learning import probes
from tss.learning.loop import Training
from tss.methods import supsup

KINDS = ("pair", "tagging", "generation")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A TSS store of three tasks; read only, tests that learn work on a copy."""
    path = tmp_path_factory.mktemp("learnt") / "store"
    learner = open_learner(path, tiny_path("bart"))
    for kind in KINDS:
        learner.learn(toy(kind))
    return path


@pytest.fixture(scope="module")
def learner(store: Path) -> Learner:
    return Learner.open(store, device="cpu")


@pytest.fixture
def copy(store: Path, tmp_path: Path) -> Path:
    return Path(copytree(store, tmp_path / "copy"))


def contents(store: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in store.rglob("*") if path.is_file() and path.name != "lock"}


def test_what_learning_tells(tmp_path: Path):
    seen = []
    learned = open_learner(tmp_path / "store", tiny_path("bart")).learn(toy("pair"), progress=seen.append)
    assert (learned.name, learned.version, learned.resumed, learned.warnings) == ("toy pair", 1, False, ())
    assert list(learned.scores) == ["macro_f1", "accuracy"] and learned.steps == OPTIONS["max_steps"]
    assert [point[0] for point in learned.curve] == [4, 8]
    assert 0.0 < learned.open_gates < 1.0 and learned.gate_bytes == 4 * 2 * 16 * 4 // 8 < learned.bytes
    steps = [one for one in seen if one.phase == "learning"]
    assert [one.step for one in steps] == list(range(1, 9)) and {one.steps for one in steps} == {8}
    assert {one.task for one in seen} == {"toy pair"} and [one.step for one in steps if one.dev is not None] == [4, 8]
    assert seen[-1].phase == "remembering"


def test_tasks_need_no_model(store: Path):
    learner = Learner.open(store, device="cpu")
    found = [(info.name, info.version, info.kind, info.labels) for info in learner.tasks()]
    assert found == [
        ("toy pair", 1, "classification", 2),
        ("toy tagging", 1, "tagging", 3),
        ("toy generation", 1, "generation", 0),
    ]
    assert all(info.bytes > info.gate_bytes > 0 and info.scores for info in learner.tasks())
    assert "backbone" not in vars(learner)


def test_a_new_store_is_of_tss_plus_and_an_old_one_stays_of_its_method(tmp_path: Path):
    assert Learner.open(tmp_path / "new", device="cpu").method.label == "TSS+"
    open_learner(tmp_path / "old", tiny_path("bart"), "tss").learn(toy("pair"))
    again = Learner.open(tmp_path / "old", device="cpu")
    assert again.method.label == "TSS" and again.learn(toy("tagging")).warnings == ()


def test_a_later_open_needs_no_settings(learner: Learner):
    assert learner.settings.backbone == str(tiny_path("bart")) and learner.settings.method == "tss"
    assert learner.config.adapter.bottleneck == OPTIONS["bottleneck"]


def test_predict_each_kind(learner: Learner):
    pair, tagging, generation = (toy(kind) for kind in KINDS)
    assert set(learner.predict(pair.name, inputs(pair))) <= {"yes", "no"}
    tags = learner.predict(tagging.name, [["John", "Smith"], "John Smith is here"])
    assert [len(one) for one in tags] == [2, 4] and {tag for one in tags for tag in one} <= set(tagging.labels)
    assert all(isinstance(text, str) for text in learner.predict(generation.name, inputs(generation)))
    assert learner.predict(pair.name, []) == []
    same = [("the film", "bad poor"), ["the film", "bad poor"], {"text": "the film", "pair": "bad poor"}]
    assert len(set(learner.predict(pair.name, same))) == 1


def test_details(learner: Learner):
    long = " ".join(["film"] * 60)
    short, cut = learner.predict("toy pair", [("the film", "good great"), (long, "good great")], details=True)
    assert short["answer"] in ("yes", "no") and 0.5 <= short["confidence"] <= 1.0
    assert not short["truncated"] and cut["truncated"]
    tags = learner.predict("toy tagging", [long.split()], details=True)[0]
    assert len(tags["answer"]) == len(tags["confidence"]) == 60 and tags["truncated"]
    assert tags["answer"][-1] == "O" and tags["confidence"][-1] == 0.0
    text = learner.predict("toy generation", ["nice film"], details=True)[0]
    assert isinstance(text["unfinished"], bool) and text["confidence"] is None


def test_many_tasks_in_one_call(learner: Learner):
    tasks = [toy(kind) for kind in KINDS]
    names = [task.name for i in range(3) for task in tasks]
    given = [inputs(task)[i] for i in range(3) for task in tasks]
    alone = [learner.predict(name, [one])[0] for name, one in zip(names, given, strict=True)]
    assert learner.predict(names, given) == alone


def test_evaluate(learner: Learner):
    task = toy("pair")
    stored = {info.name: info.scores for info in learner.tasks()}
    assert learner.evaluate(task) == stored[task.name]
    other = Task.from_lists("other", "classification", [(("the film", "bad poor"), "no")], labels=["no", "yes"])
    assert set(learner.evaluate(other, name=task.name)) == {"macro_f1", "accuracy"}
    assert learner.evaluate(toy("tagging")) == stored["toy tagging"]
    assert learner.evaluate(toy("generation")) == stored["toy generation"]


def test_verify_byte_for_byte(learner: Learner):
    seen = []
    checks = learner.verify(progress=lambda *told: seen.append(told))
    assert [(check.name, check.status, check.changed_bytes) for check in checks] == [
        (f"toy {kind}", "equal", 0) for kind in KINDS
    ]
    assert all(check.outputs > 0 and check.same_environment for check in checks)
    assert seen == [(1, 3, "toy pair"), (2, 3, "toy tagging"), (3, 3, "toy generation")]
    assert [check.name for check in learner.verify(["toy tagging"])] == ["toy tagging"]


def test_verify_with_another_number_of_threads(learner: Learner, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)  # real ones would only slow the tests down
    checks = learner.verify()
    assert all(check.status == "equal" and not check.same_environment for check in checks)
    assert all("another environment" in check.detail for check in checks)


@pytest.mark.parametrize(("moved", "elsewhere", "status"), [
    (1e-5, True, "close"), (1e-5, False, "changed"), (0.1, True, "changed"),
])  # fmt: skip
def test_the_tolerance_holds_in_another_environment_only(
    learner: Learner, monkeypatch: pytest.MonkeyPatch, moved: float, elsewhere: bool, status: str
):
    answer, here = probes.answer, probes.environment
    monkeypatch.setattr(probes, "answer", lambda *given: {k: v + moved for k, v in answer(*given).items()})
    if elsewhere:
        monkeypatch.setattr(probes, "environment", lambda *given: {**here(*given), "torch": "1.0"})
    check = learner.verify(["toy pair"])[0]
    assert (check.status, check.same_environment) == (status, not elsewhere) and check.changed_bytes > 0


def test_a_new_version_keeps_the_old_one(copy: Path):
    learner = Learner.open(copy, device="cpu", config={"max_steps": 4})
    old, old_answers = learner.store.read("toy pair"), answers(learner, toy("pair"))
    learned = learner.learn(toy("pair", turned=True), new_version=True)
    assert learned.version == 2 and learned.steps == 4
    kept = learner.store.read("toy pair", 1)
    assert torch.equal(kept.gates, old.gates) and torch.equal(
        kept.tensors["head.outer.weight"], old.tensors["head.outer.weight"]
    )
    assert {info.name: info.version for info in learner.tasks()} == {
        "toy pair": 2, "toy tagging": 1, "toy generation": 1,
    }  # fmt: skip
    assert answers(learner, toy("pair")) != old_answers
    assert {check.status for check in learner.verify()} == {"equal"}


def test_training_options_may_change_from_task_to_task(copy: Path):
    changed = {"max_steps": 2, "batch_size": 4, "head_lr": 1e-3, "head": "two-layer", "pool": "last"}
    learner = Learner.open(copy, str(tiny_path("bart")), "tss", device="cpu", config=changed, seed=0)
    assert learner.learn(toy("classification")).steps == 2
    assert {check.status for check in Learner.open(copy, device="cpu").verify()} == {"equal"}


def test_the_seed_decides(tmp_path: Path):
    gates = []
    for place, seed in (("a", 1), ("b", 1), ("c", 2)):
        learner = Learner.open(
            tmp_path / place, str(tiny_path("bart")), device="cpu", config={**OPTIONS, "max_steps": 2}, seed=seed
        )
        learner.learn(toy("pair"))
        gates.append(learner.store.read("toy pair").gates)
    assert torch.equal(gates[0], gates[1]) and not torch.equal(gates[0], gates[2])


def test_time_beside_the_training_is_told_on_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for moment in ("begin", "end"):
        usual = getattr(supsup.SupSup, moment)

        def slow(*given, usual=usual):
            sleep(0.3)
            usual(*given)

        monkeypatch.setattr(supsup.SupSup, moment, slow)
    facts = open_learner(tmp_path / "store", tiny_path("bart"), "supsup").learn(toy("pair")).facts
    assert 0.6 <= facts["seconds_beside"] < 0.6 + facts["seconds"] + 5 and facts["seconds"] > 0


def test_a_plan_changes_nothing(copy: Path, store: Path):
    before = contents(copy)
    learner = Learner.open(copy, device="cpu")
    plan = learner.plan(toy("classification"))
    assert contents(copy) == before
    assert plan["steps"] == OPTIONS["max_steps"] and plan["seconds"] >= 0 and plan["gate_bytes"] == 64
    assert plan["trainable"] == 512 + 2 * 16 + 2 and plan["head_bytes"] == 4 * 34
    unplanned = Learner.open(copytree(store, copy.parent / "unplanned"), device="cpu")
    for one in (learner, unplanned):
        one.learn(toy("classification"))
    assert_same_bits(state(learner, "toy classification"), state(unplanned, "toy classification"))


@pytest.mark.parametrize(("lined", "before"), [("", 10), ("classification", 0)])  # a line is taken without a race
def test_a_plan_counts_what_a_method_trains_before_the_task_and_trains_little_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lined: str, before: int
):
    learner = open_learner(tmp_path / "store", tiny_path("bart"), "tss+", race_steps=5, rivals=1, lined=lined)
    first = learner.plan(small_task("classification", 24, name="one"))
    learner.learn(small_task("classification", 24, name="one"))
    made: list[int] = []
    run = Training.run
    monkeypatch.setattr(Training, "run", lambda self: made.append(self.total) or run(self))
    second = learner.plan(small_task("classification", 24, name="two", seed=1))
    assert (first["steps_before"], second["steps_before"]) == (0, before)  # one stored, one fresh, five steps each
    assert second["steps"] == first["steps"] == OPTIONS["max_steps"] and max(made) == 3 and len(made) == 1 + before // 5


@pytest.mark.parametrize(("score", "what"), [(-1.0, "empty"), (1.0, "full")])
def test_an_empty_or_full_sub_network_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, score: float, what: str
):
    monkeypatch.setattr(supsup, "draw_scores", lambda bank, key: torch.full((bank.size,), score))
    learner = open_learner(tmp_path / "store", tiny_path("bart"), score_lr=1e-6, max_steps=2)
    warnings = learner.learn(toy("pair")).warnings
    assert any(f"the sub-network is {what}" in warning for warning in warnings)


def test_a_cut_input_is_warned_of(tmp_path: Path):
    rows = [(" ".join(["film"] * 60), "yes"), ("bad", "no"), ("poor", "no")]
    learner = open_learner(tmp_path / "store", tiny_path("bart"), max_steps=2)
    learned = learner.learn(Task.from_lists("long", "classification", rows, rows[1:], lengths={"max_input": 20}))
    assert any("1 of 3 training inputs were longer than 20 tokens" in warning for warning in learned.warnings)


@pytest.mark.parametrize("method", ["tss", "ncl-adapter"])
def test_two_learners_of_one_store(tmp_path: Path, method: str):
    """What one learner teaches, the other knows at once."""
    one, other = (open_learner(tmp_path / "store", tiny_path("bart"), method, max_steps=3) for _ in range(2))
    one.learn(toy("pair"))
    assert answers(other, toy("pair")) == answers(one, toy("pair"))
    other.learn(toy("tagging"))
    one.learn(toy("generation"))
    assert [info.name for info in other.tasks()] == ["toy pair", "toy tagging", "toy generation"]
    for kind in KINDS:
        assert answers(other, toy(kind)) == answers(one, toy(kind))
    assert [check.status for check in one.verify()] == [check.status for check in other.verify()]
