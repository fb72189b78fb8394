"""What must hold between methods and inside TSS, to the bit (the invariants of the method's specification)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from shared_checks import DISTINCT, answers, assert_same_bits, open_learner, state
from tiny import tiny_path
from toy_tasks import KINDS, toy

from tss import Learner
from tss.backbones.backbone import Pass
from tss.errors import TrainingError
from tss.gates import importance
from tss.gates.scores import gated
from tss.learning.loop import train
from tss.learning.schedule import LearningConfig
from tss.methods import METHODS, method_class
from tss.methods.tss import Tss
from tss.report.measures import forgetting_rate, forgetting_rate_max
from tss.tasks.kind import ReadingConfig
from tss.tasks.lesson import Lesson

BART = "bart"


def taught(store: Path, method: str, names: list[str], **options) -> Learner:
    """A learner that learnt toy tasks of these kinds, in this order; each task is named by its kind."""
    learner = open_learner(store, tiny_path(BART), method, **{"max_steps": 4, **options})
    for kind in names:
        learner.learn(toy(kind))
    return learner


def own(learner: Learner, kind: str) -> dict[str, torch.Tensor]:
    """What one task keeps, without the state all tasks share."""
    return {key: value for key, value in state(learner, f"toy {kind}").items() if not key.startswith("shared")}


def force(monkeypatch: pytest.MonkeyPatch, value: float) -> None:
    """Every importance becomes `value`."""
    monkeypatch.setattr(importance, "normalise", lambda raw, *rest: torch.full_like(raw, value))


def test_without_soft_masking_tss_is_supsup(tmp_path: Path):
    one, other = (taught(tmp_path / name, name, ["pair", "tagging"]) for name in ("tss-no-sm", "supsup"))
    for kind in ("pair", "tagging"):
        assert_same_bits(state(one, f"toy {kind}"), state(other, f"toy {kind}"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_task_of_tss_is_supsup(tmp_path: Path, kind: str):
    one, other = (taught(tmp_path / name, name, [kind]) for name in ("tss", "supsup"))
    assert_same_bits(own(one, kind), own(other, kind))


def test_tss_without_importance_is_naive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    order = ["pair", "tagging", "generation"]
    naive, real = taught(tmp_path / "naive", "tss-naive", order), taught(tmp_path / "real", "tss", order)
    force(monkeypatch, 0.0)
    forced = taught(tmp_path / "forced", "tss", order)
    for kind in order:
        assert_same_bits(own(forced, kind), own(naive, kind))
    assert torch.equal(forced.store.read_shared()["scores"], naive.store.read_shared()["scores"])
    assert not torch.equal(real.store.read_shared()["scores"], naive.store.read_shared()["scores"])


@pytest.mark.parametrize("mode", ["update", "grad", "sgd"])
def test_with_full_importance_only_the_head_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str):
    force(monkeypatch, 1.0)
    learner = taught(tmp_path / "store", "tss", ["pair"], softmask_apply=mode)
    scores = learner.store.read_shared()["scores"]
    start = Lesson.of(toy("tagging"), learner.backbone, ReadingConfig(), 0).head.state_dict()
    learner.learn(toy("tagging"))
    assert torch.equal(learner.store.read_shared()["scores"], scores)
    assert torch.equal(own(learner, "tagging")["gates"], own(learner, "pair")["gates"])
    assert not torch.equal(own(learner, "tagging")["task head.outer.weight"], start["outer.weight"])


# tss+ is left out: whether a task looks back at all is decided by a race (test_plus.py)
@pytest.mark.parametrize("method", [name for name in DISTINCT if not method_class(name).joint and name != "tss+"])
def test_order_changes_nothing_where_no_task_influences_another(tmp_path: Path, method: str):
    other = "tagging" if "tagging" in method_class(method).kinds else "generation"
    orders = {"there": ["pair", other], "back": [other, "pair"]}
    there, back = (taught(tmp_path / way, method, order) for way, order in orders.items())
    kept = [(own(there, kind), own(back, kind)) for kind in orders["there"]]
    changed = [key for one, other in kept for key in one if key not in other or not torch.equal(one[key], other[key])]
    assert (changed == []) == method_class(method).order_free, changed


@pytest.mark.parametrize("method", ["tss", "supsup", "tss-naive"])
def test_the_forgetting_rate_is_exactly_zero(tmp_path: Path, method: str):
    learner = open_learner(tmp_path / "store", tiny_path(BART), method, max_steps=4)
    tasks = [toy(kind) for kind in ("classification", "tagging", "generation")]
    matrix = []
    for count, task in enumerate(tasks, start=1):
        learner.learn(task)
        matrix.append([next(iter(learner.evaluate(one).values())) for one in tasks[:count]])
    diagonal = [row[-1] for row in matrix]
    assert forgetting_rate(diagonal, matrix[-1]) == 0.0 == forgetting_rate_max(matrix)
    assert [next(iter(info.scores.values())) for info in learner.tasks()] == diagonal


class WritesIntoBuffer(Tss):
    label = "broken"

    def after_step(self) -> None:
        super().after_step()
        self.victim().add_(1e-3)

    def victim(self) -> torch.Tensor:
        return self.backbone.tensors()["final_logits_bias"]


class WritesIntoLayerNorm(WritesIntoBuffer):
    def victim(self) -> torch.Tensor:
        return self.backbone.tensors()["model.decoder.layers.1.final_layer_norm.weight"]


class WritesIntoFixedAdapters(WritesIntoBuffer):
    def victim(self) -> torch.Tensor:
        return self.fixed


@pytest.mark.parametrize("broken", [WritesIntoBuffer, WritesIntoLayerNorm, WritesIntoFixedAdapters])
def test_a_write_into_what_is_frozen_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: type):
    task = toy("generation")
    good = open_learner(tmp_path / "store", tiny_path(BART), max_steps=3)
    good.learn(task)
    before, answer = (tmp_path / "store" / "index.json").read_bytes(), answers(good, task)
    monkeypatch.setitem(METHODS, "tss", f"{__name__}:{broken.__name__}")
    learner = Learner.open(tmp_path / "store", device="cpu")
    with pytest.raises(TrainingError, match="declares frozen changed"):
        learner.learn(toy("pair"))
    assert (tmp_path / "store" / "index.json").read_bytes() == before
    assert answers(learner, task) == answer  # what was written into is loaded anew
    assert answers(Learner.open(tmp_path / "store", device="cpu"), task) == answer


def test_the_forward_pass_does_not_see_importance(tmp_path: Path):
    learner = taught(tmp_path / "store", "tss", ["pair"])
    lesson = Lesson.of(toy("pair"), learner.backbone, ReadingConfig(), 0)
    batch = lesson.batch(lesson.train.rows)
    logits = []
    for value in (0.0, 0.5, 1.0):
        learner.method.importance = torch.full_like(learner.method.importance, value)
        learner.method.begin(lesson, train)
        logits.append(lesson.logits(batch, learner.method.passing(batch)))
    assert torch.equal(logits[0], logits[1]) and torch.equal(logits[0], logits[2])


def test_gradients_go_straight_through_closed_gates():
    torch.manual_seed(3)
    x, weights = torch.randn(5, 6), torch.randn(4 * 6)
    scores = torch.randn(4 * 6).requires_grad_(True)
    gated(scores, weights).view(4, 6).matmul(x.T).pow(2).sum().backward()
    effective = (weights * (scores > 0)).detach().requires_grad_(True)
    effective.view(4, 6).matmul(x.T).pow(2).sum().backward()
    assert torch.equal(scores.grad, effective.grad * weights)
    closed = scores <= 0
    assert closed.any() and scores.grad[closed].abs().min() > 0


@pytest.mark.parametrize(("mode", "ratio"), [("update", 2.0), ("sgd", 2.0), ("grad", 1.0)])
def test_twice_the_freedom_is_twice_the_step(tmp_path: Path, mode: str, ratio: float):
    """Adam divides a factor on the gradient out again, so in `grad` mode the mask hardly matters."""
    learner = open_learner(tmp_path / "store", tiny_path(BART), softmask_apply=mode, score_lr=1.0)
    lesson = Lesson.of(toy("pair"), learner.backbone, ReadingConfig(), 0)
    size = {}
    for freedom in (0.25, 0.5):
        method = learner.method
        method.importance = torch.full((method.bank.size,), 1.0 - freedom)
        method.begin(lesson, train)
        start = method.scores.detach().clone()
        one_step = LearningConfig(max_steps=1, warmup=0.0, batch_size=8, select="last", adam_eps=1e-20)
        train([lesson], method, one_step)
        size[freedom] = (method.scores.detach() - start).double()
        lesson = Lesson.of(toy("pair"), learner.backbone, ReadingConfig(), 0)
    moved = size[0.25].abs() > 1e-6  # above the rounding of a score
    assert moved.sum() > 50
    assert torch.allclose(size[0.5][moved] / size[0.25][moved], torch.tensor(ratio).double(), rtol=0.02)


def test_beams_share_the_gates_of_their_task(tmp_path: Path):
    """Gates belong to the task, not to a row: a row answers the same alone as beside others, whatever the beams."""
    learner = taught(tmp_path / "store", "tss", ["generation"], adapter_std=1.0)
    record = learner.store.read("toy generation")
    rows = torch.tensor([[0, 30, 40, 50, 2], [0, 60, 31, 41, 2], [0, 7, 8, 9, 2]])
    added = Pass(learner.method.bank.functions(learner.method.fixed * record.gates))
    limits = {"max_tokens": 6, "min_tokens": 1, "beams": 4, "no_repeat": 2}
    together = learner.backbone.generate(rows, torch.ones_like(rows), added, **limits)
    alone = [learner.backbone.generate(row[None], torch.ones_like(row[None]), added, **limits)[0] for row in rows]
    assert together == alone and all(together)
    assert learner.backbone.generate(rows, torch.ones_like(rows), Pass(), **limits) != together
