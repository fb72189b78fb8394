"""The corpus as token ids, kept in the run's folder so that a resumed run need not read and encode the text again."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from tss.backbones import corpus as texts
from tss.backbones.recipe import Recipe
from tss.backbones.runlog import Progress
from tss.errors import BackboneError

NAME = "tokens.safetensors"


@dataclass(frozen=True)
class Tokens:
    """Token ids to train on and held out, whether a sentence may end with a token, and how many tokens there are."""

    training: np.ndarray
    held_out: np.ndarray
    ends: np.ndarray
    vocabulary: int


def tokenise(
    corpus: Sequence[Path], vocabulary: int, out: Path, recipe: Recipe, on_progress: Progress | None = None
) -> Tokens:
    """Encode `corpus`, with the tokenizer in `out` or else with a new one of at most `vocabulary` entries.

    Raises: BackboneError if the corpus is not usable or not the one that an unfinished run in `out` began with.
    """
    kept = out / NAME
    if kept.exists():
        training, held_out = _load(kept, corpus)
        tokenizer = texts.load_tokenizer(out)
    else:
        documents, unseen = texts.read_documents(corpus)
        if on_progress:
            on_progress({"event": "read", "documents": len(documents), "held_out": len(unseen)})
        if not (out / "tokenizer.json").exists():
            texts.save_tokenizer(texts.train_tokenizer(documents, vocabulary), out)
        tokenizer = texts.load_tokenizer(out)
        whole = texts.encode_documents(tokenizer, documents)
        training = texts.cut_short(whole, texts.sentence_ends(tokenizer), recipe.short_share, recipe.seed)
        held_out = texts.encode_documents(tokenizer, unseen)
        save_file({"training": training, "held_out": held_out}, kept, metadata={"corpus": _fingerprint(corpus)})
    return Tokens(training, held_out, texts.sentence_ends(tokenizer), tokenizer.get_vocab_size())


def _load(kept: Path, corpus: Sequence[Path]) -> tuple[np.ndarray, np.ndarray]:
    with safe_open(kept, framework="np") as file:
        if file.metadata().get("corpus") != _fingerprint(corpus):
            raise BackboneError(
                f"the unfinished run in {kept.parent} was on other text; give the same files to go on, "
                "or begin again (--fresh)"
            )
        return file.get_tensor("training"), file.get_tensor("held_out")


def _fingerprint(corpus: Sequence[Path]) -> str:
    """Names and sizes: enough to notice another corpus without reading it."""
    return " ".join(f"{path.name}:{path.stat().st_size if path.exists() else 0}" for path in corpus)


def take_tokenizer(start: Path, out: Path) -> None:
    """Copy the tokenizer of the finished model in `start` to `out`. Raises: BackboneError if there is none."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if not (start / name).is_file():
            raise BackboneError(f"{start} has no {name}; give the folder of a finished pretraining run")
        shutil.copyfile(start / name, out / name)
