"""Work that repeats is recorded on a GPU and replayed: small models spend their time launching kernels, not in them.

A function of tensors that is asked for again with the same key and shapes runs twice as it is; from the second time
on as one CUDA graph. The numbers are those of the plain call. Where something cannot be recorded (a number is read in
the middle, say) everything goes on as plain calls, and `trouble` says why.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

Outputs = tuple[Tensor | None, ...]


@dataclass(frozen=True)
class _Record:
    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    outputs: Outputs


class Recorder:
    """Calls functions, or replays them. What it gives is overwritten by the next call with the same key.

    All recordings of a key leave their results in the same places, so that what one gives another may take from there.
    """

    def __init__(self, on: bool, compiled: bool = False):
        """compiled: the functions hold compiled ones, whose plain calls leave garbage that would spoil recordings."""
        self.on, self.compiled = on, compiled
        self.trouble = ""
        self._seen: dict[Hashable, _Record | None] = {}
        self._results: dict[Hashable, Outputs] = {}
        self._pool = torch.cuda.graph_pool_handle() if on else None

    def __call__(self, key: Hashable, function: Callable[..., Outputs], *inputs: Tensor) -> Outputs:
        """function(*inputs). Called with the same key and shapes it must compute the same thing every time."""
        if not self.on:
            return function(*inputs)
        exact = (key, *(tuple(t.shape) for t in inputs))
        if exact not in self._seen:  # libraries choose their kernels in a plain call
            self._seen[exact] = None
            return self._first(function, inputs)
        record = self._seen[exact]
        if record is None:
            record = self._record(key, function, inputs)
            if record is None:
                return function(*inputs)
            self._seen[exact] = record
        _fill(record.inputs, inputs)
        record.graph.replay()
        return record.outputs

    def _first(self, function: Callable[..., Outputs], inputs: tuple[Tensor, ...]) -> Outputs:
        """Plainly. What is compiled leaves its graph of gradients behind until garbage is collected, and gradients wait
        for the stream that such a graph was made on: it had better be the one of the recordings."""
        if not self.compiled:
            return function(*inputs)
        here, aside = torch.cuda.current_stream(), _aside(torch.cuda.current_device())
        aside.wait_stream(here)
        with torch.cuda.stream(aside):
            outputs = function(*inputs)
        here.wait_stream(aside)
        return outputs

    def close(self) -> None:
        """Forget everything and give the GPU's memory back: what graphs held is of no use to later work."""
        if self._pool is not None:
            self._seen.clear()
            self._results.clear()
            torch.cuda.empty_cache()

    def _record(self, key: Hashable, function: Callable[..., Outputs], inputs: tuple[Tensor, ...]) -> _Record | None:
        lasting = {t.data_ptr() for results in self._results.values() for t in results if t is not None}
        held = tuple(t if t.data_ptr() in lasting else t.clone() for t in inputs)
        graph = torch.cuda.CUDAGraph()
        random = torch.cuda.get_rng_state()
        torch.cuda.synchronize()
        if self.compiled:
            gc.collect()
        try:
            with _nothing_freed(), torch.cuda.stream(_aside(torch.cuda.current_device())):
                graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                try:
                    outputs = self._left(key, function(*held))
                finally:
                    graph.capture_end()
        except RuntimeError as problem:
            why = str(problem).strip().splitlines()[0]
            self.on, self.trouble = False, f"steps could not be recorded and took longer, with the same result: {why}"
            self._seen.clear()
            torch.cuda.synchronize()
            _put_back(random)
            return None
        self._results.setdefault(key, outputs)
        return _Record(graph, held, outputs)

    def _left(self, key: Hashable, outputs: Outputs) -> Outputs:
        """The outputs where earlier recordings of the key left theirs, if they are of the same shapes."""
        places = self._results.get(key)
        if places is None or _shapes(places) != _shapes(outputs):
            return outputs
        _fill([t for t in places if t is not None], [t for t in outputs if t is not None])
        return places


def _shapes(tensors: Outputs) -> list[object]:
    return [None if t is None else (t.shape, t.dtype) for t in tensors]


def _fill(places: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    """Copy what is not in its place yet, in few launches."""
    pairs = [(p, v) for p, v in zip(places, values, strict=True) if p.data_ptr() != v.data_ptr()]
    for dtype in dict.fromkeys(p.dtype for p, _ in pairs):
        some = [(p, v) for p, v in pairs if p.dtype == dtype]
        torch._foreach_copy_([p for p, _ in some], [v for _, v in some])


@contextmanager
def _nothing_freed() -> Iterator[None]:
    """The collector may meet graphs and events of an earlier training, and freeing those breaks a recording."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@cache
def _aside(device: int) -> torch.cuda.Stream:
    """Where recordings are made, always the same: cuBLAS keeps a workspace of 32 MiB for every stream it meets."""
    return torch.cuda.Stream(device)


def _put_back(random: Tensor) -> None:
    """A recording that failed leaves the generator believing that it still goes on: give it a fresh state."""
    fresh = torch.Generator(device="cuda")
    fresh.set_state(random)
    index = torch.cuda.current_device()
    torch.cuda.default_generators[index].graphsafe_set_state(fresh.graphsafe_get_state())
