"""A training step of TSS beside full fine-tuning, the same adapters trained directly, and bottleneck adapters.

    python benchmarks/training_step.py                                         # bart-nano on the CPU, float32
    python benchmarks/training_step.py --device cuda --shape bart-large        # random weights, bfloat16, 32 x 128

Ours is the training loop's own step: gates, straight-through gradient, guard, soft mask, AdamW, without and with the
option `compile`. Peers are plain PyTorch on the same backbone and head: eager, compiled and, on a GPU, the whole step
of either recorded as one CUDA graph; the fastest counts. A turn on a GPU is 32 steps of a side. `--peer-python` names
an interpreter with the package `adapters`, whose step is then timed in its own process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from ratio import Figure, alternate, arguments, faster, finish, one_thread, smaller, versions, where
from shapes import made_lesson, many_variants, opened
from torch import Tensor, nn

from tss import Learner
from tss.backbones.backbone import Pass
from tss.learning.loop import Training
from tss.learning.schedule import LearningConfig
from tss.tasks.lesson import Lesson

TURN = 32  # steps


def our_step(learner: Learner, lesson: Lesson, rows: int, compiled: bool = False) -> Callable[[], Any]:
    """The loop's step on one batch, in the middle of a sequence: the soft mask is there."""
    method: Any = learner.method
    method.importance = torch.full((method.bank.size,), 0.5, device=method.device)
    method.latest = None
    method.begin(lesson, None)
    config = LearningConfig(
        batch_size=rows, max_steps=10**6, precision=learner.config.learning.precision, compile=compiled
    )
    training = Training([lesson], method, config, None, None)
    _, batch = next(training._stream(0))

    def step() -> None:
        training._step(lesson, batch)
        if training.recorder.trouble:
            print(f"  ours {'compiled' if compiled else 'plain'}: {training.recorder.trouble}", flush=True)
            training.recorder.trouble = ""

    return step


class Peer:
    """A step of plain PyTorch: `parameters` are trained by AdamW on the loss of a pass."""

    def __init__(self, lesson: Lesson, parameters: list[Tensor], passing: Callable[[], Pass], rows: int):
        self.lesson, self.passing = lesson, passing
        self.batch = lesson.batch(lesson.train.rows[:rows])
        self.device = lesson.backbone.device.type
        self.parameters = [*parameters, *lesson.head.parameters()]
        self.optimiser = torch.optim.AdamW(
            self.parameters, lr=1e-5, fused=True, capturable=self.device == "cuda", weight_decay=0.0
        )

    def loss(self) -> Tensor:
        return self.lesson.loss(self.batch, self.passing())

    def step(self, loss: Callable[[], Tensor] | None = None) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        (loss or self.loss)().backward()
        self.optimiser.step()

    def ways(self, compiled: bool) -> dict[str, Callable[[], Any]]:
        """Eager, compiled and recorded, each warmed up; those that fail are left out with a word."""
        quick = torch.compile(self.loss)
        makers: dict[str, Callable[[], Callable[[], Any]]] = {"eager": lambda: self.step}
        if compiled:
            makers["compiled"] = lambda: lambda: self.step(quick)
        if self.device == "cuda":
            makers["graph"] = lambda: self._graph(self.loss)
        if self.device == "cuda" and compiled:
            makers["compiled graph"] = lambda: self._graph(quick)
        found: dict[str, Callable[[], Any]] = {}
        for name, make in makers.items():
            begin = time.perf_counter()
            try:
                call = make()
                for _ in range(3):
                    call()
                found[name] = call
            except Exception as problem:  # whatever a compiler meets, the eager peer is still there
                print(f"  a peer does not run {name}: {type(problem).__name__}: {str(problem)[:200]}", flush=True)
            print(f"  a peer {name}: ready in {time.perf_counter() - begin:.0f} s", flush=True)
        return found

    def _graph(self, loss: Callable[[], Tensor]) -> Callable[[], Any]:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step(loss)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        self.optimiser.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            loss().backward()
            self.optimiser.step()
        return graph.replay


def direct_adapters(learner: Learner, lesson: Lesson, rows: int, biases: bool) -> Peer:
    """The same adapters trained themselves, a parameter a matrix; `biases`: as bottleneck adapters have them."""
    bank, dtype = learner.method.bank, learner.backbone.model.dtype
    flat = bank.near_identity("direct").to(learner.backbone.device, dtype)
    weights = [nn.Parameter(m.clone()) for m in bank.matrices(flat)]
    added: list[Any] = [None] * len(weights)
    if biases:
        added = [nn.Parameter(torch.zeros(w.shape[0], device=w.device, dtype=dtype)) for w in weights]

    def function(i: int) -> Callable[[Tensor], Tensor]:
        down, up, inner, outer = weights[2 * i], weights[2 * i + 1], added[2 * i], added[2 * i + 1]
        return lambda x: F.linear(F.relu(F.linear(x, down, inner)), up, outer)

    functions = [function(i) for i in range(bank.count)]
    return Peer(lesson, [*weights, *(b for b in added if b is not None)], lambda: Pass(functions), rows)


def full_tuning(learner: Learner, lesson: Lesson, rows: int) -> Peer:
    model = learner.backbone.model.requires_grad_(True)
    kept = [p for name, p in model.named_parameters() if "lm_head" not in name]
    return Peer(lesson, kept, lambda: Pass(), rows)


def packaged(python: str, length: int, rows: int, config: dict[str, Any], device: str) -> tuple[float, str]:
    """Milliseconds of a step of the package `adapters` (seq_bn, r=64) in its own interpreter, and how."""
    script = Path(__file__).with_name("adapters_peer.py")
    given = json.dumps({"rows": rows, "length": length, "config": config, "device": device})
    found = subprocess.run([python, script, "step", given], capture_output=True, text=True, check=True)
    told = json.loads(found.stdout.splitlines()[-1])
    return told["ms"], f"in its own process: {told['ways']}; {told['versions']}"


def in_turns(calls: dict[str, Callable[[], Any]], args: Any, warm: int = 2) -> dict[str, float]:
    """Median milliseconds of a step. On a GPU a turn is several steps: no training waits for the end of each."""
    steps = TURN if args.device == "cuda" else 1

    def several(call: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: [call() for _ in range(steps)]

    found = alternate({name: several(call) for name, call in calls.items()}, args.device, args.repeats, warm)
    return {name: value / steps for name, value in found.items()}


def compare(learner: Learner, args: Any) -> list[Figure]:
    rows, length = args.rows, args.length
    learner.backbone.model.train()
    lesson = made_lesson(learner, rows, length)
    ours, own = _quicker(lambda compiled: our_step(learner, lesson, rows, compiled), args)

    def adapters(biases: bool) -> tuple[float, float, str, dict[str, float]]:
        """Ours, the fastest peer, how, and all peers: in turns, as what a machine does meanwhile hits both."""
        found = in_turns({"ours": ours, **direct_adapters(learner, lesson, rows, biases).ways(args.compile)}, args)
        mine = found.pop("ours")
        return mine, min(found.values()), _told(own, found), found

    mine, direct, how, _ = adapters(biases=False)
    figures = [smaller("step against the same adapters trained directly", mine, direct, "ms", 1.05, how)]
    if args.only == "adapters":
        return figures
    mine, biased, how, every = adapters(biases=True)
    full = full_tuning(learner, lesson, rows).ways(args.compile)
    learner.backbone.model.requires_grad_(False)
    found = _against_full(ours, full, learner, args)
    beside = found.pop("ours")
    figures += [
        faster("step against full fine-tuning", beside, min(found.values()), "ms", 1.4, _told(own, found)),
        faster("step against plain bottleneck adapters, fastest", mine, biased, "ms", None, how),
        faster("step against bottleneck adapters, eager", mine, every["eager"], "ms",
               1.15 if args.device == "cuda" else None, "plain PyTorch"),
    ]  # fmt: skip
    if args.peer_python:
        theirs, told = packaged(args.peer_python, length, rows, learner.backbone.model.config.to_dict(), args.device)
        figures.append(faster("step against the package adapters (seq_bn)", mine, theirs, "ms", 1.15, told))
    return figures


def _told(own: str, found: dict[str, float]) -> str:
    return f"ours {own}; " + ", ".join(f"{way} {value:.2f} ms" for way, value in found.items())


def _quicker(make: Callable[[bool], Callable], args: Any) -> tuple[Callable, str]:
    """Our own step as the loop makes it, or with `compile`, whichever is quicker here: users may choose, too."""
    call, times = make(False), {}
    times["plain"] = in_turns({"": call}, args, warm=3)[""]
    if args.compile:  # a new training takes the method from the one before, so one after the other
        call = make(True)
        times["compiled"] = in_turns({"": call}, args, warm=3)[""]
        if times["plain"] < times["compiled"]:
            call = make(False)
    return call, ", ".join(f"{one} {value:.2f} ms" for one, value in times.items())


def _against_full(ours: Callable, ways: dict[str, Callable], learner: Learner, args: Any) -> dict[str, float]:
    """Full fine-tuning needs gradients of the backbone, ours must not pay for them: the switch is not timed."""
    model, found = learner.backbone.model, {}
    for name, call in {"ours": ours, **ways}.items():
        model.requires_grad_(name != "ours")
        found |= in_turns({name: call}, args)
    model.requires_grad_(False)
    return found


def main() -> int:
    parser = arguments(__doc__, device=False)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--shape", default="nano", choices=("nano", "mini", "bart-large", "toy"))
    parser.add_argument("--rows", type=int, default=0, help="of a batch; 32, on a CPU 16")
    parser.add_argument("--length", type=int, default=0, help="tokens of a text; 128, on a CPU 64")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--peer-python", help="an interpreter with the package adapters")
    parser.add_argument("--only", choices=("adapters",), help="beside the same adapters trained directly and no other")
    args = parser.parse_args()
    args.rows = args.rows or (32 if args.device == "cuda" else 16)
    args.length = args.length or (128 if args.device == "cuda" else 64)
    if args.device == "cpu":
        one_thread()
    if args.compile:
        many_variants()
    with tempfile.TemporaryDirectory() as folder:
        learner = opened(Path(folder), args.shape, args.device)
        figures = compare(learner, args)
    shape = f"{args.shape}, batch {args.rows} x {args.length}, {learner.config.learning.precision}"
    shape += f", {args.only} only" if args.only else ""
    return finish(args, shape, where(args.device), versions(), figures)


if __name__ == "__main__":
    sys.exit(main())
