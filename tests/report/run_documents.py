"""A made-up run that looks like a real one: 12 tasks, five families, three methods."""

from __future__ import annotations

import random
from math import exp
from typing import Any

TASKS = [
    ("reviews of cameras", "classification", "sentiment", "similar", "macro-F1", 78),
    ("entities in news", "tagging", "entities", "similar", "entity F1", 62),
    ("reviews of hotels", "classification", "sentiment", "similar", "macro-F1", 81),
    ("topics of questions", "classification", "topics", "dissimilar", "macro-F1", 88),
    ("replies about trains", "generation", "replies", "dissimilar", "BLEU", 34),
    ("reviews of headphones", "classification", "sentiment", "similar", "macro-F1", 76),
    ("entities in sport", "tagging", "entities", "similar", "entity F1", 65),
    ("summaries of meetings", "generation", "summaries", "dissimilar", "ROUGE-1", 41),
    ("reviews of laptops", "classification", "sentiment", "similar", "macro-F1", 79),
    ("entities in science", "tagging", "entities", "similar", "entity F1", 58),
    ("replies about hotels", "generation", "replies", "dissimilar", "BLEU", 31),
    ("reviews of phones", "classification", "sentiment", "similar", "macro-F1", 80),
]


def run_document(count: int = 12, seed: int = 0, methods: tuple[str, ...] = ("tss", "supsup", "one-adapter")) -> dict:
    """A run of the first `count` tasks. `ncl` is a method that forgets; any other name acts like `supsup`."""
    tasks = [dict(zip(("name", "kind", "family", "group", "metric"), task[:5], strict=True)) for task in TASKS[:count]]
    return {
        "title": "Twelve tasks, one frozen model",
        "command": f"tss demo --seed {seed}",
        "environment": {"python": "3.11.4", "torch": "2.13.0", "backbone": "bart-nano", "device": "cpu, 2 threads"},
        "seed": seed,
        "tasks": tasks,
        "methods": {method: _method(method, count, seed) for method in methods},
        "proof": {
            method: {
                "comparisons": count * (count - 1) // 2,
                "outputs": 80 * count * (count - 1) // 2,
                "changed_bytes": 0,
            }
            for method in methods
            if method in ("tss", "supsup")
        },
        "reference": "one-adapter" if "one-adapter" in methods else None,
    }


def _method(method: str, count: int, seed: int) -> dict[str, Any]:
    draw = random.Random(f"{method} {seed}")
    forgets, gated = method == "ncl", method in ("tss", "supsup")
    diagonal = []
    for i, (*_, group, _metric, level) in enumerate(TASKS[:count]):
        gain = min(i, 6) * 1.1 if method == "tss" and group == "similar" else 0.0
        diagonal.append(level + gain + draw.gauss(-1.5 if method == "supsup" else 0, 1.6))
    lost = [[(k - i) * draw.uniform(1, 4) if forgets else 0.0 for i in range(count)] for k in range(count)]
    matrix = [[max(diagonal[i] - lost[k][i], 5) if i <= k else None for i in range(count)] for k in range(count)]
    head = [0 if TASKS[i][1] == "generation" else 3_100 + 512 * (i % 3) for i in range(count)]
    gates = 24_576 if gated else 0
    return {
        "label": {"tss": "TSS", "supsup": "SupSup", "one-adapter": "ONE (Adapter)", "ncl": "NCL (Adapter)"}.get(
            method, method
        ),
        "forgets": forgets,
        "matrix": matrix,
        "bytes": [(gates or 790_000) + h + 2_048 for h in head],
        "gate_bytes": [gates] * count,
        "head_bytes": head,
        "open_gates": [0.5 + 0.03 * draw.random() for _ in range(count)] if gated else [None] * count,
        "flips": [0.16 * exp(-i / 5) + 0.01 * draw.random() if method == "tss" else None for i in range(count)],
        "importance": [0.9 * (1 - exp(-(i + 1) / 4)) if method == "tss" else None for i in range(count)],
        "seconds": [draw.uniform(7, 11) for _ in range(count)],
        "steps": [110] * count,
        "curves": [_curve(score, draw) for score in diagonal],
        "overlap": _overlap(count, draw, inherits=method == "tss") if gated else None,
    }


def _curve(score: float, draw: random.Random) -> list[list[float | None]]:
    return [
        [
            step,
            2.2 * exp(-step / 35) + 0.25 + 0.05 * draw.random(),
            score * (1 - exp(-step / 25)) if step % 20 == 0 else None,
        ]
        for step in range(10, 111, 10)
    ]


def _overlap(count: int, draw: random.Random, inherits: bool) -> list[list[float]]:
    share = [[1.0] * count for _ in range(count)]
    for i in range(count):
        for j in range(i):
            share[i][j] = share[j][i] = (0.95 - 0.05 * min(i - j, 7) if inherits else 0.49) + 0.02 * draw.random()
    return share
