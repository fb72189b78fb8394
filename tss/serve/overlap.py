"""How much of its sub-network a task has in common with each earlier one: the share of equal gates."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from tss.errors import StoreError
from tss.gates.packed import pack
from tss.store import Index, Store

MOST = 48  # tasks of a picture


class Overlaps:
    """The newest tasks of a store against one another. Read once for each state of the index."""

    def __init__(self, store: Store):
        self._store = store
        self._lock = threading.Lock()
        self._bits: dict[str, np.ndarray] = {}  # file -> packed gates
        self._told: tuple[tuple[str, ...], dict[str, Any]] | None = None

    def told(self, index: Index) -> dict[str, Any]:
        """`tasks` [n] and `equal` [n][n]: 1.0 the same sub-network, 0.5 unrelated; tasks without gates are left out."""
        entries = [index.entry(name) for name in index.names()][-MOST:]
        key = tuple(entry.file for entry in entries)
        with self._lock:  # two pages that open at once read the files once
            if self._told is None or self._told[0] != key:
                self._told = key, self._compare(entries)
            return self._told[1]

    def _compare(self, entries: list[Any]) -> dict[str, Any]:
        found = {}
        for entry in entries:
            bits = self._gates(entry)
            if bits is not None:
                found[entry.name] = bits
        self._bits = {entry.file: self._bits[entry.file] for entry in entries if entry.file in self._bits}
        names = list(found)
        sizes = {bits.size for bits in found.values()}
        if len(sizes) > 1:
            return {"tasks": [], "equal": []}
        equal = [[_equal(found[a], found[b]) for b in names] for a in names]
        return {"tasks": names, "equal": equal}

    def _gates(self, entry: Any) -> np.ndarray | None:
        if entry.file not in self._bits:
            try:
                gates = self._store.read(entry.name, entry.version).gates
            except StoreError:  # damaged, or just removed: the picture is drawn without it
                return None
            if gates is None:
                return None
            self._bits[entry.file] = pack(gates).numpy()
        return self._bits[entry.file]


_ONES = np.array([bin(byte).count("1") for byte in range(256)], dtype=np.int64)


def _equal(one: np.ndarray, other: np.ndarray) -> float:
    """Share of equal bits; the padding of the last byte counts as equal, at most 7 gates in millions."""
    return round(1.0 - float(_ONES[one ^ other].sum()) / (8 * one.size), 4)
