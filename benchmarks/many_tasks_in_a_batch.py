"""Many tasks in one batch, and hundreds of them at hand, beside PEFT's `adapter_names`, `set_adapter`, `load_adapter`.

    python benchmarks/many_tasks_in_a_batch.py                                     # bart-nano on the CPU
    python benchmarks/many_tasks_in_a_batch.py --device cuda --shape bart-large    # random weights, bfloat16

A batch of 32 texts of 1, 8 or 32 tasks goes through the whole model and its heads; the peer's LoRA has as many added
multiply-adds as our adapters, and both sides read their states with the very same heads. Peer and ours take turns;
medians. The peer runs eager and compiled, and the faster one counts. Exit status 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from bart_large import make_backbone
from ratio import Figure
from torch import Tensor

from tss import Learner, randomness
from tss.learning import probes
from tss.learning.answering import mixed_logits, mixed_pass
from tss.store import TaskRecord
from tss.tasks.batches import Batch
from tss.tasks.kind import ReadingConfig, kind_of
from tss.tasks.lesson import Lesson
from tss.tasks.task import Lengths

ROWS, LABELS, SWITCHES = 32, 3, 500


def plant(learner: Learner, count: int) -> list[str]:
    """Tasks with random gates and heads, written to the store in one step."""
    records, size = [], learner.method.bank.size
    for i in range(count):
        kind = kind_of("classification")([str(n) for n in range(LABELS)], Lengths(), "", ReadingConfig())
        head = Lesson(learner.backbone, kind, f"task {i}", str(i)).head.state_dict()
        meta = {"kind": "classification", "labels": list(kind.labels), "lengths": asdict(kind.lengths), "facts": {}}
        meta |= {"metric": kind.metric, "reading": asdict(kind.reading), "pair": False}
        meta |= {"environment": probes.environment(learner.backbone.device, learner.backbone.model.dtype)}
        gates = torch.rand(size, generator=torch.Generator().manual_seed(i)) > 0.5
        tensors = {f"head.{k}": v.cpu() for k, v in head.items()}
        summary = {"kind": "classification", "labels": LABELS, "scores": {}}
        records.append(TaskRecord(f"task {i}", meta, gates, tensors, {}, summary))
    with learner.store.writing(wait=5.0):
        learner._identify()
        learner.store.add_all(records)
    return [record.name for record in records]


def lora(learner: Learner, rank: int, count: int) -> Any:
    """PEFT's model over a copy of the backbone with `count` random LoRA adapters on all q and v."""
    import copy

    from peft import LoraConfig, get_peft_model

    plain = copy.deepcopy(learner.backbone.model.model)
    plain._forward_hooks.clear()
    for module in plain.modules():
        module._forward_hooks.clear()  # our adapters' hooks were copied along
    config = LoraConfig(r=rank, lora_alpha=rank, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    model = get_peft_model(plain, config, adapter_name="task 0", autocast_adapter_dtype=False)
    for i in range(1, count):
        model.add_adapter(f"task {i}", config, autocast_adapter_dtype=False)
    return model.eval()


def alternate(first: Callable, second: Callable, rounds: int, device: str) -> tuple[float, float]:
    """Median milliseconds of each, taking turns."""
    times: tuple[list[float], list[float]] = [], []
    for turn in range(rounds + 2):
        for found, call in zip(times, (first, second), strict=True):
            if device == "cuda":
                torch.cuda.synchronize()
            begin = time.perf_counter()
            call()
            if device == "cuda":
                torch.cuda.synchronize()
            if turn >= 2:  # the first rounds warm up
                found.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times[0]), statistics.median(times[1])


class TooLong(BaseException):
    """Compiling took longer than was allowed; no error of the compiler's, so that it cannot catch it."""

    @classmethod
    def now(cls, *_: object) -> None:
        raise cls("not compiled in the time allowed (--compile-seconds)")


class Sides:
    """Ours and the peer on the same batch."""

    def __init__(self, learner: Learner, names: list[str], length: int, compile_seconds: int):
        self.compile_seconds = compile_seconds
        self.learner, self.backbone = learner, learner.backbone
        self.tasks = [learner.ready(name) for name in names[:ROWS]]
        ids = randomness.words("batch", ROWS * length) % 4000 + 10
        self.ids = torch.from_numpy(ids.astype("int64")).view(ROWS, length).to(self.backbone.device)
        self.mask = torch.ones_like(self.ids)
        self.batch = Batch(self.ids, self.mask, self.ids, ())
        attentions = sum(name.endswith(("q_proj", "v_proj")) for name, _ in self.backbone.model.named_modules())
        self.rank = round(learner.method.bank.size / (attentions * 2 * self.backbone.width))
        self.peer = lora(learner, self.rank, ROWS)

    @torch.no_grad()
    def ours(self, count: int) -> list[Tensor]:
        tasks, sizes = self.tasks[:count], [ROWS // count] * count
        states = self.backbone.states(self.ids, self.mask, mixed_pass(tasks, sizes))
        return mixed_logits(tasks, sizes, states, self.batch)

    @torch.no_grad()
    def theirs(self, count: int, model: Any = None) -> list[Tensor]:
        tasks, sizes = self.tasks[:count], [ROWS // count] * count
        names = [f"task {i}" for i in range(count) for _ in range(ROWS // count)]
        chosen = {"adapter_names": names} if count > 1 else {}  # one adapter alone is faster without names
        shifted = self.backbone._shifted(self.ids)
        run = self.peer if model is None else model
        out = run(input_ids=self.ids, attention_mask=self.mask, decoder_input_ids=shifted, use_cache=False, **chosen)
        return mixed_logits(tasks, sizes, out[0], self.batch)

    def compiled(self, count: int, mode: str) -> Callable[[], Any] | None:
        """The peer compiled, warmed up, or None where that fails."""
        torch._dynamo.reset()
        torch._dynamo.config.cache_size_limit = 512
        signal.signal(signal.SIGALRM, TooLong.now)
        signal.setitimer(signal.ITIMER_REAL, self.compile_seconds, 1.0)  # again, should it be ignored
        try:
            model = torch.compile(self.peer, **({"backend": mode} if mode == "cudagraphs" else {}))
            for _ in range(3):
                self.theirs(count, model)
        except (Exception, TooLong) as problem:  # whatever the compiler meets, the eager peer is still there
            print(f"  the peer does not compile ({mode}, {count} tasks): {type(problem).__name__} {problem!s:.200}")
            return None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return lambda: self.theirs(count, model)


def batches(sides: Sides, rounds: int, device: str) -> list[Figure]:
    """P2: 1, 8 and 32 tasks in a batch of 32."""
    found: dict[int, tuple[float, float]] = {}
    for count in (1, 8, ROWS):
        ours, peer = alternate(lambda c=count: sides.ours(c), lambda c=count: sides.theirs(c), rounds, device)
        print(f"  {count:2d} tasks: ours {ours:.2f} ms, peer {peer:.2f} ms eager", flush=True)
        for mode in ("inductor", "cudagraphs") if device == "cuda" else ("inductor",):
            call = sides.compiled(count, mode)
            if call is not None:
                _, quick = alternate(lambda c=count: sides.ours(c), call, rounds, device)
                print(f"            peer {quick:.2f} ms compiled ({mode})", flush=True)
                peer = min(peer, quick)
        found[count] = ours, peer
    # Ours against ours in turns of its own: the two must see the same state of the machine.
    many = alternate(lambda: sides.ours(1), lambda: sides.ours(ROWS), rounds, device)
    own = many[1] / many[0]
    return [
        Figure("32 tasks against 1, ours", many[1], many[0], "ms", own, "<= 1.10", own <= 1.10),
        *(
            Figure(f"{c} tasks in a batch of 32", *found[c], "ms", found[c][1] / found[c][0], f">= {g}", ok)
            # on a CPU the backbone's own arithmetic is nearly all there is, on both sides
            for c, g in (((8, 1.5), (ROWS, 3.0)) if device == "cuda" else ((8, 1.0), (ROWS, 1.0)))
            for ok in [found[c][1] / found[c][0] >= g]
        ),
        Figure("1 task in a batch of 32", *found[1], "ms", found[1][1] / found[1][0], "printed beside", None),
    ]


def at_hand(learner: Learner, names: list[str], sides: Sides, rounds: int, device: str, loaded: int) -> list[Figure]:
    """P7: switch, first use and memory with all tasks at hand."""
    few, many = names[:5], names

    def switch(among: list[str]) -> None:
        for i in range(SWITCHES):
            _ = learner.ready(among[i % len(among)]).added

    before = _allocated(device)
    first = []
    learner.resident.clear()
    for name in many:
        begin = time.perf_counter()
        _ = learner.ready(name).added
        if device == "cuda":
            torch.cuda.synchronize()
        first.append(1e3 * (time.perf_counter() - begin))
    ready = [learner.ready(name) for name in many]
    heads = sum(p.nbytes for one in ready for p in one.lesson.head.parameters())
    bits = sum(one.packed.nbytes for one in ready)
    held = _allocated(device) - before - heads if device == "cuda" else bits
    slow, quick = alternate(lambda: switch(many), lambda: switch(few), rounds, device)
    load, set_few, set_many, adapter_bytes = _peer_at_hand(learner, loaded, rounds)
    ours = statistics.median(first[5:])
    ratio_bytes = held / (adapter_bytes * len(many))
    return [
        Figure(
            f"switch, {len(many)} at hand against 5", slow / SWITCHES, quick / SWITCHES, "ms",
            slow / quick, "<= 1.1", slow <= 1.1 * quick,
        ),
        Figure(
            f"peer's set_adapter, {loaded} at hand against 5", set_many, set_few, "ms",
            set_many / set_few, "printed beside", None,
        ),
        Figure("first use from disk", ours, load, "ms", ours / load, "<= 0.333", ours <= load / 3),
        Figure(
            f"bytes of {len(many)} tasks against LoRA r=8 bf16", held / 1e6, adapter_bytes * len(many) / 1e6, "MB",
            ratio_bytes, "<= 0.18", ratio_bytes <= 0.18,
        ),
    ]  # fmt: skip


def _allocated(device: str) -> int:
    return torch.cuda.memory_allocated() if device == "cuda" else 0


def _peer_at_hand(learner: Learner, loaded: int, rounds: int) -> tuple[float, float, float, int]:
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--shape", default="nano", choices=("nano", "bart-large", "toy"))
    parser.add_argument("--tasks", type=int, default=500, help="tasks at hand")
    parser.add_argument("--loaded", type=int, default=40, help="adapters the peer loads: it takes longer with each")
    parser.add_argument("--length", type=int, default=64, help="tokens of a text")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--compile-seconds", type=int, default=300, help="give up compiling the peer after these")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    import peft
    import transformers

    with tempfile.TemporaryDirectory() as folder:
        backbone = "bart-nano"
        if args.shape != "nano":
            backbone = str(Path(folder, "random"))
            make_backbone(Path(backbone), tiny=args.shape == "toy")
        config = {"precision": "bfloat16" if args.device == "cuda" else "float32"}
        learner = Learner.open(Path(folder, "store"), backbone, "supsup", device=args.device, config=config)
        names = plant(learner, max(args.tasks, ROWS))
        sides = Sides(learner, names, args.length, args.compile_seconds)
        print(f"LoRA rank {sides.rank} for equal multiply-adds; {learner.method.bank.size:,} gates a task", flush=True)
        figures = batches(sides, args.rounds, args.device)
        figures += at_hand(learner, names, sides, args.rounds, args.device, args.loaded)
    where = torch.cuda.get_device_name() if args.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    versions = {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__}
    print(f"{args.shape} on {where}; {versions}")
    for one in figures:
        verdict = {True: "reached", False: "MISSED", None: ""}[one.reached]
        told = f"{one.what:48s} ours {one.ours:9.3f} peer {one.peer:9.3f} {one.unit}"
        print(f"{told} ratio {one.ratio:7.3f} goal {one.goal} {verdict}")
    if args.out:
        told = {"shape": args.shape, "where": where, "versions": versions, "figures": [asdict(f) for f in figures]}
        args.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return int(any(one.reached is False for one in figures))


if __name__ == "__main__":
    sys.exit(main())
