"""TSS: sub-networks with scores that carry over under a soft mask (EMNLP 2023, "Sub-network Discovery and
Soft-masking for Continual Learning of Mixed Tasks").

    g = 1[s > 0]                       the sub-network, saved as bits: nothing later can change it
    s(t+1) starts from s(t)            what was learnt is the start of what comes next
    s <- s - (1 - I_acc) * step        what earlier tasks found important moves less
    I = |tanh(standardised (1/N) sum dL/ds)|,  I_acc = max over tasks

Kept per task: gates. Shared: latest scores, I_acc (two floats a weight, once, however many tasks).
Options follow the places where paper and code disagree; the defaults are the readings that work as described.
`softmask_apply=grad` with `adam_eps=1e-6 adam_eps_uncorrected=true` imitates the authors' code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tss.errors import ConfigError
from tss.gates import importance as impt
from tss.gates.softmask import MODES, SoftMask
from tss.methods.method import Group
from tss.methods.supsup import GateConfig, SupSup
from tss.tasks.lesson import Lesson


@dataclass(frozen=True)
class MaskConfig:
    """Options of importance and soft mask, for scores (TSS) as for weights (w/o SD)."""

    softmask_apply: str = "update"
    impt_reduce: str = "signed_mean"
    impt_norm: str = "abs_tanh"
    impt_unit: str = "matrix"
    impt_heat: float = 1.0  # tanh(z / heat): above 1 the mask saturates later
    impt_batch: int = 32

    def __post_init__(self) -> None:
        for key, known in (
            ("softmask_apply", MODES),
            ("impt_reduce", impt.REDUCTIONS),
            ("impt_norm", impt.NORMS),
            ("impt_unit", impt.UNITS),
        ):
            if getattr(self, key) not in known:
                raise ConfigError(f"{key} {getattr(self, key)!r} is not one of {', '.join(known)}")
        if not self.impt_heat > 0:
            raise ConfigError(f"impt_heat must be above 0, not {self.impt_heat}")
        if self.impt_batch < 1:
            raise ConfigError(f"impt_batch must be at least 1, not {self.impt_batch}")


@dataclass(frozen=True)
class TssConfig(GateConfig, MaskConfig):
    impt_target: str = "score"  # "alpha": a factor on w*g, so that closed gates count as unimportant

    def __post_init__(self) -> None:
        GateConfig.__post_init__(self)
        MaskConfig.__post_init__(self)
        if self.impt_target not in ("score", "alpha"):
            raise ConfigError(f"impt_target {self.impt_target!r} is not one of score, alpha")


class Naive(SupSup):
    """Ablation "w/o SM; Naive": the scores of the task before are the start, nothing protects them."""

    label = "w/o SM; Naive"
    order_free = False
    inherits = True

    def __init__(self, backbone, adapters, config, seed):
        super().__init__(backbone, adapters, config, seed)
        self.latest: Tensor | None = None

    def start(self, lesson: Lesson) -> Tensor:
        return super().start(lesson) if self.latest is None else self.latest

    def end(self, lesson: Lesson) -> None:
        self.latest = self.scores.detach().clone()

    def shared(self) -> dict[str, Tensor]:
        return {} if self.latest is None else {"scores": self.latest}

    def load_shared(self, tensors: dict[str, Tensor]) -> None:
        self.latest = tensors["scores"].to(self.device) if "scores" in tensors else None


class Tss(Naive):
    label = "TSS"
    Config: ClassVar[type] = TssConfig

    def __init__(self, backbone, adapters, config, seed):
        super().__init__(backbone, adapters, config, seed)
        self.importance: Tensor | None = None  # I_acc [size]
        self._mask: SoftMask | None = None

    def begin(self, lesson, train) -> None:
        super().begin(lesson, train)
        self._mask = None if self.importance is None else SoftMask(self.importance, self.config.softmask_apply)

    def groups(self) -> list[Group]:
        rule = "sgd" if self.config.softmask_apply == "sgd" else "adamw"
        return [Group([self.scores], self.config.score_lr, rule)]

    def before_step(self) -> None:
        if self._mask is not None:
            self._mask.before_step(self.scores)

    def after_step(self) -> None:
        if self._mask is not None:
            self._mask.after_step(self.scores)

    def end(self, lesson: Lesson) -> None:
        super().end(lesson)
        self.importance = impt.accumulate(self._importance(lesson), self.importance)

    def _importance(self, lesson: Lesson) -> Tensor:
        """I of the task at its best state, dropout off."""
        c = self.config
        with torch.no_grad():
            effective = self.effective()
        factor = effective if c.impt_target == "alpha" else self.base
        batches = lesson.batches(lesson.train.rows, c.impt_batch)
        raw = impt.raw_importance(c.impt_reduce, self.bank, effective, factor, batches, lesson.row_losses)
        return impt.normalise(raw, self.bank, c.impt_norm, c.impt_unit, c.impt_heat)

    def shared(self) -> dict[str, Tensor]:
        return {**super().shared(), **({} if self.importance is None else {"importance": self.importance})}

    def load_shared(self, tensors: dict[str, Tensor]) -> None:
        super().load_shared(tensors)
        self.importance = tensors["importance"].to(self.device) if "importance" in tensors else None

    def facts(self) -> dict[str, float]:
        facts = super().facts()
        if self.importance is not None:
            facts["importance"] = float(self.importance.mean())
            facts["importance_half"] = float(self.importance.median())
        return facts
