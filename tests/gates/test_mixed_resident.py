"""Tasks at hand: bits in memory, full numbers for the few used last, all within a budget."""

from __future__ import annotations

import pytest
from planted import planted
from tiny import tiny_path

from tss.learning import resident

NAMES = [f"task {i}" for i in range(12)]


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory):
    tasks = {name: ("classification", 3, False, {}) for name in NAMES}
    return planted(tmp_path_factory.mktemp("resident") / "store", tiny_path("bart"), tasks)


def test_a_task_waits_as_bits(learner):
    ready = learner.ready(NAMES[0])
    gates = learner.method.bank.size
    head = sum(p.nbytes for p in ready.lesson.head.parameters())
    assert ready.packed.nbytes == gates // 8 and ready.bytes == gates // 8 + head
    assert ready.record.gates is None and ready.record.probes == {} and ready.record.tensors == {}
    assert learner.ready(NAMES[0]) is ready


def test_the_budget_of_tasks_at_hand_is_kept(learner, monkeypatch: pytest.MonkeyPatch):
    each = learner.ready(NAMES[0]).bytes
    monkeypatch.setattr(learner, "resident", resident.Resident(most_bytes=5 * each))
    first = learner.predict(NAMES, ["the screen is great"] * len(NAMES))
    for name in NAMES:
        learner.ready(name)
    assert len(learner.resident) == 5 and learner.resident._bytes == 5 * each
    kept = learner.ready(NAMES[-1])
    learner.ready(NAMES[0])  # read again, the oldest goes
    assert len(learner.resident) == 5 and learner.ready(NAMES[-1]) is kept
    assert learner.predict(NAMES, ["the screen is great"] * len(NAMES)) == first


def test_the_budget_of_full_numbers_is_kept(learner, monkeypatch: pytest.MonkeyPatch):
    one = 4 * learner.method.bank.size
    monkeypatch.setattr(resident, "FULL_BYTES", {"cpu": 3 * one})
    monkeypatch.setattr(learner, "resident", resident.Resident())
    passes = [learner.ready(name).added for name in NAMES]
    full = learner.resident._full
    assert full._bytes == 3 * one and len(full._passes) == 3 and len(learner.resident) == len(NAMES)
    assert learner.ready(NAMES[-1]).added is passes[-1] and learner.ready(NAMES[0]).added is not passes[0]
    learner.resident.forget(learner.store.index().entry(NAMES[0]).file)
    assert full._bytes == 2 * one and len(learner.resident) == len(NAMES) - 1
    learner.resident.clear()
    assert full._bytes == 0 and len(learner.resident) == 0
