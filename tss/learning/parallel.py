"""One training on several processes: each takes its rows of every batch, and gradients are added up before the step.

`accelerate launch` starts the processes (ranks). Every rank does everything that one process would do, on the same
numbers, except that a step's rows are divided; so all ranks hold the same state, and what rank 0 keeps is the result.
The others keep what they write in a folder of their own, which is thrown away.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from tss.randomness import seed_of
from tss.tasks.batches import Batch
from tss.tasks.kind import Kind

PATIENCE = timedelta(hours=12)  # that ranks wait for each other: one may have to read or test much more than the others
Some = TypeVar("Some")


@dataclass(frozen=True)
class Ranks:
    """This process among those that train together. device: its own, where it was given one."""

    rank: int = 0
    count: int = 1
    device: str | None = None

    @property
    def first(self) -> bool:
        return self.rank == 0

    def mine(self, kind: Kind, batch: Batch) -> tuple[Batch, float]:
        """This rank's rows of a batch, and what they count of the whole; padding stays, so that numbers do."""
        if self.count == 1:
            return batch, 1.0
        parts = batch.split(self.count)
        if self.rank >= len(parts):
            return parts[0], 0.0  # fewer rows than ranks: something to compute on that counts nothing
        return parts[self.rank], kind.weight(parts[self.rank]) / kind.weight(batch)

    def reduce(self, parameters: Sequence[nn.Parameter], loss: Tensor, share: float) -> Tensor:
        """Gradients and loss of the whole batch on every rank, from each one's rows, in one message."""
        if self.count == 1:
            return loss
        from accelerate.utils import reduce

        gradients = [(p, p.grad) for p in parameters if p.grad is not None]
        flat = torch.cat([loss.detach().float().view(1), *(gradient.float().flatten() for _, gradient in gradients)])
        whole, at = reduce(flat * share, reduction="sum"), 1
        for p, gradient in gradients:
            p.grad = whole[at : at + p.numel()].view_as(p).to(gradient.dtype)
            at += p.numel()
        return whole[0].to(loss)

    def agree(self, value: Some) -> Some:
        """What rank 0 has, on every rank."""
        if self.count == 1:
            return value
        from accelerate.utils import broadcast_object_list

        return broadcast_object_list([value])[0]

    def same(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of rank 0, on every rank. On a GPU, sums of another order may have made others of them."""
        if self.count == 1:
            return tensors
        from accelerate.utils import broadcast

        here = torch.device(self.device or "cpu")
        return {name: broadcast(tensors[name].detach().to(here, copy=True)) for name in sorted(tensors)}

    def part_ways(self, *names: object) -> None:
        """Dropout that differs from rank to rank; rank 0 goes on with what it has."""
        if not self.first:
            torch.manual_seed(seed_of(*map(str, names), f"rank {self.rank}"))

    def wait(self) -> None:
        """Until every rank is here."""
        if self.count > 1:
            from accelerate import PartialState

            PartialState().wait_for_everyone()

    def leave(self) -> None:
        """When all is done."""
        if self.count > 1:
            from accelerate import PartialState

            PartialState().wait_for_everyone()
            PartialState().destroy_process_group()

    @contextmanager
    def own(self, folder: Path, parts: Sequence[str] = (".",)) -> Iterator[Path]:
        """The folder itself on rank 0; on others a copy of some parts of it, as they are now, that nobody else sees."""
        if self.count == 1:
            yield folder
            return
        self.wait()
        with tempfile.TemporaryDirectory(prefix="tss-rank-") as scratch:
            place = folder if self.first else Path(scratch) / folder.name
            if not self.first:
                for part in parts:
                    _copy(folder / part, place / part)
            self.wait()
            yield place


ALONE = Ranks()


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("lock"))
    elif source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def join(device: str | None = None) -> Ranks:
    """Meet the other ranks that `accelerate launch` started."""
    from accelerate import PartialState

    state: Any = PartialState(cpu=device == "cpu", timeout=PATIENCE)
    return Ranks(state.process_index, state.num_processes, "cpu" if state.device.type == "cpu" else str(state.device))
