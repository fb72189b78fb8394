"""A training step of TSS on a CPU: in bfloat16 beside float32, and beside bfloat16 with torch's own attention.

    python benchmarks/precision.py                # bart-mini, one thread
    python benchmarks/precision.py --shape nano

Processors with instructions for bfloat16 (AVX-512 BF16, AMX) multiply faster in it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ratio import ROUNDS, alternate, arguments, faster, finish, one_thread, versions, where
from shapes import STORED, made_lesson, opened
from training_step import our_step


def step(folder: Path, precision: str, fused: bool, args: Any) -> Callable[[], Any]:
    learner = opened(folder, args.shape, "cpu", precision=precision)
    if fused:
        learner.backbone.model.set_attn_implementation("sdpa")
    learner.backbone.model.train()
    return our_step(learner, made_lesson(learner, args.rows, args.length), args.rows)


def main() -> int:
    parser = arguments(__doc__, device=False)
    parser.add_argument("--shape", default="mini", choices=tuple(STORED))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--length", type=int, default=64)
    args = parser.parse_args()
    one_thread()
    sides = {"ours": ("bfloat16", False), "float32": ("float32", False), "fused": ("bfloat16", True)}
    with tempfile.TemporaryDirectory() as folder:
        calls = {name: step(Path(folder, name), *kind, args) for name, kind in sides.items()}
        found = alternate(calls, "cpu", args.rounds)
    figures = [
        faster("bfloat16 step against the float32 step", found["ours"], found["float32"], "ms"),
        faster("bfloat16 step against one with fused attention", found["ours"], found["fused"], "ms"),
    ]
    return finish(args, f"{args.shape}, batch {args.rows} x {args.length}", where("cpu"), versions(), figures)


if __name__ == "__main__":
    sys.exit(main())
