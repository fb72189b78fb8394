"""Bytes that one more task takes on disk, beside the files of bottleneck adapters, LoRA and VeRA.

    python benchmarks/bytes_per_task.py --peer-python PYTHON                   # a short chain on bart-nano, learnt here
    python benchmarks/bytes_per_task.py --store STORE --store STORE            # and chains learnt elsewhere

Gates are counted as they lie in the store: packed bits, full at least every 8th task, else the entropy-coded difference
from the parent. Heads and the rest of a file (probes, labels, settings) are counted apart and as a total. BART-large's
shape is simulated: random gates, flips at the rate of the chain measured here; the files are real. `--peer-python`
names an interpreter with the package `adapters`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from ratio import Figure, arguments, finish, one_thread, smaller, versions

from tss import Learner
from tss.store import Store, TaskRecord

LARGE = 24 * 2 * 1024 * 64  # gates of BART-large: one adapter of bottleneck 64 a layer
CHAIN = 19
SHORT = {"max_steps": 12, "batch_size": 16, "eval_steps": 12, "checkpoint_steps": 10**6, "dev_examples": 16}


def measured(path: Path) -> dict[str, Any]:
    """Means over the tasks of a store that keep gates: bits a gate, flips, and bytes by what they hold."""
    store = Store.open(path)
    entries = [entry for entry in store.index().tasks if entry.gate_bytes]
    records = [store.read(entry.name, entry.version) for entry in entries]
    gates = [record.gates for record in records if record.gates is not None]
    heads = [sum(t.nbytes for k, t in one.tensors.items() if k.startswith("head.")) for one in records]
    parents = {entry.file: g for entry, g in zip(entries, gates, strict=True)}
    flips = [float((g ^ parents[e.parent]).float().mean()) for e, g in zip(entries, gates, strict=True) if e.parent]
    count = len(entries)
    return {
        "tasks": count,
        "full": sum(entry.parent is None for entry in entries),
        "bits": 8 * sum(entry.gate_bytes for entry in entries) / sum(g.numel() for g in gates),
        "flips": sum(flips) / len(flips) if flips else 0.5,
        "gate_bytes": sum(entry.gate_bytes for entry in entries) / count,
        "head_bytes": sum(heads) / count,
        "bytes": sum(entry.bytes for entry in entries) / count,
    }


def learnt_chain(path: Path, tasks: int) -> Path:
    """The first tasks of the demo, a few steps each."""
    from dataclasses import replace

    from tss.data.demo import demo_tasks
    from tss.demo import OPTIONS

    learner = Learner.open(path, method="tss", device="cpu", config={**OPTIONS, **SHORT})
    for task in demo_tasks(0)[:tasks]:
        short = {"train": task.train[:64], "valid": task.valid[:8], "test": task.test[:8]}
        learner.learn(replace(task, lengths=replace(task.lengths, beams=1, max_target=8), **short))
    return path


def simulated_chain(path: Path, size: int, flips: float, tasks: int = CHAIN) -> Path:
    """Gates of `size`, each task's a few flips from the one before."""
    dice = torch.Generator().manual_seed(0)
    gates, before = torch.rand(size, generator=dice) < 0.5, None
    store = Store.open(path, create=True)
    with store.writing():
        for number in range(tasks):
            store.add(TaskRecord(f"task {number}", gates=gates), parent=before)
            before = f"task {number}"
            gates = gates ^ (torch.rand(size, generator=dice) < flips)
    return path


def peft_files(small: bool) -> dict[str, int]:
    """Bytes of saved LoRA (r=8, bf16) and VeRA (r=256) adapters on all q and v; words are few, as they do not count."""
    from peft import LoraConfig, VeraConfig, get_peft_model
    from transformers import BartConfig, BartModel

    shape = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2} if small else {}
    targets = {"target_modules": ["q_proj", "v_proj"]}
    found = {}
    for name, config in {
        "LoRA r=8 bf16": LoraConfig(r=8, **targets),
        "VeRA r=256 bf16, projections from a seed": VeraConfig(r=256, save_projection=False, **targets),
        "VeRA r=256 bf16, projections stored": VeraConfig(r=256, **targets),
    }.items():
        model = get_peft_model(BartModel(BartConfig(vocab_size=64, **shape)), config).to(torch.bfloat16)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            found[name] = Path(folder, "adapter_model.safetensors").stat().st_size
    return found


def adapters_file(python: str, small: bool) -> tuple[int, str]:
    config = {"vocab_size": 64, **({"d_model": 64, "encoder_layers": 2, "decoder_layers": 2} if small else {})}
    script = Path(__file__).with_name("adapters_peer.py")
    asked = [python, str(script), "size", json.dumps({"config": config})]
    told = json.loads(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
    return told["bytes"], told["versions"]["adapters"]


def chain_figures(name: str, one: dict[str, Any], goal: bool) -> list[Figure]:
    note = f"{one['tasks']} tasks, {one['full']} with full gates, {one['flips']:.1%} of the gates flip"
    parts = f"gates {one['gate_bytes']:,.0f}, head {one['head_bytes']:,.0f}, whole file {one['bytes']:,.0f} bytes"
    return [smaller(f"bits a gate, {name}", one["bits"], 1.0, "bits", 0.6 if goal else None, f"{note}; {parts}")]


def main() -> int:
    parser = arguments(__doc__, device=False)
    parser.add_argument("--store", type=Path, action="append", default=[], help="a store of a chain")
    parser.add_argument("--name", action="append", default=[], help="what to call it, in the same order")
    parser.add_argument("--tasks", type=int, default=9, help="of the chain that is learnt here; 0: none")
    parser.add_argument("--peer-python", help="an interpreter with the package adapters")
    parser.add_argument("--small", action="store_true", help="a toy in place of BART-large's shape")
    args = parser.parse_args()
    one_thread()
    used, figures, flips = versions("peft"), [], []
    size = 4 * 2 * 64 * 64 if args.small else LARGE
    with tempfile.TemporaryDirectory() as folder:
        chains = dict(zip(args.name or [path.name for path in args.store], args.store, strict=True))
        if args.tasks:
            chains["a short chain on bart-nano"] = learnt_chain(Path(folder, "own"), args.tasks)
        for name, path in chains.items():
            found = measured(path)
            flips.append(found["flips"])
            figures += chain_figures(name, found, goal=found["tasks"] >= CHAIN)
        rate = flips[0] if flips else 0.1
        large = measured(simulated_chain(Path(folder, "large"), size, rate))
        figures += chain_figures("BART-large shape, simulated", large, goal=False)
    full, mean = (size + 7) // 8, large["gate_bytes"]
    if args.peer_python:
        theirs, used["adapters"] = adapters_file(args.peer_python, args.small)
        figures.append(smaller("full gates against a seq_bn r=64 file", full / 1e6, theirs / 1e6, "MB", 1 / 31))
        figures.append(smaller("mean of the chain against a seq_bn r=64 file", mean / 1e6, theirs / 1e6, "MB", 1 / 31))
    for name, theirs in peft_files(args.small).items():
        goal = 0.18 if name.startswith("LoRA") else None
        figures.append(smaller(f"full gates against {name}", full / 1e6, theirs / 1e6, "MB", goal))
        figures.append(smaller(f"mean of the chain against {name}", mean / 1e6, theirs / 1e6, "MB"))
    chains = "chains" if args.store else "a short chain"  # lines of real chains stay beside those of a quick run
    return finish(args, "toy" if args.small else f"BART-large shape and {chains}", "disk", used, figures)


if __name__ == "__main__":
    sys.exit(main())
