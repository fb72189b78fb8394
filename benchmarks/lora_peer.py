"""PEFT's LoRA as a peer: many random adapters over a copy of a backbone, and what of it is compiled."""

from __future__ import annotations

import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tss import Learner


def lora(learner: Learner, rank: int, count: int) -> Any:
    """PEFT's model over a copy of the backbone with `count` random LoRA adapters on all q and v."""
    import copy

    from peft import LoraConfig, get_peft_model

    plain = copy.deepcopy(learner.backbone.model.model)
    for module in plain.modules():
        module._forward_hooks.clear()  # our adapters' hooks were copied along
    config = LoraConfig(r=rank, lora_alpha=rank, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    with torch.device(learner.backbone.device):
        model = get_peft_model(plain, config, adapter_name="task 0", autocast_adapter_dtype=False)
        linears = adapted(model)
        for i in range(1, count):  # as add_adapter does, without its walks through the model: half a second for each
            model.peft_config[f"task {i}"] = config
            for layer in linears:
                layer.update_layer(f"task {i}", rank, rank, config)
    return model.requires_grad_(False).eval()


def adapted(model: nn.Module) -> list[nn.Module]:
    """The linears that PEFT gave adapters."""
    from peft.tuners.lora import LoraLayer

    return [module for module in model.modules() if isinstance(module, LoraLayer)]


def _layers(model: nn.Module) -> list[nn.Module]:
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


REGIONS = {"layer": _layers, "linear": adapted}


class TooLong(BaseException):
    """Compiling took longer than was allowed; no error of the compiler's, so that it cannot catch it."""

    @classmethod
    def now(cls, *_: object) -> None:
        raise cls("not compiled in the time allowed (--compile-seconds)")


@contextmanager
def no_longer_than(seconds: int) -> Iterator[None]:
    signal.signal(signal.SIGALRM, TooLong.now)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # again, should it be ignored
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def loads_and_switches(learner: Learner, loaded: int, rounds: int) -> tuple[float, float, float, int]:
    """PEFT: median of load_adapter, of set_adapter with 5 and with `loaded` adapters, bytes of one (r=8, bf16)."""
    model = lora(learner, 8, 1)
    device = str(learner.backbone.device)
    numbers = sum(p.numel() for name, p in model.named_parameters() if "lora_" in name)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, selected_adapters=["task 0"])
        loads: list[float] = []
        switches: dict[int, float] = {}
        for i in range(1, loaded):
            begin = time.perf_counter()
            model.load_adapter(Path(folder, "task 0"), f"task {i}", torch_device=device, autocast_adapter_dtype=False)
            loads.append(1e3 * (time.perf_counter() - begin))
            if i + 1 in (5, loaded):
                times = []
                for turn in range(max(rounds, 7)):
                    begin = time.perf_counter()
                    model.set_adapter(f"task {turn % 5}")
                    times.append(1e3 * (time.perf_counter() - begin))
                switches[i + 1] = statistics.median(times)
    return statistics.median(loads), switches[5], switches[loaded], 2 * numbers
