"""Find a backbone by name or folder and load it, frozen, with its tokenizer.

A name resolves to the package's embedded weights, then `TSS_BACKBONES`, then `weights/` of a checkout, then the hub.
Only safetensors are read; code from a model repository is never run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tss.errors import BackboneError

if TYPE_CHECKING:
    from tss.backbones.backbone import Backbone

DEFAULT = "bart-nano"
_EMBEDDED = Path(__file__).parent / "embedded"
_CHECKOUT = Path(__file__).parents[2] / "weights"


def shelves() -> list[Path]:
    """Folders that hold backbones by name, in the order they are searched."""
    named = [Path(p) for p in os.environ.get("TSS_BACKBONES", "").split(os.pathsep) if p]
    return [_EMBEDDED, *named, _CHECKOUT]


def available() -> dict[str, Path]:
    """Backbones that can be used without a network: name -> folder."""
    found: dict[str, Path] = {}
    for shelf in shelves():
        for config in sorted(shelf.glob("*/config.json")):
            found.setdefault(config.parent.name, config.parent)
    return found


def resolve(name: str) -> tuple[str, bool]:
    """`name` as (what `from_pretrained` takes, whether it is local)."""
    if name in (local := available()):
        return str(local[name]), True
    folder = Path(name)
    if (folder / "config.json").is_file():
        return str(folder), True
    if folder.exists() or name.startswith((".", "/", "~")):
        raise BackboneError(f"{name} is no backbone: there is no config.json in it")
    return name, False


def load_backbone(name: str = DEFAULT, *, device: str = "cpu", dtype: str = "float32", places: str = "ffn") -> Backbone:
    """Load the backbone `name`, every parameter frozen, adapter sites attached at `places`.

    Raises BackboneError if it cannot be found, is not whole, or its architecture is not known.
    """
    import torch
    from safetensors import SafetensorError
    from transformers import AutoConfig

    from tss.backbones.attention import widen
    from tss.backbones.families import FAMILIES
    from tss.backbones.repeatable import prepare
    from tss.backbones.sites import layout_of

    where, local = resolve(name)
    try:
        config = AutoConfig.from_pretrained(where, local_files_only=local)
        layout = layout_of(config.model_type)
        family = FAMILIES[layout.family]
        tokenizer = _tokenizer(where, local)
        with _quiet():
            model, report = family.auto().from_pretrained(
                where,
                config=config,
                dtype=torch.float32,
                local_files_only=local,
                use_safetensors=True,
                output_loading_info=True,
            )
    except (OSError, ValueError, RuntimeError, SafetensorError) as problem:
        raise BackboneError(_advice(name, local, problem)) from problem
    _check_whole(name, model, report["missing_keys"])
    model.requires_grad_(False).eval().to(device=device, dtype=getattr(torch, dtype))
    if model.device.type == "cuda":
        prepare()
        # cuDNN's attention plans anew for every shape, and each step of a generated text is a new one
        torch.backends.cuda.enable_cudnn_sdp(False)
    elif model.device.type == "cpu":
        widen(model)
    return family(name, model, tokenizer, layout, places)


@contextmanager
def _quiet() -> Iterator[None]:
    """No bar and no report of unused heads: a small backbone loads in a blink, and what matters is checked here."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.disable_progress_bar()  # hub downloads keep their own bar
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _check_whole(name: str, model, missing: set[str]) -> None:
    """Refuse weights that the files lack: they were drawn at random, anew at each load. The pooler is never used."""
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
    lacking = sorted(key for key in missing if not key.startswith("pooler."))
    if lacking:
        raise BackboneError(
            f"the backbone {name!r} is not whole: its files lack {len(lacking)} of its weights "
            f"({', '.join(lacking[:3])}{', …' if len(lacking) > 3 else ''}). Take the complete checkpoint of a "
            f"{model.config.model_type} model"
        )


def _tokenizer(where: str, local: bool):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(where, local_files_only=local, use_fast=True)


def _advice(name: str, local: bool, problem: Exception) -> str:
    reason = str(problem).strip().splitlines()[0][:300] if str(problem).strip() else type(problem).__name__
    if local:
        return f"the backbone {name!r} could not be loaded: {reason}"
    known = ", ".join(available()) or "none"
    return (
        f"no backbone {name!r}: it is not embedded, not in TSS_BACKBONES, not in weights/, and the hub did not give it "
        f"({reason}). Without a network: download it elsewhere (`hf download {name} --local-dir DIR`), then pass the "
        f"folder or set TSS_BACKBONES to its parent. At hand here: {known}"
    )
