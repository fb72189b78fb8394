"""Texts by beam search: ours against transformers' own `generate` of the same model, inputs and limits, in one run.

    python benchmarks/beams.py                      # bart-mini, inputs of 1,024 tokens, 128 tokens written by 4 beams
    python benchmarks/beams.py --device cuda --rows 64 --dtype bfloat16

Both must write the same tokens. Ours leaves the encoder's states where they are when beams change places.
"""

from __future__ import annotations

import sys

import torch
from ratio import alternate, arguments, faster, finish, one_thread, versions, where

from tss.backbones.backbone import Pass
from tss.backbones.load import load_backbone

LIMITS = {"max_tokens": 128, "min_tokens": 56, "beams": 4, "no_repeat": 3}


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--backbone", default="bart-mini")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--dtype", default="float32")
    given = parser.parse_args()
    if given.device == "cpu":
        one_thread()
    backbone = load_backbone(given.backbone, device=given.device, dtype=given.dtype)
    chance = torch.Generator().manual_seed(0)
    size, words = (given.rows, given.tokens), backbone.model.config.vocab_size
    ids = torch.randint(100, words, size, generator=chance).to(given.device)
    mask = torch.ones_like(ids)
    config = backbone._generation(**LIMITS, decoder_start_token_id=backbone.start)

    def peer() -> list[list[int]]:
        with torch.inference_mode():
            out = backbone.model.generate(input_ids=ids, attention_mask=mask, generation_config=config)
        return [backbone.text.plain(row) for row in out[:, 1:].tolist()]

    def ours() -> list[list[int]]:
        return backbone.generate(ids, mask, Pass(), **LIMITS)

    if ours() != peer():
        raise SystemExit("ours and transformers' generate wrote different tokens")
    times = alternate({"ours": ours, "peer": peer}, given.device, given.rounds, warm=0)
    what = f"{given.rows} inputs of {given.tokens} tokens, {LIMITS['beams']} beams"
    figures = [faster(what, times["ours"], times["peer"], "ms", note="the same tokens written")]
    return finish(given, f"{given.backbone}, {given.dtype}", where(given.device), versions(), figures)


if __name__ == "__main__":
    sys.exit(main())
