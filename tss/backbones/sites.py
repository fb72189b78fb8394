"""Where adapters attach. One mechanism (forward hooks), one short table; no modelling file is forked.

Post-norm blocks (BART, BERT), with r the input of the feed-forward block, h its output and LN the frozen norm that
closes it:   x = LN(r + h),  y = LN(r + h + a(x)):  a hook on LN.
Pre-norm blocks (T5, GPT-2, Llama):  x = the next frozen norm of (r + h),  y = r + h + a(x):  a hook on the layer.
Attention sites ("houlsby"):  h + a(h):  a hook on the attention's output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from tss.errors import BackboneError, nearest

AdapterFunction = Callable[[Tensor], Tensor]  # x [..., d] -> a [..., d]
PLACES = ("ffn", "houlsby", "houlsby+cross")


@dataclass(frozen=True)
class Stack:
    """One pile of layers. Paths: `layers` and `last_norm` from the model, the others from a layer."""

    layers: str
    norm: str  # post-norm: closes the feed-forward block; pre-norm: opens the layer
    attention: str
    cross: str | None = None
    last_norm: str | None = None  # pre-norm only: the norm after the last layer


@dataclass(frozen=True)
class Layout:
    family: str  # "encoder-decoder", "encoder" or "decoder"
    post_norm: bool
    stacks: tuple[Stack, ...]
    positions_skipped: int = 0  # RoBERTa's positions start after the padding index


def _pair(encoder: Stack, decoder: Stack, post_norm: bool) -> Layout:
    return Layout("encoder-decoder", post_norm, (encoder, decoder))


_BART = _pair(
    Stack("model.encoder.layers", "final_layer_norm", "self_attn"),
    Stack("model.decoder.layers", "final_layer_norm", "self_attn", "encoder_attn"),
    post_norm=True,
)
_MBART = _pair(
    Stack("model.encoder.layers", "self_attn_layer_norm", "self_attn", None, "model.encoder.layer_norm"),
    Stack("model.decoder.layers", "self_attn_layer_norm", "self_attn", "encoder_attn", "model.decoder.layer_norm"),
    post_norm=False,
)
_T5 = _pair(
    Stack("encoder.block", "layer.0.layer_norm", "layer.0.SelfAttention", None, "encoder.final_layer_norm"),
    Stack(
        "decoder.block",
        "layer.0.layer_norm",
        "layer.0.SelfAttention",
        "layer.1.EncDecAttention",
        "decoder.final_layer_norm",
    ),
    post_norm=False,
)
_BERT = Layout("encoder", True, (Stack("encoder.layer", "output.LayerNorm", "attention.output.dense"),))
_ROBERTA = replace(_BERT, positions_skipped=2)
_DISTILBERT = Layout("encoder", True, (Stack("transformer.layer", "output_layer_norm", "attention"),))
_GPT2 = Layout("decoder", False, (Stack("transformer.h", "ln_1", "attn", None, "transformer.ln_f"),))
_LLAMA = Layout("decoder", False, (Stack("model.layers", "input_layernorm", "self_attn", None, "model.norm"),))

LAYOUTS: dict[str, Layout] = {
    "bart": _BART,
    "mbart": _MBART,
    "t5": _T5,
    "mt5": _T5,
    "bert": _BERT,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "electra": _BERT,
    "distilbert": _DISTILBERT,
    "gpt2": _GPT2,
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": _LLAMA,
}


def layout_of(model_type: str) -> Layout:
    if model_type not in LAYOUTS:
        raise BackboneError(
            f"no table of adapter sites for the architecture {model_type!r}{nearest(model_type, list(LAYOUTS))} "
            "A new one is a line in tss/backbones/sites.py."
        )
    return LAYOUTS[model_type]


class Sites:
    """The sites of one model, and the adapters that are active in them (none at first)."""

    def __init__(self, model: nn.Module, layout: Layout, width: int, places: str = "ffn"):
        if places not in PLACES:
            raise BackboneError(f"adapter_sites {places!r} is not one of {', '.join(PLACES)}")
        self.width = width
        self.active: Sequence[AdapterFunction] | None = None
        self.count = 0
        self._handles: list = []
        for stack in layout.stacks:
            self._attach(model, layout, stack, places)

    def _attach(self, model: nn.Module, layout: Layout, stack: Stack, places: str) -> None:
        layers: Any = model.get_submodule(stack.layers)
        norms = [layer.get_submodule(stack.norm) for layer in layers]
        if stack.last_norm:
            norms.append(model.get_submodule(stack.last_norm))
        for i, layer in enumerate(layers):
            if places != "ffn":
                self._hook(layer.get_submodule(stack.attention), self._beside)
            if places == "houlsby+cross" and stack.cross:
                self._hook(layer.get_submodule(stack.cross), self._beside)
            if layout.post_norm:
                self._hook(norms[i], self._inside_norm)
            else:
                self._hook(layer, lambda site, module, args, out, norm=norms[i + 1]: self._after(site, norm, out))

    def _hook(self, module: nn.Module, act: Callable) -> None:
        site = self.count
        self.count += 1

        def hook(module: nn.Module, args: tuple, out):
            return out if self.active is None else act(site, module, args, out)

        self._handles.append(module.register_forward_hook(hook))

    def _inside_norm(self, site: int, norm: nn.Module, args: tuple, x: Tensor) -> Tensor:
        assert self.active is not None
        return norm.forward(args[0] + self.active[site](x))

    def _after(self, site: int, norm: nn.Module, out):
        u = out[0] if isinstance(out, tuple) else out
        assert self.active is not None
        y = u + self.active[site](norm(u))
        return (y, *out[1:]) if isinstance(out, tuple) else y

    def _beside(self, site: int, module: nn.Module, args: tuple, out):
        h = out[0] if isinstance(out, tuple) else out
        assert self.active is not None
        y = h + self.active[site](h)
        return (y, *out[1:]) if isinstance(out, tuple) else y

    def detach(self) -> None:
        """Leave the model as it was."""
        for handle in self._handles:
            handle.remove()
