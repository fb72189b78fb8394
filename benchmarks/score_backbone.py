"""Score a finished backbone on unseen text once more, and add the scores to its log.

    python benchmarks/score_backbone.py FOLDER CORPUS_FILE LOG

A run that continues another on part of the corpus holds out other documents than the first run did, so its own scores
may be on text that was trained on. Give the file whose every hundredth document all runs held out.
"""

from __future__ import annotations

import argparse
import json
import lzma
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("log", type=Path)
    args = parser.parse_args()

    import torch
    from transformers import BartForConditionalGeneration

    from tss.backbones import corpus, denoise, heldout
    from tss.backbones.denoiser import Denoiser

    with lzma.open(args.corpus, "rt", encoding="utf-8", newline="\n") as file:
        documents = [line.rstrip("\n") for line in file if line.strip()]
    tokenizer = corpus.load_tokenizer(args.folder)
    unseen = corpus.encode_documents(tokenizer, documents[::100])
    text = denoise.Text.on("cpu", unseen, corpus.sentence_ends(tokenizer))
    model = Denoiser(BartForConditionalGeneration.from_pretrained(args.folder, dtype=torch.float32))
    line = {
        "event": "scored",
        "on": f"every hundredth document of {args.corpus.name}, which all runs held out",
        "held_out": heldout.held_out_loss(model, text, 32, 256, 4),
        "copy": heldout.copy_score(args.folder, heldout.documents_to_copy(unseen, 48), "cpu"),
    }
    print(json.dumps(line, indent=1))
    with args.log.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
