"""A backbone of BART-large's shape with random weights: learn a task, reload it in a new learner, answer the same.

    python benchmarks/bart_large.py --data DATA --device cuda --out results/backbone/bart_large.json

Shows what swapping in `facebook/bart-large` needs: gates, peak memory, steps per second, bytes per task. Random weights
cost what real ones cost; the scores mean nothing. `--tiny` runs the same script on a toy shape.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path


def make_backbone(folder: Path, tiny: bool) -> None:
    """BART-large's architecture, freshly initialised, with the tokenizer of the embedded backbone."""
    import torch
    from transformers import BartConfig, BartForConditionalGeneration

    from tss.backbones.load import available

    small = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128}
    torch.manual_seed(0)
    config = BartConfig(decoder_start_token_id=2, **(small if tiny else {}))  # the defaults are BART-large
    BartForConditionalGeneration(config).save_pretrained(folder)
    for file in available()["bart-nano"].glob("tokenizer*.json"):
        (folder / file.name).write_bytes(file.read_bytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()

    import torch

    from tss import Learner
    from tss.data.sequences import load_task

    task = load_task(args.data, "asc/nokia6600")
    task = replace(task, test=task.test[:32], valid=task.valid[:32])
    with tempfile.TemporaryDirectory() as folder:
        make_backbone(Path(folder, "random-large"), args.tiny)
        precision = "bfloat16" if args.device == "cuda" else "float32"
        config = {"max_steps": args.steps, "precision": precision, "checkpoint_steps": 10**6}
        where = {"backbone": str(Path(folder, "random-large")), "device": args.device}
        settings = {**where, "method": "tss", "config": config}
        learner = Learner.open(Path(folder, "store"), **settings)
        learned = learner.learn(task)
        texts = [example.input for example in task.test]
        answers = learner.predict(task.name, texts, details=True)
        peak = torch.cuda.max_memory_allocated() if args.device == "cuda" else 0
        parameters = sum(p.numel() for p in learner.backbone.model.parameters())
        gates = learner.method.bank.size
        del learner
        started = time.perf_counter()
        again = Learner.open(Path(folder, "store"), device=args.device)
        same = again.predict(task.name, texts, details=True) == answers
        check = again.verify()[0]
        seconds = time.perf_counter() - started
    result = {
        "parameters": parameters,
        "gates": gates,
        "gate_bytes": learned.gate_bytes,
        "task_bytes": learned.bytes,
        "steps_per_second": round(learned.steps / learned.seconds, 2),
        "batch": "32 texts of at most 128 tokens",
        "peak_gpu_memory_bytes": peak,
        "reload_and_verify_seconds": round(seconds, 1),
        "answers_equal_after_reload": same,
        "verify": check.status,
        "device": torch.cuda.get_device_name() if args.device == "cuda" else "cpu",
        "precision": precision,
    }
    text = json.dumps(result, indent=1)
    print(text)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(text + "\n")
    if not (same and check.status == "equal"):
        raise SystemExit("the reloaded task does not answer as before")


if __name__ == "__main__":
    main()
