"""CAT: HAT where nothing is similar; its similarity test, what it opens, its second path and how that answers."""

from __future__ import annotations

from copy import copy
from math import sqrt
from pathlib import Path

import pytest
import torch
from shared_checks import answers, assert_same_bits, open_learner, state
from small_lessons import small_lesson, small_method
from tiny import tiny_path
from toy_tasks import toy

from tss import Learner
from tss.backbones.backbone import Pass, hash_tensors
from tss.config import resolve
from tss.errors import ConfigError
from tss.learning.loop import train as loop
from tss.learning.schedule import LearningConfig
from tss.methods import cat
from tss.methods.attention import HEADS, attend, first_values, inner_width
from tss.methods.cat import first_claims
from tss.methods.method import Kept
from tss.methods.similarity import Remembered, reference_score, transfer_score

KINDS = ("pair", "tagging", "generation")
FEW = LearningConfig(max_steps=4, batch_size=4, eval_steps=2)


def train(lessons, method, **changed):
    return loop(lessons, method, LearningConfig(**{**FEW.__dict__, **changed}))


def scores(monkeypatch: pytest.MonkeyPatch, similar: bool) -> None:
    """Every earlier task is similar, or none."""
    monkeypatch.setattr(cat, "reference_score", lambda *rest: 0.0)
    monkeypatch.setattr(cat, "transfer_score", lambda *rest: 1.0 if similar else 0.0)  # equal is not similar


def test_with_no_similar_task_it_is_hat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    scores(monkeypatch, similar=False)
    learners = [open_learner(tmp_path / name, tiny_path("bart"), name, max_steps=4) for name in ("hat", "cat")]
    for kind in KINDS:
        for learner in learners:
            learner.learn(toy(kind))
        hat, found = (state(learner, f"toy {kind}") for learner in learners)
        more = found.pop("shared masks")
        attention = {name for name in found if name.startswith("shared attention.")}
        assert_same_bits(hat, {name: tensor for name, tensor in found.items() if name not in attention})
        assert torch.equal(more.amax(dim=0), hat["shared used"])
    assert len(more) == len(KINDS)


def taught(kind: str, steps: int = 60):
    """A CAT that learnt one task well, and the task."""
    lesson = small_lesson(kind, count=24)
    method = small_method(lesson, "cat", adapter_lr=1e-2, hat_smax=4.0, hat_binary=True)
    method.load_shared({})
    method.begin(lesson, train)
    loop([lesson], method, LearningConfig(max_steps=steps, batch_size=8, eval_steps=20, head_lr=3e-2))
    method.end(lesson)
    return method, lesson


def spoilt(method) -> torch.Tensor:
    """The mask of a sub-network whose last site says the same whatever comes in, through units nobody else has open."""
    mask = torch.zeros(method.layers.units)
    closed, last = (t.view(method.bank.count, -1)[-1] for t in (1.0 - method.masks[0], mask))
    assert closed.sum() > 4
    last.copy_(closed)
    with torch.no_grad():
        method.biases.view(method.bank.count, -1)[-1] += closed * torch.linspace(-1e4, 1e4, len(closed))
    return mask


@pytest.mark.parametrize("epochs", [0, 10])
def test_the_similarity_test_on_a_constructed_pair(epochs: int):
    """Of two sub-networks one has learnt the very task, the other destroys what it is given: similar, dissimilar."""
    method, lesson = taught("generation")
    again = copy(lesson)
    again.name, again.seed_key = "again", "0/again"
    weights = method.weights.detach().clone()
    head, backbone = hash_tensors(lesson.head.state_dict()), hash_tensors(method.frozen())
    reference = reference_score(method, again, train)
    learnt = transfer_score(method, method.masks[0], again, train, epochs)
    destroyed = transfer_score(method, spoilt(method), again, train, epochs)
    assert destroyed < reference < learnt < 0.0  # minus dev losses
    assert torch.equal(weights, method.weights)
    assert (head, backbone) == (hash_tensors(lesson.head.state_dict()), hash_tensors(method.frozen()))


def test_the_similar_and_only_they_are_found():
    method, lesson = taught("generation")
    again = copy(lesson)
    again.name, again.seed_key = "again", "0/again"
    method.masks = torch.cat([spoilt(method)[None], method.masks])
    method.begin(again, train)
    facts = method.facts()
    assert facts["best_transfer_dev"] > facts["reference_dev"]
    assert method.similar == [1] and facts["similar_tasks"] == 1.0


def test_a_head_is_the_readout_of_a_task_that_has_one():
    method, lesson = taught("classification")
    lesson.valid = lesson.train  # six examples more would be too few

    def longer(lessons, method, **changed):
        return train(lessons, method, max_steps=40, head_lr=3e-2, **changed)

    learnt = transfer_score(method, method.masks[0], lesson, longer, 40)
    destroyed = transfer_score(method, spoilt(method), lesson, longer)
    assert 0.0 <= destroyed < learnt <= 100.0


@pytest.mark.parametrize("kind", ["classification", "tagging"])
def test_remembered_states_are_the_states(kind: str):
    lesson = small_lesson(kind)
    added = Pass()
    remembered = Remembered(lesson, added)
    (whole,) = lesson.batches([*lesson.train.rows, *lesson.valid.rows], 256)  # as they are computed
    plain = lesson.backbone.states(whole.ids, whole.mask, added) * whole.mask[..., None]
    wanted = remembered.head(lesson.kind.features(lesson.backbone, plain, whole))
    (batch,) = remembered.batches([*lesson.train.rows, *lesson.valid.rows], 256)
    assert torch.equal(remembered.logits(batch, added), wanted)
    few = remembered.table(remembered.train).batch([3, 0, 5])
    apart = lesson.batch([lesson.train.rows[i] for i in (3, 0, 5)])
    plain = lesson.backbone.states(apart.ids, apart.mask, added) * apart.mask[..., None]
    wanted = remembered.head(lesson.kind.features(lesson.backbone, plain, apart))
    found = remembered.logits(few, added)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    lesson.backbone.model.get_decoder().layers[0].fc1.weight.data.mul_(2.0)
    assert torch.equal(remembered.logits(few, added), found)  # not computed again


@pytest.mark.parametrize(("opening", "blocked"), [("similar", [0.9, 0.8, 0.3]), ("code", [0.4, 0.8, 0.0])])
def test_what_is_blocked_by_hand(opening: str, blocked: list[float]):
    """Tasks 0 and 2 are dissimilar, 1 similar. `code` counts for a task only what it added to m_acc."""
    lesson = small_lesson("classification")
    method = small_method(lesson, "cat", cat_open=opening)
    masks = torch.zeros(3, method.layers.units)
    masks[:, :3] = torch.tensor([[0.2, 0.8, 0.0], [0.7, 0.1, 0.5], [0.9, 0.6, 0.3]])
    method.masks, method.similar = masks, [1]
    assert method._blocked()[:3].tolist() == pytest.approx(blocked)
    torch.testing.assert_close(first_claims(masks).sum(dim=0), masks.amax(dim=0))
    method.similar = [0, 1, 2]
    assert method._blocked().sum() == 0.0


def test_attention_by_hand():
    width, size = 16, inner_width(16) // HEADS
    weights = {name: w.double() for name, w in first_values(width, "test").items()}
    generator = torch.Generator().manual_seed(0)
    task, states = torch.randn(width, generator=generator).double(), torch.randn(3, 1, 1, width, generator=generator)
    f = states[:, 0, 0].double()
    query, mixed = weights["query"] @ task.clamp(min=0), []
    for head in range(HEADS):
        rows = slice(head * size, (head + 1) * size)
        share = torch.stack([query[rows] @ (weights["key"][rows] @ one) / sqrt(size) for one in f]).softmax(dim=0)
        mixed += sum(a * (weights["value"][rows] @ one) for a, one in zip(share, f, strict=True)).tolist()
    y = f[0] + weights["out"] @ torch.tensor(mixed).double()
    normed = (y - y.mean()) / (y.var(unbiased=False) + 1e-5).sqrt()
    wanted = y + weights["second"] @ (weights["first"] @ normed).clamp(min=0)
    found = attend({name: w.float() for name, w in weights.items()}, task.float(), states)[0, 0]
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-5)


def second_path(kind: str):
    """A pass over the second path of a task with two similar ones, each adapter far from the others."""
    lesson = small_lesson(kind)
    method = small_method(lesson, "cat", hat_smax=4.0)
    method.begin(lesson, train)
    with torch.no_grad():
        method.weights.mul_(40.0)
    method.masks = (torch.rand(2, method.layers.units, generator=torch.Generator().manual_seed(0)) > 0.5).float()
    method._set_attention(first_values(16, "test"))
    mask, query = method.mask().detach(), torch.ones(16)
    return (
        method,
        lesson,
        mask,
        query,
        method.recall(Kept(tensors={"mask": mask, "query": query, "similar": torch.arange(2)})),
    )


@torch.no_grad()
def test_copies_are_the_masks_one_by_one():
    method, lesson, mask, query, added = second_path("classification")
    batch = lesson.batch(lesson.train.rows[:3])
    each = [method._masked(one) for one in (mask, *method.masks)]
    states = torch.stack([lesson.backbone.states(batch.ids, batch.mask, one) for one in each])
    assert not torch.allclose(states[0], states[1])
    wanted = attend(method.attention, query, states)
    torch.testing.assert_close(lesson.backbone.states(batch.ids, batch.mask, added), wanted, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_cached_decoding_keeps_a_cache_for_every_mask():
    """Greedy decoding equals asking for the logits of every prefix anew; beams give one answer a row."""
    _, lesson, _, _, added = second_path("generation")
    backbone = lesson.backbone
    batch = lesson.batch(lesson.train.rows[:3])
    limits = {"max_tokens": 6, "min_tokens": 6, "no_repeat": 0}
    found = backbone.generate(batch.ids, batch.mask, added, beams=1, **limits)
    for row, words in enumerate(found):
        ids, mask = batch.ids[row : row + 1], batch.mask[row : row + 1]
        target = torch.full((1, 6), backbone.text.pad)
        for place in range(6):
            logits = backbone.target_logits(ids, mask, target, added)[0, place]
            logits[backbone.text.end] = -torch.inf
            target[0, place] = logits.argmax()
        assert words == backbone.text.plain(target[0].tolist())
    assert len(backbone.generate(batch.ids, batch.mask, added, beams=3, **limits)) == 3


@pytest.mark.parametrize("kind", ["pair", "tagging", "generation"])
def test_a_task_that_answers_over_the_second_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str):
    scores(monkeypatch, similar=True)
    learner = open_learner(tmp_path / "store", tiny_path("bart"), "cat", max_steps=4)
    learner.learn(toy(kind))
    before = learner.store.read_shared()
    ranks = iter([(1.0, 0.0), (0.0, 0.0)])  # of the second path, of HAT's
    monkeypatch.setattr(cat, "dev_score", lambda *rest: next(ranks))
    task = toy(kind, "the second", turned=True)
    facts = learner.learn(task).facts
    assert facts["attends"] == facts["similar_tasks"] == 1.0
    kept = learner.store.read("the second").tensors
    assert kept["method.similar"].tolist() == [0] and kept["method.query"].shape == (16,)
    assert learner.method.query.requires_grad and not torch.equal(before["weights"], learner.method.weights)
    for name, first in first_values(16, "cat/0").items():
        assert not torch.equal(learner.store.read_shared()[f"attention.{name}"], first), name  # all of it learns
    again = Learner.open(tmp_path / "store", device="cpu")
    assert answers(again, task) == answers(learner, task)
    assert [check.status for check in again.verify(["the second"])] == ["equal"]


def test_features_of_similar_tasks_get_no_gradient(monkeypatch: pytest.MonkeyPatch):
    method, lesson, *_ = second_path("classification")
    scores(monkeypatch, similar=True)
    method.begin(lesson, train)
    rows: list[int] = []
    run = lesson.backbone._states
    monkeypatch.setattr(
        lesson.backbone,
        "_states",
        lambda added, ids, mask: rows.append((len(ids), torch.is_grad_enabled())) or run(added, ids, mask),
    )
    method.loss(lesson, lesson.batch(lesson.train.rows[:3])).backward()
    assert rows == [(3, True), (6, False), (3, True)]  # HAT's path; two similar tasks; the second path
    assert method.query.grad is not None and method.weights.grad is not None


def test_presets_are_as_published_without_the_shortcut():
    assert [resolve("cat", preset).method.cat_probe for preset in ("recommended", "paper", "code")] == [
        "cached",
        "full",
        "full",
    ]
    assert resolve("cat", "code").method.cat_open == "code" and resolve("cat", "code").method.hat_plugin


@pytest.mark.parametrize("bad", [{"cat_open": "all"}, {"cat_probe": "none"}, {"cat_probe_epochs": 0}, {"cat_lr": 0.0}])
def test_bad_options_are_refused(bad: dict):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        resolve("cat", given=bad)
