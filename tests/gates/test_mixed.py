"""Batches of many tasks: the answers of each task alone, from one forward pass.

Bit for bit where kernels allow: on the CPU in float32, a row of a mixed batch has exactly the states that its task
alone gives that row in a batch of the same shape. On a GPU, and against batches of other shapes, kernels may add in
another order; there the tolerance is 1e-5.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import TASKS, TEXTS, mixed_questions, plant, planted
from tiny import tiny_loaded, tiny_path

from tss.backbones.adapters import AdapterBank, AdapterConfig
from tss.backbones.backbone import Pass
from tss.gates.mixed import arranged, grouped, looped
from tss.gates.packed import pack, unpack, unpack_rows
from tss.learning import answering
from tss.tasks.batches import collate

HEADED = {name: told for name, told in TASKS.items() if told[0] != "generation"}


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory):
    return planted(tmp_path_factory.mktemp("mixed") / "store", tiny_path("bart"))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40))
def test_rows_of_a_task_and_tasks_of_a_size_stand_together(owners: list[int]):
    order, tasks, sizes = arranged(owners)
    assert sorted(order) == list(range(len(owners))) and sizes == sorted(sizes)
    assert [owners[i] for i in order] == [task for task, size in zip(tasks, sizes, strict=True) for _ in range(size)]


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.booleans(), st.booleans(), st.sampled_from([1, 3]))
def test_grouped_products_equal_the_plain_loop(sizes: list[int], biased: bool, own_ln: bool, beams: int):
    bank = AdapterBank(tiny_loaded_once().sites, AdapterConfig(bottleneck=4, own_ln=own_ln))
    sizes.sort()
    draw = torch.Generator().manual_seed(sum(sizes))
    weights = torch.randn(len(sizes), bank.size, generator=draw)
    biases = torch.randn(len(sizes), bank.bias_size, generator=draw) if biased else None
    alone = [bank.functions(w, None if biases is None else biases[i]) for i, w in enumerate(weights)]
    x = torch.randn(sum(sizes) * beams, 5, bank.width, generator=draw)
    for fast, plain in zip(grouped(bank, weights, biases, sizes), looped(alone, sizes), strict=True):
        torch.testing.assert_close(fast(x), plain(x), rtol=1e-5, atol=1e-5)


_loaded: list = []


def tiny_loaded_once():
    _loaded.extend([] if _loaded else [tiny_loaded("bart")])
    return _loaded[0]


def test_rows_of_bits_unpack_as_one_row_does():
    gates = torch.rand(3, 77) > 0.5
    packed = torch.stack([pack(row) for row in gates])
    assert torch.equal(unpack_rows(packed, 77), gates) and torch.equal(unpack(packed[1], 77), gates[1])


@pytest.mark.parametrize("family", ["bart", "t5", "bert", "gpt2"])
def test_a_mixed_batch_answers_as_one_by_one(tmp_path, family: str, monkeypatch: pytest.MonkeyPatch):
    tasks = HEADED if family == "bert" else TASKS
    learner = planted(tmp_path / "store", tiny_path(family), tasks)
    names, inputs = mixed_questions(tasks)
    passes = count_passes(learner.backbone, monkeypatch)
    together = learner.predict(names, inputs, details=True)
    shared = sum(passes.values())
    alone = [learner.predict(name, [value], details=True)[0] for name, value in zip(names, inputs, strict=True)]
    assert [one["answer"] for one in together] == [one["answer"] for one in alone]
    assert_equal_confidence(together, alone)
    # states once; texts once for each set of limits, of which the tasks have two
    assert shared == (1 if family == "bert" else 3) < sum(passes.values()) - shared == len(names)
    assert len({str(one["answer"]) for one in together}) > len(tasks) // 2, "the tasks must differ for this to say much"


def test_tasks_that_others_answer_beside_share_a_pass_with_their_like(tmp_path, monkeypatch: pytest.MonkeyPatch):
    """One pass for tasks that answer alone, one for those with a second voice."""
    learner = planted(tmp_path / "store", tiny_path("bart"), HEADED)
    ids = {entry.name: entry.id for entry in learner.store.index().tasks}
    with learner.store.writing(wait=5.0):
        plant(learner, "mood twice", "classification", 2, company=[ids["mood"]], like="mood")
        plant(learner, "aspect twice", "classification", 3, True, company=[ids["aspect"]], like="aspect")
        plant(learner, "people twice", "tagging", 3, company=[ids["places"]])
    tasks = {**HEADED, "mood twice": HEADED["mood"], "aspect twice": HEADED["aspect"], "people twice": HEADED["people"]}
    names, inputs = mixed_questions(tasks)
    alone = [learner.predict(name, [value], details=True)[0] for name, value in zip(names, inputs, strict=True)]
    passes = count_passes(learner.backbone, monkeypatch)
    together = learner.predict(names, inputs, details=True)
    assert passes == {"states": 2, "generate": 0}
    assert [one["answer"] for one in together] == [one["answer"] for one in alone]
    assert_equal_confidence(together, alone)
    for name in ("mood twice", "aspect twice", "people twice"):
        ready = learner.ready(name)
        ready.lesson.company = ()
        chosen = [i for i, one in enumerate(names) if one == name]
        without = learner.predict(name, [inputs[i] for i in chosen], details=True)
        assert [one["confidence"] for one in without] != [alone[i]["confidence"] for i in chosen], "they must be heard"


def count_passes(backbone, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    passes = {"states": 0, "generate": 0}
    for name in passes:
        plain = getattr(backbone, name)

        def counting(*args, name=name, plain=plain, **options):
            passes[name] += 1
            return plain(*args, **options)

        monkeypatch.setattr(backbone, name, counting)
    return passes


def assert_equal_confidence(one: list[dict], other: list[dict]) -> None:
    for a, b in zip(one, other, strict=True):
        if a["confidence"] is not None:
            torch.testing.assert_close(torch.tensor(a["confidence"]), torch.tensor(b["confidence"]), rtol=0, atol=1e-5)


def test_logits_within_tolerance_and_states_bit_equal_in_the_same_shape(learner):
    chosen = [name for name in HEADED for _ in range(3 if name == "topic" else 1)]
    pairs = [(TEXTS[i % 5], "sound") if HEADED[name][2] else TEXTS[i % 5] for i, name in enumerate(chosen)]
    asked = [answering.question(learner.ready(name), value, "") for name, value in zip(chosen, pairs, strict=True)]
    tasks = list(dict.fromkeys(one.ready for one in asked))
    order, present, sizes = arranged([tasks.index(one.ready) for one in asked])
    rows, tasks = [asked[i].row for i in order], [tasks[i] for i in present]
    backbone = learner.backbone
    batch = collate(rows, (), backbone.text.pad, single=True)
    with torch.no_grad():
        mixed = backbone.states(batch.ids, batch.mask, answering.mixed_pass(tasks, sizes))
        logits = answering.mixed_logits(tasks, sizes, mixed, batch)
        first = 0
        for task, size, found in zip(tasks, sizes, logits, strict=True):
            own = backbone.states(batch.ids, batch.mask, task.added)[first : first + size]
            assert torch.equal(mixed[first : first + size], own)  # CPU, float32, same shape: every bit
            single = collate(rows[first : first + size], (), backbone.text.pad, single=True)
            alone = task.lesson.logits(single, task.added)
            wide = alone.shape[1] if alone.dim() == 3 else None
            torch.testing.assert_close(found[:, :wide] if wide else found, alone, rtol=1e-5, atol=1e-5)
            first += size


def test_one_task_takes_the_plain_path(learner):
    ready = learner.ready("topic")
    assert answering.mixed_pass([ready], [4]) is ready.added


@pytest.mark.parametrize("method", ["one-adapter"])
def test_methods_with_weights_of_their_own_mix_too(tmp_path, method: str):
    learner = planted(tmp_path / "store", tiny_path("bart"), method=method)
    names, inputs = mixed_questions()
    assert learner.predict(names, inputs) == [
        learner.predict(name, [value])[0] for name, value in zip(names, inputs, strict=True)
    ]


def test_adapters_that_are_more_than_weights_run_in_a_loop(learner, monkeypatch: pytest.MonkeyPatch):
    names, inputs = mixed_questions()
    usual = learner.predict(names, inputs)
    learner.resident.clear()
    plain = learner.method.recall
    monkeypatch.setattr(learner.method, "recall", lambda kept: Pass(list(plain(kept).adapters)))
    monkeypatch.setattr(answering, "grouped", None)
    assert learner.predict(names, inputs) == usual
    learner.resident.clear()


def test_gates_opened_at_once_are_the_weights_of_each(learner):
    tasks = [learner.ready(name) for name in TASKS]
    gates = unpack_rows(torch.stack([task.packed for task in tasks]), tasks[0].count)
    weights = learner.method.opened(gates, [task.tensors for task in tasks])
    assert torch.equal(weights, torch.stack([task.added.adapters.weights for task in tasks]))


def test_signed_and_other_tasks_are_opened_at_once_and_mixed(tmp_path):
    """A signed task's closed gates turn weights; that is a fact of the task, which its neighbours do not share."""
    learner = planted(tmp_path / "store", tiny_path("bart"), signed="tagging")
    tasks = [learner.ready(name) for name in TASKS]
    signed = [task.lesson.kind.name == "tagging" for task in tasks]
    assert any(signed) and not all(signed)
    fixed = learner.method.bank.fixed(learner.method.signed_std)
    for task, turned in zip(tasks, signed, strict=True):
        assert bool((task.added.adapters.weights == 0).any()) is not turned
        assert not turned or torch.equal(task.added.adapters.weights.abs(), fixed.abs())
    gates = unpack_rows(torch.stack([task.packed for task in tasks]), tasks[0].count)
    weights = learner.method.opened(gates, [task.tensors for task in tasks])
    assert torch.equal(weights, torch.stack([task.added.adapters.weights for task in tasks]))
    names, inputs = mixed_questions()
    assert learner.predict(names, inputs) == [
        learner.predict(name, [value])[0] for name, value in zip(names, inputs, strict=True)
    ]


def test_methods_that_cannot_mix_answer_one_task_after_the_other(learner, monkeypatch: pytest.MonkeyPatch):
    names, inputs = mixed_questions()
    usual = learner.predict(names, inputs)
    monkeypatch.setattr(type(learner.method), "mixable", False)
    passes = count_passes(learner.backbone, monkeypatch)
    assert learner.predict(names, inputs) == usual and sum(passes.values()) == len(TASKS)


@pytest.mark.gpu
def test_mixed_on_a_gpu_as_on_the_cpu(learner, tmp_path):
    from tss import Learner

    names, inputs = mixed_questions()
    there = Learner.open(learner.store.path, device="cuda").predict(names, inputs, details=True)
    here = learner.predict(names, inputs, details=True)
    assert [one["answer"] for one in there] == [one["answer"] for one in here]
