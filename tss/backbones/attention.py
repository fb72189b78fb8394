"""Attention on a CPU: in float32 where what is around it computes in less.

In bfloat16 the fused attention of a CPU (torch 2.13) goes backward eight times slower than in float32 and takes half of
a training step, while everything else is faster. `python benchmarks/precision.py` prints what this is worth.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

_NAME = "tss_float32"


def widen(model: PreTrainedModel) -> None:
    """Have `model` attend in float32, if it is of those that attend by torch's fused attention."""
    if model.config._attn_implementation == "sdpa":
        model.set_attn_implementation(_NAME)


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **others: Any
) -> tuple[Tensor, None]:
    wide = torch.promote_types(query.dtype, torch.float32)
    others["position_bias"] = _widened(others.get("position_bias"), wide)
    with torch.autocast(query.device.type, enabled=False):  # it would narrow them again
        found, _ = sdpa_attention_forward(
            module, query.to(wide), key.to(wide), value.to(wide), _widened(attention_mask, wide), **others
        )
    return found.to(query.dtype), None


def _widened(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """What is added to attention as `dtype`; a mask that only says where stays what it is."""
    return mask.to(dtype) if mask is not None and mask.is_floating_point() else mask


AttentionInterface.register(_NAME, _attend)
AttentionMaskInterface.register(_NAME, sdpa_mask)
