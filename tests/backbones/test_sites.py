"""Adapters sit where the method says, in every architecture; without adapters a model is its plain self."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tiny import DECODERS, ENCODER_DECODERS, ENCODERS, FAMILIES, LAYERS, WIDTH, tiny_loaded, tiny_path
from torch import nn

from tss.backbones.backbone import Pass
from tss.backbones.sites import layout_of
from tss.errors import BackboneError

POST_NORM = ("bart", "bert", "roberta", "distilbert")


def layers_of(backbone, family: str, side: str = "encoder") -> list[nn.Module]:
    """The layers of one stack."""
    paths = {"bart": "model.encoder.layers", "mbart": "model.encoder.layers", "t5": "encoder.block"}
    paths |= {"bert": "encoder.layer", "roberta": "encoder.layer", "distilbert": "transformer.layer"}
    paths |= {"gpt2": "transformer.h", "llama": "model.layers", "qwen2": "model.layers"}
    return list(backbone.model.get_submodule(paths[family].replace("encoder.", side + ".")))


def closing_norm(layer: nn.Module, family: str) -> nn.Module:
    names = {"bart": "final_layer_norm", "bert": "output.LayerNorm", "roberta": "output.LayerNorm"}
    return layer.get_submodule({**names, "distilbert": "output_layer_norm"}[family])


def opening_norm(layer: nn.Module, family: str) -> nn.Module:
    names = {"mbart": "self_attn_layer_norm", "t5": "layer.0.layer_norm", "gpt2": "ln_1"}
    return layer.get_submodule(names.get(family, "input_layernorm"))


def last_norm(backbone, family: str, side: str) -> nn.Module:
    names = {"mbart": "model.encoder.layer_norm", "t5": "encoder.final_layer_norm", "gpt2": "transformer.ln_f"}
    return backbone.model.get_submodule(names.get(family, "model.norm").replace("encoder.", side + "."))


def attention(layer: nn.Module, family: str) -> nn.Module:
    names = {"t5": "layer.0.SelfAttention", "gpt2": "attn", "distilbert": "attention"}
    names |= dict.fromkeys(("bert", "roberta"), "attention.output.dense")
    return layer.get_submodule(names.get(family, "self_attn"))


# Where the feed-forward block takes its input, and what it computes from it.
FEED_FORWARD = {
    "bart": (lambda layer: layer.fc1, lambda layer, r: layer.fc2(F.gelu(layer.fc1(r)))),
    "bert": (lambda layer: layer.intermediate, lambda layer, r: layer.output.dense(layer.intermediate(r))),
    "distilbert": (lambda layer: layer.ffn.lin1, lambda layer, r: layer.ffn.lin2(F.gelu(layer.ffn.lin1(r)))),
}
FEED_FORWARD["roberta"] = FEED_FORWARD["bert"]


class Seen:
    """What a module was fed and gave the first time it was called."""

    def __init__(self, module: nn.Module):
        self.into: Any = None
        self.out: Any = None
        module.register_forward_pre_hook(self._before, with_kwargs=True)
        module.register_forward_hook(self._after)

    def _before(self, module, args, kwargs) -> None:
        self.into = self.into or (args, kwargs)

    def _after(self, module, args, out) -> None:
        self.out = first(out).clone() if self.out is None else self.out


def watch(modules: list[nn.Module]) -> list[Seen]:
    return [Seen(module) for module in modules]


def first(out):
    return out[0] if isinstance(out, tuple) else out


def example(backbone) -> tuple[torch.Tensor, torch.Tensor]:
    ids, _ = backbone.text.wrap([backbone.text.tokens("the screen is great")], 32)
    return torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.long)


def adapters(count: int, size: float = 0.3) -> list:
    """A different non-linear adapter at every site."""
    made = []
    for i in range(count):
        generator = torch.Generator().manual_seed(i)
        down, up = torch.randn(4, WIDTH, generator=generator), torch.randn(WIDTH, 4, generator=generator)
        made.append(lambda x, down=down, up=up: size * torch.tanh(x @ down.T) @ up.T)
    return made


@pytest.mark.parametrize(("family", "side"), [*((family, "encoder") for family in POST_NORM), ("bart", "decoder")])
def test_post_norm_site_is_the_formula(family, side):
    """x = LN(r+h), y = LN(r+h+a(x)), with r what the feed-forward block is fed and h what it makes of it."""
    backbone = tiny_loaded(family)
    layers = layers_of(backbone, family, side)
    active = adapters(backbone.sites.count)
    own = active[-len(layers) :] if side == "decoder" else active
    inputs, outputs = watch([FEED_FORWARD[family][0](layer) for layer in layers]), watch(layers)
    with torch.no_grad():
        backbone.states(*example(backbone), Pass(active))
        for i, layer in enumerate(layers):
            r, norm = inputs[i].into[0][0], closing_norm(layer, family)
            h = FEED_FORWARD[family][1](layer, r)
            x = F.layer_norm(r + h, (WIDTH,), norm.weight, norm.bias, norm.eps)
            y = F.layer_norm(r + h + own[i](x), (WIDTH,), norm.weight, norm.bias, norm.eps)
            assert not torch.allclose(x, y, atol=1e-2)
            torch.testing.assert_close(outputs[i].out, y)


PRE_NORM = [(family, "encoder") for family in FAMILIES if family not in POST_NORM]


@pytest.mark.parametrize(("family", "side"), [*PRE_NORM, ("mbart", "decoder"), ("t5", "decoder")])
def test_pre_norm_site_is_the_formula(family, side):
    """x = the next frozen norm of r+h, y = r+h+a(x), with r+h what the layer gives by itself."""
    backbone = tiny_loaded(family)
    layers = layers_of(backbone, family, side)
    active = adapters(backbone.sites.count)
    own = active[-len(layers) :] if side == "decoder" else active
    watched = watch(layers)
    with torch.no_grad():
        backbone.states(*example(backbone), Pass(active))
        norms = [*(opening_norm(layer, family) for layer in layers[1:]), last_norm(backbone, family, side)]
        for i, layer in enumerate(layers):
            args, kwargs = watched[i].into
            u = first(layer(*args, **kwargs))  # no adapter is active any more: r + h
            y = u + own[i](norms[i](u))
            assert not torch.allclose(u, y, atol=1e-2)
            torch.testing.assert_close(watched[i].out, y)


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_site_adds_beside_the_attention(family):
    """houlsby: h + a(h), with h the attention's own output."""
    backbone = tiny_loaded(family, "houlsby")
    stacks = len(layout_of(family).stacks)
    assert backbone.sites.count == 2 * LAYERS * stacks
    active = adapters(backbone.sites.count)
    module = attention(layers_of(backbone, family)[0], family)
    (seen,) = watch([module])
    with torch.no_grad():
        backbone.states(*example(backbone), Pass(active))
        args, kwargs = seen.into
        h = first(module(*args, **kwargs))
    assert not torch.allclose(h, seen.out, atol=1e-2)
    torch.testing.assert_close(seen.out, h + active[0](h))


@pytest.mark.parametrize("family", ENCODER_DECODERS)
def test_cross_attention_has_a_site_of_its_own(family):
    assert tiny_loaded(family, "houlsby+cross").sites.count == (2 + 3) * LAYERS


@pytest.mark.parametrize("family", FAMILIES)
def test_every_site_matters(family):
    """Switching off any one adapter changes the answer: no site is dead, none is used twice."""
    backbone = tiny_loaded(family, "houlsby")
    ids, mask = example(backbone)
    active = adapters(backbone.sites.count)
    with torch.no_grad():
        whole = backbone.states(ids, mask, Pass(active))
        for i in range(backbone.sites.count):
            some = [*active[:i], torch.zeros_like, *active[i + 1 :]]
            assert not torch.equal(whole, backbone.states(ids, mask, Pass(some))), f"site {i}"


def plain_states(family: str, ids: torch.Tensor, mask: torch.Tensor, start: int | None) -> torch.Tensor:
    """Hidden states of transformers' own model, nothing of ours attached."""
    from transformers import AutoModel

    model = AutoModel.from_pretrained(tiny_path(family)).eval()
    with torch.no_grad():
        if family in ENCODER_DECODERS:
            shifted = torch.cat([torch.full((len(ids), 1), start), ids[:, :-1]], dim=1)
            return model(input_ids=ids, attention_mask=mask, decoder_input_ids=shifted).last_hidden_state
        return model(input_ids=ids, attention_mask=mask).last_hidden_state


@pytest.mark.parametrize("family", FAMILIES)
def test_without_adapters_the_model_is_bit_equal_to_its_plain_self(family):
    backbone = tiny_loaded(family, "houlsby")
    ids, mask = example(backbone)
    with torch.no_grad():
        expected = plain_states(family, ids, mask, getattr(backbone, "start", None))
        assert torch.equal(backbone.states(ids, mask, Pass()), expected)
        used = backbone.states(ids, mask, Pass(adapters(backbone.sites.count)))
        assert not torch.allclose(used, expected, atol=1e-2)
        assert torch.equal(backbone.states(ids, mask, Pass()), expected)  # and again, after adapters were in use
        backbone.sites.detach()
        assert torch.equal(backbone.states(ids, mask, Pass(adapters(backbone.sites.count))), expected)


def test_adapters_are_gone_after_an_error():
    backbone = tiny_loaded("bart")
    ids, mask = example(backbone)

    def breaks(x):
        raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        backbone.states(ids, mask, Pass([breaks] * backbone.sites.count))
    assert backbone.sites.active is None


def test_wrong_number_of_adapters_is_refused():
    backbone = tiny_loaded("bert")
    with pytest.raises(ValueError, match="1 adapters for 2 sites"):
        backbone.states(*example(backbone), Pass(adapters(1)))


@pytest.mark.parametrize("family", FAMILIES)
def test_layouts_know_their_family(family):
    expected = "encoder-decoder" if family in ENCODER_DECODERS else "encoder" if family in ENCODERS else "decoder"
    assert layout_of(family).family == expected
    assert (family in DECODERS) == (expected == "decoder")


def test_unknown_architecture_names_the_nearest():
    with pytest.raises(BackboneError, match="'bart'"):
        layout_of("barty")
