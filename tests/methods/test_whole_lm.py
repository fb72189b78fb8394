"""ONE, NCL and MTL on the whole LM: everything is trained, in a copy, and the backbone stays as it came."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from shared_checks import Interrupted, answers, assert_same_bits, open_learner, state
from small_lessons import small_lesson, small_method
from tiny import tiny_loaded, tiny_path
from toy_tasks import toy

from tss import Learner
from tss.backbones.backbone import Pass
from tss.errors import ConfigError, TaskError
from tss.learning.loop import train
from tss.learning.schedule import LearningConfig
from tss.methods import method_class

WHOLE = ("one", "ncl", "mtl", "ewc", "das")
SHORT = {"max_steps": 4, "eval_steps": 2}


def kept(learner: Learner, name: str) -> dict[str, torch.Tensor]:
    """What a task left behind, without the state all tasks share."""
    return {key: value for key, value in state(learner, name).items() if not key.startswith("shared")}


@pytest.mark.parametrize("family", ["bart", "t5", "bert", "gpt2"])
def test_stand_ins_reach_every_place_of_a_tied_weight_and_leave_no_trace(family: str):
    backbone = tiny_loaded(family)
    before, others = backbone.fingerprint(), dict(backbone.model.named_parameters())
    ids = torch.tensor([[0, 30, 40, 2]])
    mask = torch.ones_like(ids)
    zeros = Pass(parameters={name: torch.zeros_like(p) for name, p in others.items()})
    with backbone.using(zeros):
        assert all(not p.any() for p in backbone.model.state_dict().values() if p.is_floating_point())
    same = Pass(parameters={name: p.clone() for name, p in others.items()})
    assert torch.equal(backbone.states(ids, mask, same), backbone.states(ids, mask, Pass()))
    assert not torch.equal(backbone.states(ids, mask, zeros), backbone.states(ids, mask, Pass()))
    with pytest.raises(Interrupted), backbone.using(zeros):
        raise Interrupted
    assert backbone.fingerprint() == before
    assert all(p is others[name] for name, p in backbone.model.named_parameters())


@pytest.mark.parametrize("family", ["bart", "gpt2"])
def test_generation_speaks_with_the_stand_ins(family: str):
    backbone = tiny_loaded(family)
    ids = torch.tensor([[0, 30, 40, 2]])
    limits = {"max_tokens": 6, "min_tokens": 6, "beams": 1}
    other = {name: torch.randn_like(p) * 0.3 for name, p in backbone.model.named_parameters()}
    spoken = backbone.generate(ids, torch.ones_like(ids), Pass(parameters=other), **limits)
    own = backbone.generate(ids, torch.ones_like(ids), Pass(), **limits)
    with torch.no_grad():
        for name, p in backbone.model.named_parameters():
            p.copy_(other[name])
    assert backbone.generate(ids, torch.ones_like(ids), Pass(), **limits) == spoken != own


def test_everything_is_trained():
    """Embeddings, norms, positions, attention, feed-forward: all of it moves, and the backbone none of it."""
    lesson = small_lesson("generation")
    before = lesson.backbone.fingerprint()
    method = small_method(lesson, "ncl")
    method.begin(lesson, train)
    assert method.config.lm_lr == 5e-5
    assert sum(p.numel() for p in method.groups()[0].parameters) == lesson.backbone.model.num_parameters()
    train([lesson], method, LearningConfig(max_steps=2, select="last"))
    own = dict(lesson.backbone.model.named_parameters())
    still = [name for name, p in method.weights.items() if torch.equal(p, own[name])]
    assert still == [] and own.keys() == method.weights.keys()
    assert lesson.backbone.fingerprint() == before


def test_one_starts_from_the_pretrained_lm_and_keeps_a_whole_one(tmp_path: Path):
    orders = {"there": ["pair", "generation"], "back": ["generation", "pair"]}
    learners = {}
    for way, kinds in orders.items():
        learners[way] = open_learner(tmp_path / way, tiny_path("bart"), "one", **SHORT)
        learned = [learners[way].learn(toy(kind)) for kind in kinds]
    assert all(one.bytes > 4 * learners["back"].method.size for one in learned)
    for kind in orders["there"]:
        assert_same_bits(kept(learners["there"], f"toy {kind}"), kept(learners["back"], f"toy {kind}"))
    again = Learner.open(tmp_path / "there", device="cpu")
    assert [check.status for check in again.verify()] == ["equal", "equal"]


def test_ncl_forgets_and_is_found_again_as_it_was_left(tmp_path: Path):
    learner = open_learner(tmp_path / "store", tiny_path("bart"), "ncl")
    first, second = toy("classification"), toy("generation", turned=True)
    learner.learn(first)
    assert learner.verify()[0].status == "equal"
    then = answers(learner, first)
    learner.learn(second)
    assert {check.name: check.status for check in learner.verify()} == {first.name: "changed", second.name: "equal"}
    assert answers(learner, first) != then
    again = Learner.open(tmp_path / "store", device="cpu")
    assert answers(again, first) == answers(learner, first)
    assert answers(again, second) == answers(learner, second)
    assert again.backbone.fingerprint() == learner.store.index().identity["backbone_hash"]


def test_a_backbone_can_be_used_again_after_ncl(tmp_path: Path):
    """Two stores share one backbone in memory; what one trains never shows in the other."""
    used = open_learner(tmp_path / "used", tiny_path("bart"), "ncl", **SHORT)
    used.learn(toy("pair"))
    after, fresh = (open_learner(tmp_path / name, tiny_path("bart"), "one", **SHORT) for name in ("after", "fresh"))
    after.backbone = used.backbone
    for learner in (after, fresh):
        learner.learn(toy("generation"))
    assert_same_bits(state(after, "toy generation"), state(fresh, "toy generation"))
    assert after.store.index().identity == fresh.store.index().identity


def test_an_interrupted_task_does_not_show_in_the_answers(tmp_path: Path):
    learner = open_learner(tmp_path / "store", tiny_path("bart"), "ncl")
    learner.learn(toy("pair"))
    then = answers(learner, toy("pair"))

    def stop(progress) -> None:
        if progress.step == 3:
            raise Interrupted

    with pytest.raises(Interrupted):
        learner.learn(toy("generation"), progress=stop)
    assert answers(learner, toy("pair")) == then


def test_mtl_learns_together_once(tmp_path: Path):
    tasks = [toy("classification"), toy("tagging"), toy("generation")]
    learner = open_learner(tmp_path / "store", tiny_path("bart"), "mtl", **SHORT)
    with pytest.raises(TaskError, match="learn_together"):
        learner.learn(tasks[0])
    learned = learner.learn_together(tasks)
    assert {one.steps for one in learned} == {len(tasks) * SHORT["max_steps"]}  # the limit is of one task
    assert learner.store.read_shared().keys() == {f"lm.{name}" for name in learner.method.weights}
    again = Learner.open(tmp_path / "store", device="cpu")
    assert [check.status for check in again.verify()] == ["equal"] * 3
    with pytest.raises(TaskError, match="together, once"):
        again.learn_together([toy("pair")])
    assert [check.status for check in again.verify()] == ["equal"] * 3


@pytest.mark.parametrize("method", ["mtl", "ewc", "das"])
def test_in_bfloat16_the_weights_stay_float32(tmp_path: Path, method: str):
    learner = open_learner(tmp_path / "store", tiny_path("bart"), method, precision="bfloat16", max_steps=2)
    learner.learn_together([toy("pair")]) if learner.method.joint else learner.learn(toy("pair"))
    assert learner.backbone.autocast == torch.bfloat16 and learner.backbone.model.dtype == torch.float32
    found = {v.dtype for v in state(learner, "toy pair").values() if v.is_floating_point()}
    assert found == {torch.float32}
    ids = torch.tensor([[0, 30, 40, 2]])
    seen = learner.backbone.states(ids, torch.ones_like(ids), Pass())
    with learner.backbone.full_precision():
        exact = learner.backbone.states(ids, torch.ones_like(ids), Pass())
    assert not torch.equal(seen.float(), exact) and torch.allclose(seen.float(), exact, atol=0.3)
    assert Learner.open(tmp_path / "store", device="cpu").verify()[0].status == "equal"


@pytest.mark.parametrize("family", ["mbart", "t5", "roberta", "gpt2"])
def test_ewc_on_other_families(tmp_path: Path, family: str):
    learner = open_learner(tmp_path / "store", tiny_path(family), "ewc", max_steps=2)
    kinds = ["pair", "tagging"] if family == "roberta" else ["pair", "generation"]
    for kind in kinds:
        learner.learn(toy(kind))
    again = Learner.open(tmp_path / "store", device="cpu")
    assert again.verify([f"toy {kinds[1]}"])[0].status == "equal"


@pytest.mark.parametrize("method", WHOLE)
def test_a_rate_must_be_above_zero(method: str):
    with pytest.raises(ConfigError, match="lm_lr"):
        method_class(method).Config(lm_lr=0.0)
