"""Many tasks in one batch, and hundreds of them at hand, beside PEFT's `adapter_names`, `set_adapter`, `load_adapter`.

    python benchmarks/many_tasks_in_a_batch.py                                     # bart-nano on the CPU
    python benchmarks/many_tasks_in_a_batch.py --device cuda --shape bart-large    # random weights, bfloat16

A batch of 32 texts of 1, 8 or 32 tasks goes through the whole model and its heads; the peer's LoRA has as many added
multiply-adds as our adapters, and both sides read their states with the very same heads. Peer and ours take turns;
medians. The peer runs eager and compiled, and the faster one counts. It is compiled region by region: every layer
(`--region linear`: every linear with its adapters), so that one encoder layer and one decoder layer are compiled and
all others use them. The whole model at once is no form here: every layer would be compiled anew (24 small layers on one
CPU core: two minutes for one task, not ten seconds), and with 8 or 32 tasks that never ended in the time there was.
On a GPU both sides are also recorded as a CUDA graph, good for one set of tasks only, and compared beside.
What was measured is written after every part, so that a run that is cut leaves it. Exit status 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import torch
from lora_peer import REGIONS, TooLong, adapted, loads_and_switches, lora, no_longer_than
from ratio import Figure, alternate, faster, one_thread, smaller, synchronise, versions, where
from shapes import LABELS, opened
from torch import Tensor, nn

from tss import Learner, randomness
from tss.backbones.recorded import Recorder
from tss.learning import probes
from tss.learning.answering import mixed_logits, mixed_pass
from tss.store import TaskRecord
from tss.tasks.batches import Batch
from tss.tasks.kind import ReadingConfig, kind_of
from tss.tasks.lesson import Lesson
from tss.tasks.task import Lengths

ROWS, SWITCHES = 32, 500


def plant(learner: Learner, count: int) -> list[str]:
    """Tasks with random gates and heads, written to the store in one step."""
    records, size = [], learner.method.bank.size
    drawn = torch.rand(size + count, generator=torch.Generator().manual_seed(0)) > 0.5
    kind = kind_of("classification")([str(n) for n in range(LABELS)], Lengths(), "", ReadingConfig())
    for i in range(count):
        head = Lesson(learner.backbone, kind, f"task {i}", str(i)).head.state_dict()
        meta = {"kind": "classification", "labels": list(kind.labels), "lengths": asdict(kind.lengths), "facts": {}}
        meta |= {"metric": kind.metric, "reading": asdict(kind.reading), "pair": False}
        meta |= {"environment": probes.environment(learner.backbone.device, learner.backbone.model.dtype)}
        gates = drawn[i : i + size]  # unlike any other task's by half, and millions are drawn once only
        tensors = {f"head.{k}": v.cpu() for k, v in head.items()}
        summary = {"kind": "classification", "labels": LABELS, "scores": {}}
        records.append(TaskRecord(f"task {i}", meta, gates, tensors, {}, summary))
    with learner.store.writing(wait=5.0):
        learner._identify()
        learner.store.add_all(records)
    return [record.name for record in records]


class Sides:
    """Ours and the peer on the same batch; each form gives the logits of every task."""

    def __init__(self, learner: Learner, names: list[str], length: int):
        self.learner, self.backbone = learner, learner.backbone
        self.tasks = [learner.ready(name) for name in names[:ROWS]]
        ids = randomness.words("batch", ROWS * length) % 4000 + 10
        self.ids = torch.from_numpy(ids.astype("int64")).view(ROWS, length).to(self.backbone.device)
        self.mask = torch.ones_like(self.ids)
        self.batch = Batch(self.ids, self.mask, self.ids, ())
        attentions = sum(name.endswith(("q_proj", "v_proj")) for name, _ in self.backbone.model.named_modules())
        self.rank = round(learner.method.bank.size / (attentions * 2 * self.backbone.width))
        self.peer = lora(learner, self.rank, ROWS)
        self.compiled: dict[nn.Module, Callable] = {}  # regions of the peer that are used compiled

    def _read(self, count: int, states: Tensor) -> list[Tensor]:
        return mixed_logits(self.tasks[:count], [ROWS // count] * count, states, self.batch)

    def _our_states(self, count: int, ids: Tensor, mask: Tensor) -> Tensor:
        return self.backbone.states(ids, mask, mixed_pass(self.tasks[:count], [ROWS // count] * count))

    def _their_states(self, count: int, compiled: bool, ids: Tensor, mask: Tensor) -> Tensor:
        for region, call in self.compiled.items():
            region._compiled_call_impl = call if compiled else None
        names = [f"task {i}" for i in range(count) for _ in range(ROWS // count)]
        chosen = {"adapter_names": names} if count > 1 else {}  # one adapter alone is faster without names
        shifted = self.backbone._shifted(ids)
        out = self.peer(input_ids=ids, attention_mask=mask, decoder_input_ids=shifted, use_cache=False, **chosen)
        return out[0]

    @torch.no_grad()
    def ours(self, count: int) -> list[Tensor]:
        return self._read(count, self._our_states(count, self.ids, self.mask))

    @torch.no_grad()
    def theirs(self, count: int, compiled: bool = False) -> list[Tensor]:
        return self._read(count, self._their_states(count, compiled, self.ids, self.mask))

    def forms(self, count: int, region: str, seconds: int) -> dict[str, Callable[[], list[Tensor]]]:
        """The peer and ours in all the forms that run here, warmed up, with the numbers of the plain one."""
        found = {"ours": lambda: self.ours(count), "eager": lambda: self.theirs(count)}
        if region in REGIONS:
            self._try(found, "compiled", "eager", lambda: self._compiled(count, region, seconds))
        if self.backbone.device.type == "cuda":
            for name, like in (("ours graph", "ours"), ("graph", "eager"), ("compiled graph", "compiled")):
                if like in found:
                    self._try(found, name, like, lambda like=like: self._recorded(count, like))
        return found

    def _try(self, found: dict[str, Callable], name: str, like: str, make: Callable[[], Callable]) -> None:
        begin = time.perf_counter()
        try:
            call = make()
            self.same(call(), found[like]())
            found[name] = call
            print(f"  {name}: ready in {time.perf_counter() - begin:.1f} s", flush=True)
        except (Exception, TooLong) as problem:  # whatever a compiler meets, the plain form is still there
            for module in adapted(self.peer):  # PEFT leaves the hooks of a pass that failed, and their adapters' names
                module._forward_pre_hooks.clear()
            print(f"  {name}: left out, {type(problem).__name__}: {problem!s:.200}", flush=True)

    def same(self, found: list[Tensor], plain: list[Tensor]) -> None:
        one, other = torch.cat(found), torch.cat(plain)
        if self.backbone.device.type == "cpu":
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
        error = float((one - other).norm() / other.norm())
        assert error < 3e-2, f"other numbers than the plain form: relative difference {error:.1e}"  # bfloat16

    def _compiled(self, count: int, region: str, seconds: int) -> Callable[[], list[Tensor]]:
        import torch._dynamo

        torch._dynamo.reset()
        self.compiled = {}
        for module in REGIONS[region](self.peer):
            module.compile(dynamic=False)
            self.compiled[module] = module._compiled_call_impl
        counters = torch._dynamo.utils.counters["stats"]
        before = counters["unique_graphs"]
        with no_longer_than(seconds):
            for _ in range(2):
                self.theirs(count, compiled=True)
        print(f"  {len(self.compiled)} regions, {counters['unique_graphs'] - before} graphs compiled", flush=True)
        return lambda: self.theirs(count, compiled=True)

    def _recorded(self, count: int, like: str) -> Callable[[], list[Tensor]]:
        """The backbone's pass as one CUDA graph, good for this set of tasks; the heads are read as ever."""
        recorder = Recorder(True)

        def states(ids: Tensor, mask: Tensor) -> tuple[Tensor]:
            if like == "ours":
                return (self._our_states(count, ids, mask),)
            return (self._their_states(count, like == "compiled", ids, mask),)

        @torch.no_grad()
        def call() -> list[Tensor]:
            found = recorder(like, states, self.ids, self.mask)[0]
            assert found is not None
            return self._read(count, found)

        for _ in range(2):
            call()
        if recorder.trouble:
            raise RuntimeError(recorder.trouble)
        return call


def batches(sides: Sides, rounds: int, device: str, region: str, seconds: int) -> Iterator[Figure]:
    """P2: 8, 32 and 1 tasks in a batch of 32."""
    # Ours against ours in turns of its own: the two must see the same state of the machine.
    many = alternate({"1": lambda: sides.ours(1), "32": lambda: sides.ours(ROWS)}, device, rounds)
    yield smaller("32 tasks against 1, ours", many["32"], many["1"], "ms", 1.10)
    # on a CPU the backbone's own arithmetic is nearly all there is, on both sides
    goals = {8: 1.5, ROWS: 3.0} if device == "cuda" else {8: 1.0, ROWS: 1.0}
    for count in (8, ROWS, 1):
        name = f"{count} task{'s' if count > 1 else ''} in a batch of 32"
        print(name, flush=True)
        found = alternate(sides.forms(count, region, seconds), device, rounds)
        told = ", ".join(f"{form} {value:.2f} ms" for form, value in found.items())
        print(f"  {told}", flush=True)
        peer = min(found[form] for form in ("eager", "compiled") if form in found)
        note = told if "compiled" in found else f"{told}; the peer was not compiled"
        yield faster(name, found["ours"], peer, "ms", goals.get(count), note)
        graphs = [found[form] for form in ("graph", "compiled graph") if form in found]
        if graphs and "ours graph" in found:
            yield faster(f"{name}, both recorded for one set of tasks", found["ours graph"], min(graphs), "ms")


def at_hand(learner: Learner, names: list[str], rounds: int, device: str, loaded: int) -> Iterator[Figure]:
    """P7: switch, first use and memory with all tasks at hand. Comes first: none of them is in memory yet."""
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
        synchronise(device)
        first.append(1e3 * (time.perf_counter() - begin))
    ready = [learner.ready(name) for name in many]
    heads = sum(p.nbytes for one in ready for p in one.lesson.head.parameters())
    bits = sum(one.packed.nbytes for one in ready)
    held = _allocated(device) - before - heads if device == "cuda" else bits
    time.sleep(2.1)  # until then the index was written too lately to be known by its times, and is read every time
    turns = alternate({"many": lambda: switch(many), "few": lambda: switch(few)}, device, rounds)
    what = f"switch, {len(many)} at hand against 5"
    yield smaller(what, turns["many"] / SWITCHES, turns["few"] / SWITCHES, "ms", 1.1)
    load, set_few, set_many, adapter_bytes = loads_and_switches(learner, loaded, rounds)
    yield smaller(f"peer's set_adapter, {loaded} at hand against 5", set_many, set_few, "ms")
    yield smaller("first use from disk", statistics.median(first[5:]), load, "ms", 1 / 3)
    theirs = adapter_bytes * len(many) / 1e6
    yield smaller(f"bytes of {len(many)} tasks against LoRA r=8 bf16", held / 1e6, theirs, "MB", 0.18)


def _allocated(device: str) -> int:
    return torch.cuda.memory_allocated() if device == "cuda" else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--shape", default="nano", choices=("nano", "mini", "bart-large", "toy"))
    parser.add_argument("--tasks", type=int, default=500, help="tasks at hand")
    parser.add_argument("--loaded", type=int, default=40, help="adapters the peer loads: it takes longer with each")
    parser.add_argument("--length", type=int, default=64, help="tokens of a text")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--region", default="layer", choices=(*REGIONS, "none"), help="what of the peer is compiled")
    parser.add_argument("--compile-seconds", type=int, default=300, help="give up compiling the peer after these")
    parser.add_argument("--only", choices=("at-hand", "batches"), help="P7 or P2 alone")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    if args.device == "cpu":
        one_thread()
    begin, figures = time.perf_counter(), []
    shape = f"{args.shape}, {args.only} only" if args.only else args.shape
    head = {"shape": shape, "where": where(args.device), "versions": versions("peft")}
    print(f"{head['shape']} on {head['where']}; {head['versions']}", flush=True)
    for one in measured(args):
        figures.append(one)
        verdict = {True: "reached", False: "MISSED", None: ""}[one.reached]
        told = f"{one.what:48s} ours {one.ours:9.3f} peer {one.peer:9.3f} {one.unit}"
        print(
            f"[{time.perf_counter() - begin:.0f} s] {told} ratio {one.ratio:7.3f} goal {one.goal} {verdict}", flush=True
        )
        if args.out:
            line = {**head, "figures": [asdict(figure) for figure in figures]}
            args.out.write_text(json.dumps(line, indent=1) + "\n", encoding="utf-8")
    return int(any(one.reached is False for one in figures))


def measured(args: argparse.Namespace) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        learner = opened(Path(folder), args.shape, args.device, "supsup")
        names = plant(learner, max(args.tasks, ROWS))
        if args.only != "batches":
            yield from at_hand(learner, names, args.rounds, args.device, args.loaded)
        if args.only == "at-hand":
            return
        sides = Sides(learner, names, args.length)
        print(f"LoRA rank {sides.rank} for equal multiply-adds; {learner.method.bank.size:,} gates a task", flush=True)
        yield from batches(sides, args.rounds, args.device, args.region, args.compile_seconds)


if __name__ == "__main__":
    sys.exit(main())
