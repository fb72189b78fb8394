"""Tensors and JSON facts as one safetensors file in memory, and back; nothing here runs code from a file."""

from __future__ import annotations

import json
import math
from typing import Any

import safetensors
import torch
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors

from tss.errors import StoreError

_KEY = "tss"  # one metadata key: safetensors orders several at random, and equal content must give equal bytes


def json_text(value: Any, what: str) -> str:
    """`value` as ASCII JSON that reads back equal (tuples as lists).

    Raises `StoreError` naming the place of a value that JSON cannot hold, or that is NaN or infinite.
    """
    _check_json(value, what, finite=True)
    return json.dumps(value)


def _check_json(value: Any, where: str, finite: bool) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise StoreError(f"{where} has the key {key!r}; only text can be a key in the store")
            _check_json(inner, f"{where}[{key!r}]", finite)
    elif isinstance(value, (list, tuple)):
        for place, inner in enumerate(value):
            _check_json(inner, f"{where}[{place}]", finite)
    elif isinstance(value, float):
        if finite and not math.isfinite(value):
            raise StoreError(f"{where} is {value}; only finite numbers are kept in the store")
    elif not isinstance(value, (str, int, type(None))):
        raise StoreError(f"{where} is a {type(value).__name__}, which cannot be kept as JSON")


def first_not_finite(tensors: dict[str, torch.Tensor]) -> str | None:
    """The name of a float tensor that holds NaN or infinity, or None."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() or tensor.is_complex():
            # one-byte floats have no isfinite of their own
            values = tensor.float() if tensor.element_size() == 1 else tensor
            if not bool(torch.isfinite(values).all()):
                return name
    return None


def encode(tensors: dict[str, torch.Tensor], facts: dict[str, Any], what: str, finite: bool = True) -> bytes:
    """A safetensors file as bytes; equal content gives equal bytes.

    Raises `StoreError` naming the tensor or fact that cannot be kept.
    """
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise StoreError(f"{what}: {name!r} is a {type(tensor).__name__}; tensors with text names are kept")
    bad = first_not_finite(tensors) if finite else None
    if bad is not None:
        raise StoreError(f"{what}: tensor {bad!r} holds NaN or infinity and was not saved")
    _check_json(facts, what, finite)
    try:
        # clones: safetensors refuses tensors that share memory
        plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
        return save_safetensors(plain, metadata=metadata_of(facts))
    except (safetensors.SafetensorError, ValueError, RuntimeError, TypeError, KeyError, NotImplementedError) as error:
        raise StoreError(f"{what}: its tensors cannot be saved ({error})") from error


def decode(blob: bytes) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """What `encode` was given. Raises `ValueError` saying what is wrong with the bytes."""
    try:
        # Checks header size, offsets, overlaps and shapes. The library's order differs from process to process, and a
        # training that goes on in another one must find its parameters in the same places.
        tensors = dict(sorted(load_safetensors(blob).items()))
        length = int.from_bytes(blob[:8], "little")
        facts = facts_of(json.loads(blob[8 : 8 + length])["__metadata__"])
    except Exception as error:  # whatever a crafted file provokes, it is only a bad file
        raise ValueError(f"it is not a file of a store ({type(error).__name__}: {error})") from None
    if not isinstance(facts, dict):
        raise ValueError("its facts are not a table")
    return tensors, facts


def facts_of(metadata: dict[str, str]) -> Any:
    """The facts in the metadata of a header; whoever calls knows that a crafted file can make this raise anything."""
    return json.loads(metadata[_KEY])


def metadata_of(facts: Any) -> dict[str, str]:
    """The metadata that `encode` writes for these facts, letter for letter."""
    return {_KEY: json.dumps(facts, separators=(",", ":"))}
