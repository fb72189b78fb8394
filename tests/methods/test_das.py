"""DAS from its equations: unit importance against virtual factors put in by hand, what is masked, the first mask."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
from small_lessons import small_lesson, small_method
from tiny import HEADS, INNER, WIDTH, tiny_loaded

from tss.backbones.backbone import Pass
from tss.errors import BackboneError, ConfigError
from tss.gates.units import Units
from tss.learning.loop import train
from tss.learning.schedule import LearningConfig
from tss.methods.das import Das, DasConfig

LAYER = "model.decoder.layers.1"


def begun(kind: str = "classification", **options) -> tuple[Das, object]:
    lesson = small_lesson(kind)
    method = small_method(lesson, "das", **options)
    method.begin(lesson, train)
    return method, lesson


def factors(value=torch.ones) -> dict[str, torch.Tensor]:
    """A vector for each group of units of the tiny BART: 2 encoder and 2 decoder layers."""
    out = {}
    for stack, attentions in (("encoder", ["self_attn"]), ("decoder", ["self_attn", "encoder_attn"])):
        for i in range(2):
            path = f"model.{stack}.layers.{i}"
            out |= {f"{path}.{attention}": value(HEADS) for attention in attentions}
            out |= {f"{path}.fc1": value(INNER), f"{path}.fc2": value(WIDTH)}
    return out


@contextmanager
def put_in(model, given: dict[str, torch.Tensor]):
    """Virtual factors on units, by hooks: heads where they enter the output projection, FFN units around fc2."""
    handles = []
    for path, factor in given.items():
        if path.endswith("attn"):

            def pre(module, args, factor=factor):
                heads = args[0].unflatten(-1, (HEADS, -1)) * factor[:, None]
                return (heads.flatten(-2),)

            handles.append(model.get_submodule(f"{path}.out_proj").register_forward_pre_hook(pre))
        elif path.endswith("fc1"):
            fc2 = model.get_submodule(path.replace("fc1", "fc2"))
            handles.append(fc2.register_forward_pre_hook(lambda module, args, factor=factor: (args[0] * factor,)))
        else:
            hook = model.get_submodule(path).register_forward_hook(lambda m, args, out, factor=factor: out * factor)
            handles.append(hook)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def test_the_units_of_bart():
    units = Units(tiny_loaded("bart"))
    weights = dict(tiny_loaded("bart").model.named_parameters())
    found = {group: g.shape for group, g in units.gradients(weights, weights).items()}
    assert found == {group: f.shape for group, f in factors().items()}


@pytest.mark.parametrize("kind", ["classification", "tagging", "generation"])
def test_importance_against_an_explicit_loop(kind: str):
    """One example at a time, gradients of virtual factors of 1; then standardised, squashed and folded by hand."""
    method, lesson = begun(kind)
    found = method._importance(lesson, lambda lesson, batch: lesson.row_losses(batch, method.passing(batch)))
    total = {group: torch.zeros(len(f), dtype=torch.float64) for group, f in factors().items()}
    for row in lesson.train.rows:
        virtual = {group: f.requires_grad_(True) for group, f in factors().items()}
        with put_in(lesson.backbone.model, virtual):
            loss = lesson.row_losses(lesson.batch([row]), method.passing())[0]
        for group, g in zip(virtual, torch.autograd.grad(loss, list(virtual.values())), strict=True):
            total[group] += g.double() / len(lesson.train)
    for group, raw in total.items():
        z = (raw - raw.mean()) / raw.std(correction=0)
        torch.testing.assert_close(found[group], z.tanh().abs().float(), rtol=1e-3, atol=1e-4)


def test_scaled_weights_are_factors_on_units():
    method, lesson = begun()
    given = factors(torch.rand)
    batch = lesson.batch(lesson.train.rows)
    with torch.no_grad():
        scaled = lesson.logits(batch, Pass(parameters=method.units.scaled(method.weights, given)))
        with put_in(lesson.backbone.model, given):
            hooked = lesson.logits(batch, method.passing())
        plain = lesson.logits(batch, method.passing())
    torch.testing.assert_close(scaled, hooked, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(scaled, plain, atol=1e-4)


@pytest.mark.parametrize("mode", ["update", "grad", "sgd"])
def test_what_makes_an_important_unit_stays(mode: str):
    method, lesson = begun("generation", softmask_apply=mode, lm_lr=1e-1 if mode == "sgd" else 1e-3)
    method.importance = {group: torch.zeros(len(f)) for group, f in factors().items()}
    for part, unit in (("self_attn", 1), ("encoder_attn", 0), ("fc1", 5), ("fc2", 7)):
        method.importance[f"{LAYER}.{part}"][unit] = 1.0
    method.begin(lesson, train)
    before = {name: p.detach().clone() for name, p in method.weights.items()}
    train([lesson], method, LearningConfig(max_steps=3, select="last", warmup=0.0))
    moved = {name: p.detach() != before[name] for name, p in method.weights.items()}
    half = WIDTH // HEADS
    for attention, kept in (("self_attn", slice(half, None)), ("encoder_attn", slice(0, half))):
        for part in ("q_proj", "k_proj", "v_proj"):
            rows = moved[f"{LAYER}.{attention}.{part}.weight"].any(1)
            assert not rows[kept].any() and rows.sum() == half, part
            assert not moved[f"{LAYER}.{attention}.{part}.bias"][kept].any()
        columns = moved[f"{LAYER}.{attention}.out_proj.weight"].any(0)
        assert not columns[kept].any() and columns.sum() == half
        assert moved[f"{LAYER}.{attention}.out_proj.bias"].any()
    for part, unit in (("fc1", 5), ("fc2", 7)):
        rows = moved[f"{LAYER}.{part}.weight"].any(1)
        assert not rows[unit] and rows.sum() > len(rows) // 2
        assert not moved[f"{LAYER}.{part}.bias"][unit]
    assert moved["model.shared.weight"].any() and moved[f"{LAYER}.final_layer_norm.weight"].any()


def test_general_knowledge_is_weighed_before_the_first_task():
    one, other = begun()[0], begun()[0]
    assert one.importance.keys() == factors().keys()
    for group, i in one.importance.items():
        assert torch.equal(i, other.importance[group])  # a resumed task begins with the same mask
        assert 0.0 < float(i.max()) <= 1.0 and float(i.min()) >= 0.0
    assert not one.backbone.model.training


@pytest.mark.parametrize("own", [0.0, 0.2])
def test_a_backbone_without_dropout_gets_some_for_it(own: float):
    lesson = small_lesson("classification")
    layers = [*lesson.backbone.model.model.encoder.layers, *lesson.backbone.model.model.decoder.layers]
    for layer in layers:
        layer.dropout = own
    lesson.backbone.model.model.encoder.dropout = lesson.backbone.model.model.decoder.dropout = 0.0
    method = small_method(lesson, "das")
    method.begin(lesson, train)
    assert all(float(i.max()) > 0.0 for i in method.importance.values())
    assert [layer.dropout for layer in layers] == [own] * len(layers)


def test_importance_never_falls_and_survives_being_stored():
    method, lesson = begun()
    before = {group: i.clone() for group, i in method.importance.items()}
    method.end(lesson)
    assert all(bool((i >= before[group]).all()) for group, i in method.importance.items())
    again = small_method(lesson, "das")
    again.load_shared(method.shared())
    again.begin(lesson, train)
    assert all(torch.equal(i, method.importance[group]) for group, i in again.importance.items())


def test_the_contrast_by_hand():
    method, lesson = begun(das_contrast=0.5)
    batch = lesson.batch(lesson.train.rows[:3])
    full = _features(lesson, batch, method.passing())
    known = _features(lesson, batch, Pass(parameters=method.units.scaled(method.weights, method.importance)))
    total = 0.0
    for n in range(3):
        near = [torch.cosine_similarity(full[n], full[j], dim=0) / 0.05 for j in range(3)]  # no dropout: twice the same
        far = [torch.cosine_similarity(full[n], known[j], dim=0) / 0.05 for j in range(3)]
        total += float(torch.logsumexp(torch.stack(near + far), 0) - near[n]) / 3
    assert method.contrast(batch).item() == pytest.approx(total, rel=1e-3)
    plain = lesson.loss(batch, method.passing()).item()
    assert method.loss(lesson, batch).item() == pytest.approx(plain + 0.5 * total, rel=1e-3)


def _features(lesson, batch, added) -> torch.Tensor:
    states = lesson.backbone.states(batch.ids, batch.mask, added).detach().double()
    return torch.stack([s[m == 1].mean(0) for s, m in zip(states, batch.mask, strict=True)])


@pytest.mark.parametrize("family", ["t5", "bert", "distilbert", "gpt2", "llama"])
def test_other_layers_are_refused(family: str):
    lesson = small_lesson("classification", family)
    with pytest.raises(BackboneError, match="BART-shaped"):
        small_method(lesson, "das")


@pytest.mark.parametrize(
    "wrong", [{"softmask_apply": "x"}, {"impt_batch": 0}, {"das_dropout": 0.0}, {"das_contrast": -1.0}]
)
def test_wrong_options(wrong: dict):
    with pytest.raises(ConfigError):
        DasConfig(**wrong)
