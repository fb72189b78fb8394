"""L2P: which prompts an input picks, the sign of the loss, and what lambda does."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from small_lessons import small_lesson, small_method
from tiny import WIDTH

from tss.backbones.backbone import Pass
from tss.errors import ConfigError
from tss.learning.loop import train
from tss.learning.schedule import LearningConfig


@pytest.fixture
def lesson():
    return small_lesson("classification")


def begun(lesson, **options):
    method = small_method(lesson, "l2p", **options)
    method.begin(lesson, train)
    return method


def test_the_pool_at_the_start(lesson):
    method = begun(lesson)
    assert method.prompts.shape == (10, 5, WIDTH) and method.keys.shape == (10, WIDTH)
    for tensor in (method.prompts.detach(), method.keys.detach()):
        assert float(tensor.abs().max()) < 0.5 and float(tensor.std()) == pytest.approx(0.5 / 3**0.5, rel=0.1)
    assert method.prefix_length == 25


def test_the_nearest_keys_are_picked(lesson):
    method = begun(lesson, l2p_pool=4, l2p_select=2, l2p_length=3)
    with torch.no_grad():
        method.keys.zero_()
        method.keys[0, 0], method.keys[1, 1], method.keys[2, 0], method.keys[3, 2] = 5.0, 0.1, -1.0, 1.0
    query = torch.zeros(2, WIDTH)
    query[0, :2] = torch.tensor([3.0, 4.0])  # cosines 0.6, 0.8, -0.6, 0: lengths of keys do not matter
    query[1, 2] = 1.0
    query[1, 0] = -1.0
    cosines, chosen = method.select(query)
    assert chosen[0].tolist() == [1, 0] and set(chosen[1].tolist()) == {2, 3}
    assert cosines[0].tolist() == pytest.approx([0.8, 0.6])
    assert cosines[1].tolist() == pytest.approx([0.5**0.5] * 2)


def test_each_input_gets_the_prompts_it_picked(lesson):
    method = begun(lesson, l2p_select=2)
    batch = lesson.batch(lesson.train.rows)
    query = method.query(batch.ids, batch.mask)
    with torch.no_grad():
        method.keys[3], method.keys[7] = query[0], query[1]
    chosen = method.select(query)[1]
    assert chosen[0, 0] == 3 and chosen[1, 0] == 7
    prefix = method.passing().settled(batch.ids, batch.mask).prefix
    assert prefix.shape == (len(batch), 10, WIDTH)
    for row, numbers in zip(prefix, chosen.tolist(), strict=True):
        assert torch.equal(row, torch.cat([method.prompts[n] for n in numbers]))
    alone = lesson.batch(lesson.train.rows, [1])
    assert method.select(method.query(alone.ids, alone.mask))[1].tolist() == [chosen[1].tolist()]


def test_the_query_is_the_frozen_feature_of_the_input_alone(lesson):
    method, batch = begun(lesson), lesson.batch(lesson.train.rows)
    lesson.backbone.model.eval()
    plain = lesson.backbone.states(batch.ids, batch.mask, Pass())[:, 0]
    lesson.backbone.model.train()
    query = method.query(batch.ids, batch.mask)
    assert torch.equal(query, plain) and not query.requires_grad
    assert lesson.backbone.model.training
    with torch.no_grad():
        method.prompts.add_(1.0)
    assert torch.equal(method.query(batch.ids, batch.mask), plain)


@pytest.mark.parametrize(("sign", "factor"), [("minus", -1.0), ("code", 1.0)])
def test_the_sign_of_the_loss(lesson, sign: str, factor: float):
    method, batch = begun(lesson, l2p_sign=sign), lesson.batch(lesson.train.rows)
    lesson.backbone.model.eval()
    query = method.query(batch.ids, batch.mask)
    task = lesson.loss(batch, method.passing(batch))
    best = F.cosine_similarity(query[:, None], method.keys[None], dim=-1).sort(dim=1, descending=True).values[:, :5]
    loss = method.loss(lesson, batch)
    assert float(loss - task) == pytest.approx(factor * 0.5 * float(best.sum(dim=1).mean()), abs=1e-5)
    loss.backward()
    before = method.select(query)[0].sum()
    assert method.prompts.grad.abs().sum() > 0
    with torch.no_grad():
        method.keys.sub_(0.01 * method.keys.grad)
    after = method.select(query)[0].sum()
    assert (after > before) == (sign == "minus")


def test_a_larger_lambda_draws_keys_nearer(monkeypatch: pytest.MonkeyPatch):
    found = []
    for weight in (0.0, 0.01, 0.5):
        lesson = small_lesson("classification")
        method = begun(lesson, l2p_lambda=weight)
        plain = [replace(group, rule="sgd") for group in method.groups()]  # Adam would divide the factor out again
        monkeypatch.setattr(method, "groups", lambda plain=plain: plain)
        train([lesson], method, LearningConfig(max_steps=12, batch_size=6, eval_steps=12, select="last"))
        method.end(lesson)
        found.append(method.facts()["prompt_cosine"])
    assert found[0] < found[1] < found[2], found


def test_what_is_told_of_the_use_of_prompts(lesson):
    method = begun(lesson)
    method.end(lesson)
    facts = method.facts()
    assert 5 <= facts["prompts_used"] <= 10 and 0.5 <= facts["prompt_top_share"] <= 1.0
    with torch.no_grad():
        method.keys.copy_(torch.arange(10.0)[:, None] * torch.ones(WIDTH))
        method.keys[:5] = method.query(*_input(lesson)).mean(dim=0)
    method.end(lesson)
    assert method.facts()["prompts_used"] == 5 and method.facts()["prompt_top_share"] == 1.0


def _input(lesson):
    batch = lesson.batch(lesson.train.rows)
    return batch.ids, batch.mask


@pytest.mark.parametrize("bad", [{"l2p_select": 11}, {"l2p_length": 0}, {"l2p_lambda": -0.1}, {"l2p_sign": "plus"}])
def test_bad_options_are_refused(lesson, bad: dict):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        small_method(lesson, "l2p", **bad)
