"""CTR: what a task sees of the others, routing by hand, deterministic answers, what is blocked and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from shared_checks import open_learner
from small_lessons import small_lesson, small_method
from tiny import LAYERS, tiny_path
from toy_tasks import toy

from tss.errors import ConfigError
from tss.learning.loop import train
from tss.methods.ctr import GROWING, squash
from tss.methods.method import Kept, Moment
from tss.tasks.kind import ReadingConfig
from tss.tasks.lesson import Lesson

KINDS = ("pair", "tagging", "generation")


def begun(tasks: int = 1, kind: str = "classification", family: str = "bart", **options):
    """A CTR that is learning its task number `tasks`, its capsules far from each other, and the task."""
    lesson = small_lesson(kind, family)
    method = small_method(lesson, "ctr", hat_smax=4.0, **options)
    for number in range(1, tasks + 1):
        lesson.seed_key = f"0/{number}"
        method.begin(lesson, train)
        if number < tasks:
            method.end(lesson)
    with torch.no_grad():
        method.weights.mul_(20.0)
        method.own["project"].mul_(20.0)
        method.routing["capsule"].mul_(4.0)
        rows = torch.randn(method.routing["open"].shape, generator=torch.Generator().manual_seed(3))
        method.routing["open"].copy_(rows - rows.mean(dim=-1, keepdim=True))  # so that both routes occur
    return method, lesson


def test_squash_by_hand():
    found = squash(torch.tensor([[3.0, 0.0, 4.0], [0.0, 0.0, 0.0]]))
    assert found[0].tolist() == pytest.approx([25 / 26 * 0.6, 0.0, 25 / 26 * 0.8])
    assert found[1].tolist() == [0.0, 0.0, 0.0]
    zero = torch.zeros(3, requires_grad=True)
    squash(zero).sum().backward()
    assert zero.grad.isfinite().all()


def by_hand(method, site: int, x: torch.Tensor) -> torch.Tensor:
    """v of one text without padding, [n, d] -> [n, 9], with a loop for every sum."""
    p = {name: value.detach() for name, value in method.routing.items()}
    tasks, (n, _) = len(p["route"]), x.shape
    f = torch.zeros(tasks, n, 3)
    for i in range(tasks):
        for token in range(n):
            u = p["capsule"][i, site] @ x[token] + p["capsule_bias"][i, site]
            f[i, token] = u.norm() ** 2 / (1 + u.norm() ** 2) * u / u.norm()
    pooled = torch.zeros(tasks, 300)
    for i in range(tasks):
        for w, width in enumerate((3, 4, 5)):
            for channel in range(100):
                values = [p[f"conv{width}_bias"][site, channel].item()] * n
                for start in range(n):
                    for step in range(min(width, n - start)):
                        values[start] += float(p[f"conv{width}"][site, channel, :, step] @ f[i, start + step])
                pooled[i, 100 * w + channel] = max(0.0, *values)
    v = torch.zeros(n, 9)
    for i in range(tasks):
        z = pooled[i] + p["summary"][site] @ pooled[-1]
        first, second = p["open"][site] @ z + p["open_bias"][site]
        a = p["weigh"][site] @ z + p["weigh_bias"][site]
        for j in range(3):
            for token in range(n):
                if first >= second:
                    v[token, 3 * j : 3 * j + 3] += a[3 * j : 3 * j + 3] * (f[i, token] @ p["route"][i, site, j])
    return v


@torch.no_grad()
@pytest.mark.parametrize("site", range(LAYERS))
def test_routing_by_hand(site: int, monkeypatch: pytest.MonkeyPatch):
    method, _ = begun(tasks=3)
    x = torch.randn(8, 4, 16, generator=torch.Generator().manual_seed(0))
    routes: list[torch.Tensor] = []
    choose = method._open
    monkeypatch.setattr(method, "_open", lambda logits: routes.append(choose(logits)) or routes[-1])
    found = method.transferred(site, 3, x, torch.ones(8, 4))
    assert set(routes[0].flatten().tolist()) == {0.0, 1.0}
    some = int(routes[0].sum(dim=1).argmax())  # a text with the most routes open
    torch.testing.assert_close(found[some], by_hand(method, site, x[some]), rtol=1e-4, atol=1e-5)


def test_a_task_sees_no_later_capsules(tmp_path: Path):
    """Changing the capsules of tasks above t does not change task t; changing those up to t does."""
    learner = open_learner(tmp_path / "store", tiny_path("bart"), "ctr", max_steps=4, adapter_lr=3e-2)
    for kind in KINDS:
        learner.learn(toy(kind))
    method, lessons, passes = learner.method, [], []
    with torch.no_grad():
        method.routing["open_bias"][:, 0].add_(100.0)  # every route is open
        method.weights.mul_(20.0)
    for kind in KINDS:
        lessons.append(Lesson.of(toy(kind), learner.backbone, ReadingConfig(), 0))
        tensors = learner.store.read(f"toy {kind}").tensors.items()
        kept = {name.removeprefix("method."): t for name, t in tensors if name.startswith("method.")}
        passes.append(method.recall(Kept(tensors={**kept, "project": 20 * kept["project"]})))

    @torch.no_grad()
    def logits() -> list[torch.Tensor]:
        learner.backbone.model.eval()
        return [one.logits(one.batch(one.train.rows), added) for one, added in zip(lessons, passes, strict=True)]

    before = logits()
    for changed in (2, 1, 0):
        with torch.no_grad():
            for name in GROWING:
                method.routing[name][changed].add_(1.0)
        after = logits()
        same = [torch.equal(one, other) for one, other in zip(before, after, strict=True)]
        assert same == [True] * changed + [False] * (3 - changed)
        before = after


@torch.no_grad()
def test_answers_are_deterministic_and_training_draws():
    method, lesson = begun(tasks=3)
    batch = lesson.batch(lesson.train.rows)

    def twice() -> list[torch.Tensor]:
        return [lesson.logits(batch, method.passing()) for _ in range(2)]

    one, other = twice()
    assert torch.equal(one, other)
    method.moment = Moment(0, 1)
    one, other = twice()
    assert not torch.equal(one, other)


@torch.no_grad()
def test_a_text_answers_the_same_beside_longer_ones():
    method, lesson = begun(tasks=3)
    rows = sorted(lesson.train.rows, key=lambda row: len(row.ids))
    alone, beside = lesson.batch(rows[:1]), lesson.batch([rows[0], rows[-1]])
    assert alone.ids.shape[1] < beside.ids.shape[1]
    added = method.passing()
    torch.testing.assert_close(lesson.logits(alone, added)[0], lesson.logits(beside, added)[0], rtol=1e-4, atol=1e-5)
    texts = [torch.nn.functional.pad(torch.ones(1, 4), (0, more)) for more in (0, 5)]
    x = torch.randn(1, 9, 16, generator=torch.Generator().manual_seed(0))
    short, long = (method.transferred(0, 3, x[:, : t.shape[1]], t) for t in texts)
    torch.testing.assert_close(short, long[:, :4])
    assert long[:, 4:].abs().sum() == 0.0


def test_capsules_of_tasks_seen_learn_and_used_units_do_not():
    method, lesson = begun(tasks=3)
    method.used.fill_(1.0)
    method.begin(lesson, train)
    method.moment = Moment(0, 1)
    kept = [p.detach().clone() for p in (method.weights, method.biases)]
    method.loss(lesson, lesson.batch(lesson.train.rows)).backward()
    assert all(bool((method.routing["capsule"].grad[i] != 0).any()) for i in range(3))
    assert all(p.grad is not None for p in (*method.routing.values(), *method.own.values()))
    trained = [p for group in method.groups() for p in group.parameters]
    method.before_step()
    with torch.no_grad():
        for p in trained:
            p.sub_(0.1 * p.grad)
    method.after_step()
    assert all(torch.equal(p, before) for p, before in zip((method.weights, method.biases), kept, strict=True))


def test_decoder_sites_have_the_masked_layers_alone():
    method, _ = begun()
    with torch.no_grad():
        method.routing["open_bias"][:, 0].add_(100.0)
    x, ids = torch.randn(2, 5, 16), torch.ones(2, 5, dtype=torch.long)
    adapters = method.passing().settled(ids, ids).adapters
    plain = method.layers.functions(method.weights, method.biases, method.mask())
    same = [torch.equal(one(x), other(x)) for one, other in zip(adapters, plain, strict=True)]
    assert same == [False] * LAYERS + [True] * LAYERS
    assert method.sites == LAYERS


def test_beginning_again_begins_the_same_task():
    method, lesson = begun(tasks=2)
    method.begin(lesson, train)
    first = {name: p.detach().clone() for name, p in method.routing.items()}
    method.begin(lesson, train)
    assert len(method.routing["route"]) == 2
    assert all(torch.equal(p, first[name]) for name, p in method.routing.items())


def test_a_decoder_is_refused():
    with pytest.raises(ConfigError, match="needs an encoder"):
        small_method(small_lesson("classification", "gpt2"), "ctr")
