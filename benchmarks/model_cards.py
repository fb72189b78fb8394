"""Write both model cards from their logs: python benchmarks/model_cards.py"""

from __future__ import annotations

from pathlib import Path

from tss.backbones.card import write_card

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "backbone"

if __name__ == "__main__":
    corpus = (RESULTS / "corpus.md").read_text("utf-8")
    write_card("bart-nano", RESULTS / "nano.jsonl", ROOT / "tss/backbones/embedded/bart-nano", corpus)
    write_card("bart-mini", RESULTS / "mini.jsonl", ROOT / "weights/bart-mini", corpus)
