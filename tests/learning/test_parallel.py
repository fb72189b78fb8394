"""Shares of a batch add up to the batch. That real processes agree is in tests/bench/test_bench_parallel.py."""

from __future__ import annotations

from pathlib import Path

import accelerate.utils
import pytest
import torch
from small_lessons import small_lesson, small_method

from tss.learning.parallel import ALONE, Ranks


@pytest.mark.parametrize("rows", [1, 2, 5])
@pytest.mark.parametrize("kind", ["classification", "tagging", "generation"])
def test_gradients_of_all_ranks_are_those_of_the_batch(kind: str, rows: int, monkeypatch: pytest.MonkeyPatch):
    lesson = small_lesson(kind)
    lesson.backbone.model.eval()
    method = small_method(lesson)
    method.begin(lesson, lambda *given, **named: None)
    parameters = [p for group in method.groups() for p in group.parameters] + list(lesson.head.parameters())
    batch = lesson.batch(lesson.train.rows, list(range(rows)))
    sent: list[torch.Tensor] = []
    monkeypatch.setattr(accelerate.utils, "reduce", lambda flat, reduction: sent.append(flat) or flat)

    def derive(ranks: Ranks) -> torch.Tensor:
        for p in parameters:
            p.grad = None
        mine, share = ranks.mine(lesson.kind, batch)
        loss = method.loss(lesson, mine)
        loss.backward()
        return ranks.reduce(parameters, loss.detach(), share)

    for rank in range(3):
        derive(Ranks(rank, 3))
    whole = derive(ALONE)
    flat = torch.cat([whole.view(1), *(p.grad.flatten() for p in parameters if p.grad is not None)])
    assert len(sent) == 3 and torch.allclose(sum(sent), flat, atol=1e-6)


def test_reduced_gradients_are_put_back(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(accelerate.utils, "reduce", lambda flat, reduction: 2 * flat)
    used, unused = (torch.nn.Parameter(torch.zeros(2, 3)) for _ in range(2))
    used.grad = torch.arange(6.0).view(2, 3)
    loss = Ranks(0, 2).reduce([unused, used], torch.tensor(3.0), 0.5)
    assert float(loss) == 3.0 and unused.grad is None
    assert used.grad is not None and used.grad.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_other_ranks_write_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = tmp_path / "store"
    (store / "tasks").mkdir(parents=True)
    (store / "tasks" / "a").write_text("kept")
    monkeypatch.setattr(Ranks, "wait", lambda self: None)
    with Ranks(0, 2).own(store) as place:
        assert place == store
    with Ranks(1, 2).own(store) as place:
        assert place != store and (place / "tasks" / "a").read_text() == "kept"
        (place / "tasks" / "a").write_text("changed")
    assert (store / "tasks" / "a").read_text() == "kept" and not place.exists()


def test_dropout_differs_from_rank_to_rank():
    drawn = []
    for rank in range(3):
        torch.manual_seed(1)
        Ranks(rank, 3).part_ways("task", 7)
        drawn.append(float(torch.rand(1)))
    torch.manual_seed(1)
    assert drawn[0] == float(torch.rand(1)) and len(set(drawn)) == 3
