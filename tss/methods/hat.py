"""HAT: hard attention to the task, here on adapters (Serra et al. 2018, arXiv 1801.01423).

    m  = sigmoid(s e)                          a mask for the b bottleneck and d output units of every adapter
    s  = 1/s_max + (s_max - 1/s_max) i/(B-1)   batch i = 0..B-1 of each epoch; s_max when it answers
    a  = m2 * (W2 (m1 * relu(W1 x + b1)) + b2)
    L  = CE + lambda * sum m (1 - m_acc) / sum (1 - m_acc),   m_acc = max of earlier masks
    W_ij moves by (1 - min(m_acc_i(out), m_acc_j(in))), the input of W1 counting as 1; b_i by (1 - m_acc_i)
    de *= s_max/s (cosh(clamp(s e, 50)) + 1) / (cosh(e) + 1);  e is clamped to +-6 after each step

Kept per task: its mask (b + d numbers a site). Shared: the adapter and m_acc. Cost about that of NCL (Adapter).
Masks of 1e-3 are not 0, so it forgets a little; `hat_binary` rounds masks and m_acc at 0.5, and then what a task uses
is frozen exactly. `hat_block=grad` blocks the gradient, as published, but Adam divides small factors out again.
`hat_plugin` imitates the released code's module: four masked layers d -> b -> b -> d -> d with GELU after each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from tss.backbones.backbone import Pass
from tss.errors import ConfigError
from tss.gates.layers import MaskedLayers
from tss.gates.softmask import SoftMask
from tss.methods.method import Group, Kept, Train
from tss.methods.ncl import NclAdapter
from tss.methods.one import TrainedAdapterConfig
from tss.randomness import normal
from tss.tasks.batches import Batch
from tss.tasks.lesson import Lesson

BLOCKS = ("update", "grad")
LARGEST_E = 6.0  # beyond it a mask hardly moves again
LARGEST_COSH = 50.0  # cosh of more leaves float32


@dataclass(frozen=True)
class HatConfig(TrainedAdapterConfig):
    hat_lr: float = 3e-2  # of the embeddings
    hat_smax: float = 400.0
    hat_lambda: float = 0.75
    hat_block: str = "update"  # "grad": as published
    hat_binary: bool = False
    hat_plugin: bool = False  # the heavier module of the released code

    def __post_init__(self) -> None:
        if not self.hat_lr > 0.0:
            raise ConfigError(f"hat_lr must be above 0, not {self.hat_lr}")
        if not self.hat_smax >= 1.0:
            raise ConfigError(f"hat_smax must be at least 1, not {self.hat_smax}")
        if self.hat_lambda < 0.0:
            raise ConfigError(f"hat_lambda must not be negative: {self.hat_lambda}")
        if self.hat_block not in BLOCKS:
            raise ConfigError(f"hat_block {self.hat_block!r} is not one of {', '.join(BLOCKS)}")


def annealed(batch: int, batches: int, most: float) -> float:
    """The scale s at batch number `batch`, from 0, of `batches`."""
    return most if batches == 1 else 1.0 / most + (most - 1.0 / most) * batch / (batches - 1)


def compensation(e: Tensor, scale: float | Tensor, most: float) -> Tensor:
    """What the gradient of e is multiplied by, so that it does not depend on where in the epoch the step is."""
    return most / scale * (torch.cosh((scale * e).clamp(-LARGEST_COSH, LARGEST_COSH)) + 1) / (torch.cosh(e) + 1)


def regulariser(mask: Tensor, used: Tensor) -> Tensor:
    """Share of the units still free that the mask takes, in [0, 1]; 0 where none is free."""
    free = 1.0 - used
    return (mask * free).sum() / free.sum().clamp(min=1e-6)


class Hat(NclAdapter):
    label = "HAT"
    family = "parameter isolation"
    Config: ClassVar[type] = HatConfig

    def __init__(self, backbone, adapters, config, seed):
        super().__init__(backbone, adapters, config, seed)
        self.layers = MaskedLayers(self.bank, config.hat_plugin)
        self.embedding = nn.Parameter(torch.empty(0, device=self.device))  # e [units]: one number a unit
        self.used = torch.zeros(self.layers.units, device=self.device)  # m_acc [units]

    @property
    def size(self) -> int:
        return self.layers.size

    def shared(self) -> dict[str, Tensor]:
        return {**super().shared(), "used": self.used}

    def load_shared(self, tensors: dict[str, Tensor]) -> None:
        super().load_shared(tensors)
        self.used = tensors["used"].to(self.device) if "used" in tensors else torch.zeros_like(self.used)

    def begin(self, lesson: Lesson, train: Train) -> None:
        if not self.weights.numel():
            self._set(self.layers.near_identity(f"ncl/{self.seed}"), torch.zeros(self.layers.units))
        start = normal(f"hat/{lesson.seed_key}", self.layers.units, 1.0)
        self.embedding = nn.Parameter(start.to(self.device).clamp(-LARGEST_E, LARGEST_E))
        blocked = torch.minimum(self.layers.spread(self.used), self.layers.spread(self.used, inputs=True))
        self._blocks = [
            (self.weights, SoftMask(blocked, self.config.hat_block)),
            (self.biases, SoftMask(self.used, self.config.hat_block)),
        ]

    def groups(self) -> list[Group]:
        return [*super().groups(), Group([self.embedding], self.config.hat_lr)]

    @property
    def _scale(self) -> float | Tensor:
        most, moment = self.config.hat_smax, self.moment
        if moment is None:
            return most
        if moment.passed is not None:
            return 1.0 / most + (most - 1.0 / most) * moment.passed
        return annealed(moment.batch, moment.batches, most)

    def mask(self) -> Tensor:
        """m of the task being learnt, [bias_size]: soft in a training step, as it answers outside of one."""
        if self.config.hat_binary and self.moment is None:
            return (self.embedding > 0).float()
        return torch.sigmoid(self._scale * self.embedding)

    def _masked(self, mask: Tensor) -> Pass:
        return Pass(self.layers.functions(self.weights, self.biases, mask))

    def passing(self, batch: Batch | None = None) -> Pass:
        return self._masked(self.mask())

    def loss(self, lesson: Lesson, batch: Batch) -> Tensor:
        mask = self.mask()
        return lesson.loss(batch, self._masked(mask)) + self.config.hat_lambda * regulariser(mask, self.used)

    def before_step(self) -> None:
        for parameter, block in self._blocks:
            block.before_step(parameter)
        if self.embedding.grad is not None:
            self.embedding.grad.mul_(compensation(self.embedding.detach(), self._scale, self.config.hat_smax))

    def after_step(self) -> None:
        for parameter, block in self._blocks:
            block.after_step(parameter)
        with torch.no_grad():
            self.embedding.clamp_(-LARGEST_E, LARGEST_E)

    @torch.no_grad()
    def end(self, lesson: Lesson) -> None:
        self.used = torch.maximum(self.used, self.mask())

    def kept(self) -> Kept:
        return Kept(tensors={"mask": self.mask().detach().cpu()})

    def recall(self, kept: Kept) -> Pass:
        with torch.no_grad():
            return self._masked(kept.tensors["mask"].to(self.device))

    def facts(self) -> dict[str, float]:
        return {
            "mask_open": float(self.mask().detach().mean()),
            "units_used": float(self.used.sum()),  # of `units`: when it nears them, nothing can learn any more
            "units": float(self.used.numel()),
        }
