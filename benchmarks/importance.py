"""Exact importance, the mean over examples of |gradient|, in one batched backward pass, beside Opacus and torch.func.

    python benchmarks/importance.py                                        # bart-nano on the CPU
    python benchmarks/importance.py --device cuda --shape bart-large

All sides get the same adapters, head and batch and must find the same numbers. Peers: `GradSampleModule` of Opacus over
adapters made of nn.Linear, `vmap(grad)` of torch.func, one example after another, and, as the floor, one plain forward
and backward pass. Numbers are compared on few examples; one after another is timed on 8 and counted for all, as each
costs the same. Peak memory is what tensors held: on a CPU from the profiler, on a GPU from the allocator.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from ratio import Figure, alternate, arguments, faster, finish, one_thread, smaller, versions, where
from shapes import made_lesson, opened
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tss import Learner
from tss.backbones.backbone import Pass
from tss.gates.importance import raw_importance
from tss.tasks.batches import Batch

UNPADDED = ("_ignore_bidirectional_mask_sdpa", "_ignore_causal_mask_sdpa")
Measured = Callable[[Batch], Tensor]
CLOSE = {"rtol": 2e-3, "atol": 1e-6}
SINGLY = "one example at a time"
FEW, ALONE = 9, 8  # examples whose numbers are compared (two pieces of ours); those timed one after another


class Bottlenecks(nn.Module):
    """The adapters as modules, for peers that hook nn.Linear."""

    def __init__(self, matrices: list[Tensor]):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(m.shape[1], m.shape[0], bias=False) for m in matrices)
        for layer, matrix in zip(self.layers, matrices, strict=True):
            layer.weight.data = matrix.detach().clone()

    def function(self, i: int) -> Callable[[Tensor], Tensor]:
        return lambda x: self.layers[2 * i + 1](torch.relu(self.layers[2 * i](x)))

    def forward(self, run: Callable[[list], Tensor]) -> Tensor:
        return run([self.function(i) for i in range(len(self.layers) // 2)])


class Sides:
    """Ours and the peers on one batch; each returns the mean over examples of |gradient|, [size]."""

    def __init__(self, learner: Learner, rows: int, length: int):
        self.bank = learner.method.bank
        self.lesson = made_lesson(learner, rows, length)
        self.batch = self.lesson.batch(self.lesson.train.rows)
        fixed = self.bank.fixed().to(learner.backbone.device, learner.backbone.model.dtype)
        self.weights = fixed * (torch.rand(len(fixed), device=fixed.device) > 0.5)
        self.module = Bottlenecks(self.bank.matrices(self.weights)).to(fixed.device)
        self.lesson.head.requires_grad_(False)

    def few(self, rows: int) -> Batch:
        """The first examples of the batch."""
        batch = self.batch
        return Batch(batch.ids[:rows], batch.mask[:rows], batch.target[:rows], batch.numbers[:rows])

    def losses(self, functions: list, batch: Batch) -> Tensor:
        return self.lesson.row_losses(batch, Pass(functions))

    def plain(self, batch: Batch) -> None:
        leaf = self.weights.detach().clone().requires_grad_(True)
        torch.autograd.grad(self.losses(self.bank.functions(leaf), batch).mean(), leaf)

    def ours(self, batch: Batch) -> Tensor:
        one = torch.ones_like(self.weights, dtype=torch.float32)
        return raw_importance("mean_abs_sample", self.bank, self.weights, one, [batch], self.lesson.row_losses)

    def one_by_one(self, batch: Batch) -> Tensor:
        total = torch.zeros_like(self.weights, dtype=torch.float32)
        for piece in batch.split(len(batch)):
            leaf = self.weights.detach().clone().requires_grad_(True)
            loss = self.losses(self.bank.functions(leaf), piece).sum()
            total += torch.autograd.grad(loss, leaf)[0].float().abs()
        return total / len(batch)

    def functional(self, batch: Batch) -> Tensor:
        state = {name: p.detach() for name, p in self.module.named_parameters()}

        def loss(state: dict, ids: Tensor, mask: Tensor, target: Tensor) -> Tensor:
            one = Batch(ids[None], mask[None], target[None], (0,))
            return functional_call(self.module, state, (lambda functions: self.losses(functions, one),)).sum()

        # transformers asks whether anything is padded by reading the mask, which vmap forbids; here nothing is
        whole = {f"transformers.masking_utils.{name}": True for name in UNPADDED}
        with ExitStack() as told:
            for name, value in whole.items():
                told.enter_context(patch(name, return_value=value))
            each = vmap(grad(loss), in_dims=(None, 0, 0, 0), randomness="different")(
                state, batch.ids, batch.mask, batch.target
            )
        return torch.cat([g.float().abs().mean(dim=0).flatten() for g in each.values()])

    def opacus(self) -> Measured:
        from opacus import GradSampleModule

        module = deepcopy(self.module)  # its hooks stay
        watched = GradSampleModule(module, batch_first=True, loss_reduction="sum")

        def run(batch: Batch) -> Tensor:
            watched.zero_grad()
            watched(lambda functions: self.losses(functions, batch)).sum().backward()
            return torch.cat([p.grad_sample.float().abs().mean(dim=0).flatten() for p in module.parameters()])

        return run


def peak(call: Callable[[], Any], device: str) -> float:
    """Megabytes that tensors held at most, beyond what was there before."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / 1e6
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        call()
    held = most = 0
    changes = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    for change in sorted(changes, key=lambda e: e.start_ns()):
        held += change.nbytes()
        most = max(most, held)
    return most / 1e6


def compare(sides: Sides, device: str, rounds: int) -> list[Figure]:
    few, rows = sides.few(FEW), len(sides.batch)
    found = sides.ours(few)
    sides.plain(few)
    makers: dict[str, Callable[[], Measured]] = {
        SINGLY: lambda: sides.one_by_one,
        "torch.func vmap(grad)": lambda: sides.functional,
        "Opacus": sides.opacus,
    }
    calls: dict[str, Callable[[], Any]] = {"ours": lambda: sides.ours(sides.batch)}
    calls["plain"] = lambda: sides.plain(sides.batch)
    memory = {name: peak(call, device) for name, call in calls.items()}
    for name, make in makers.items():
        try:
            measured = make()
            told = measured(few)
            part = sides.few(ALONE) if name == SINGLY else sides.batch
            call = partial(measured, part)
            memory[name] = peak(call, device)  # warms up, too
        except Exception as problem:  # said, not hidden: a peer that cannot run is no peer
            print(f"  {name} does not run here: {type(problem).__name__}: {str(problem)[:300]}", flush=True)
            continue
        error = float((told - found).norm() / found.norm())
        print(f"  {name}: relative difference {error:.1e}", flush=True)
        if device == "cpu":
            torch.testing.assert_close(told, found, **CLOSE)
        assert error < (1e-4 if device == "cpu" else 3e-2), f"{name} finds other numbers"
        calls[name] = call
    times = alternate(calls, device, rounds, warm=1)
    if rows > ALONE:
        times[SINGLY] *= rows / ALONE
    peers = [name for name in calls if name in makers]
    goals = {"Opacus": 2.0, SINGLY: 5.0}
    notes = {SINGLY: f"{ALONE} of {rows} examples timed"} if rows > ALONE else {}
    return [
        smaller("time against one plain forward and backward", times["ours"], times["plain"], "ms", 1.25),
        smaller("memory against one plain forward and backward", memory["ours"], memory["plain"], "MB", 1.2),
        *(faster(f"time against {p}", times["ours"], times[p], "ms", goals.get(p), notes.get(p, "")) for p in peers),
        *(smaller(f"memory against {p}", memory["ours"], memory[p], "MB") for p in peers),
    ]


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--shape", default="nano", choices=("nano", "mini", "bart-large", "toy"))
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--length", type=int, default=0, help="tokens of a text; 128, on a CPU 32")
    args = parser.parse_args()
    args.length = args.length or (128 if args.device == "cuda" else 32)
    warnings.filterwarnings("ignore")
    if args.device == "cpu":
        one_thread()
    with tempfile.TemporaryDirectory() as folder:
        learner = opened(Path(folder), args.shape, args.device)
        learner.backbone.model.eval()
        figures = compare(Sides(learner, args.rows, args.length), args.device, args.rounds)
    shape = f"{args.shape}, batch {args.rows} x {args.length}, {learner.config.learning.precision}"
    return finish(args, shape, where(args.device), versions("opacus"), figures)


if __name__ == "__main__":
    sys.exit(main())
