"""Small records and stores for the tests of the store."""

from __future__ import annotations

import torch

from tss.store import Store, TaskRecord


def record(name: str, seed: int = 0, gates: torch.Tensor | None = None) -> TaskRecord:
    """A task as a method would leave it, all of it drawn from `seed`; gates: bool [gates]."""
    generator = torch.Generator().manual_seed(seed)
    return TaskRecord(
        name=name,
        meta={"kind": "classification", "labels": ["no", "yes"], "seed": seed},
        gates=gates,
        tensors={"head.weight": torch.randn(2, 4, generator=generator), "head.bias": torch.zeros(2)},
        probes={"inputs": torch.arange(8).reshape(2, 4), "outputs": torch.randn(2, 2, generator=generator)},
        summary={"kind": "classification", "score": seed / 100},
    )


def random_gates(count: int, seed: int = 0, share: float = 0.5) -> torch.Tensor:
    """bool [count], a share of them open."""
    return torch.rand(count, generator=torch.Generator().manual_seed(seed)) < share


def assert_same(one: TaskRecord, other: TaskRecord) -> None:
    """Every field equal, tensors bit by bit."""
    assert (one.name, one.meta, one.summary) == (other.name, other.meta, other.summary)
    assert (one.gates is None) == (other.gates is None)
    if one.gates is not None and other.gates is not None:
        assert torch.equal(one.gates, other.gates)
    for mine, yours in ((one.tensors, other.tensors), (one.probes, other.probes)):
        assert mine.keys() == yours.keys()
        for key in mine:
            assert mine[key].dtype == yours[key].dtype and torch.equal(mine[key], yours[key]), key


def family(path, count: int = 400) -> tuple[Store, dict[str, TaskRecord]]:
    """A store with shared state and five tasks: `a` full, `b` and `c` in a chain on it, `d` full, `e` without gates."""
    first = random_gates(count, 1)
    second = first ^ random_gates(count, 2, 0.03)
    records = {
        "a": record("a", 1, first),
        "b": record("b", 2, second),
        "c": record("c", 3, second ^ random_gates(count, 3, 0.03)),
        "d": record("d", 4, random_gates(count, 4)),
        "e": record("e", 5),
    }
    parents = {"b": "a", "c": "b"}
    store = Store.open(path, create=True)
    with store.writing():
        store.identify({"backbone": "abc", "seed": 1})
        for name, one in records.items():
            store.add(one, parent=parents.get(name), shared={"scores": torch.full((6,), float(len(name)))})
    assert [entry.depth for entry in store.index().tasks] == [0, 1, 2, 0, 0]
    return store, records
