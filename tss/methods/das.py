"""DAS: soft-masking of the LM's own units (Ke et al. 2023, "Continual Pre-training of Language Models",
arXiv 2302.03241), here with the end task's loss. The ancestor of TSS's soft mask.

Units of a layer: attention heads (self and cross), intermediate units and output units of the feed-forward block.
With a virtual factor a = 1 on each unit's output:

    raw = (1/N) sum_n dL(x_n, y_n)/da,   I = |tanh(standardised raw)| per layer and group,   I_acc = max over tasks
    theta <- theta - (1 - I_acc) * step      for the weights that produce the unit

which are: rows of q, k, v and columns of the output projection (head); rows of FFN-1 (intermediate); rows of FFN-2
(output). No factor is ever put in: dL/da is the sum of w * dL/dw over the weights that lead out of the unit.
Before the first task I_acc is what general knowledge needs: L = KL(p_1 || p_2) between two dropout passes of the LM
saying its input again. Embeddings, norms and the output projection's bias are unprotected.
`das_contrast` adds, with that weight, the original's contrast of full features and those of the important units.

Shared: the LM and one number a unit. Kept per task: its head. Cost: NCL and one backward pass over the task's data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tss.backbones.backbone import Pass
from tss.backbones.repeatable import gradients
from tss.errors import ConfigError
from tss.gates import importance as impt
from tss.gates.softmask import MODES, SoftMasks
from tss.gates.units import Units
from tss.methods.method import Group, Train
from tss.methods.ncl import Ncl
from tss.methods.one import TrainedLmConfig
from tss.randomness import seed_of
from tss.tasks.batches import Batch
from tss.tasks.lesson import Lesson


@dataclass(frozen=True)
class DasConfig(TrainedLmConfig):
    softmask_apply: str = "update"
    impt_batch: int = 32
    das_dropout: float = 0.1  # of the two passes before the first task, where the backbone has none
    das_contrast: float = 0.0  # weight of the contrastive loss
    das_temperature: float = 0.05  # of that loss

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.softmask_apply not in MODES:
            raise ConfigError(f"softmask_apply {self.softmask_apply!r} is not one of {', '.join(MODES)}")
        if self.impt_batch < 1:
            raise ConfigError(f"impt_batch must be at least 1, not {self.impt_batch}")
        if not 0.0 < self.das_dropout < 1.0:
            raise ConfigError(f"das_dropout is a share, above 0 and below 1, not {self.das_dropout}")
        if not self.das_contrast >= 0 or not self.das_temperature > 0:
            raise ConfigError("das_contrast must be at least 0 and das_temperature above 0")


class Das(Ncl):
    label = "DAS"
    family = "regularisation"
    Config: ClassVar[type] = DasConfig

    def __init__(self, backbone, adapters, config, seed):
        super().__init__(backbone, adapters, config, seed)
        self.units = Units(backbone)
        self.importance: dict[str, Tensor] = {}  # I_acc of each group of units, by the path of what makes them
        self._masks = SoftMasks([], config.softmask_apply)
        self._masked: list[nn.Parameter] = []

    def begin(self, lesson: Lesson, train: Train) -> None:
        super().begin(lesson, train)
        if not self.importance:
            with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
                torch.manual_seed(seed_of(lesson.seed_key, "das"))
                with self._dropping():
                    self.importance = self._importance(lesson, self._divergence)
        met = self.units.spread(self.importance)
        self._masked = [self.weights[name] for name in met]
        whole = [i.expand_as(p).contiguous() for i, p in zip(met.values(), self._masked, strict=True)]
        self._masks = SoftMasks(whole, self.config.softmask_apply)

    def groups(self) -> list[Group]:
        rule = "sgd" if self.config.softmask_apply == "sgd" else "adamw"
        return [Group(list(self.weights.values()), self.config.lm_lr, rule)]

    def loss(self, lesson: Lesson, batch: Batch) -> Tensor:
        loss = super().loss(lesson, batch)
        return loss + self.config.das_contrast * self.contrast(batch) if self.config.das_contrast else loss

    def contrast(self, batch: Batch) -> Tensor:
        """-log of the share that a row's second dropout pass has among all rows' passes, full and important-only.

        Features: the mean state of a row; likeness: cosine / temperature. The important-only pass has I_acc as
        factors on the units and no gradient.
        """
        full, again = (self._features(batch, self.passing(batch)) for _ in range(2))  # [batch, d]
        with torch.no_grad():
            known = self._features(batch, Pass(parameters=self.units.scaled(self.weights, self.importance)))
        likeness = full @ torch.cat([again, known]).T / self.config.das_temperature  # [batch, 2 * batch]
        return F.cross_entropy(likeness, torch.arange(len(batch), device=self.device))

    def _features(self, batch: Batch, added: Pass) -> Tensor:
        mask = batch.mask[..., None]
        states = self.backbone.states(batch.ids, batch.mask, added).float() * mask
        return F.normalize(states.sum(1) / mask.sum(1), dim=-1)

    def before_step(self) -> None:
        self._masks.before_step(self._masked)

    def after_step(self) -> None:
        self._masks.after_step(self._masked)

    def end(self, lesson: Lesson) -> None:
        found = self._importance(lesson, lambda lesson, batch: lesson.row_losses(batch, self.passing(batch)))
        self.importance = {group: impt.accumulate(i, self.importance[group]) for group, i in found.items()}

    def _importance(self, lesson: Lesson, row_losses: Callable[[Lesson, Batch], Tensor]) -> dict[str, Tensor]:
        """I of every unit from one pass over the task's training set, in float32."""
        leading = {name: self.weights[name] for name in self.units.leading}
        total = {name: torch.zeros_like(p) for name, p in leading.items()}
        with self.backbone.full_precision():
            for batch in lesson.batches(lesson.train.rows, self.config.impt_batch):
                found = gradients(lambda: row_losses(lesson, batch).sum(), list(leading.values()))  # noqa: B023
                for name, gradient in zip(leading, found, strict=True):
                    total[name].add_(gradient, alpha=1 / len(lesson.train))
        raw = self.units.gradients(leading, total)
        return {group: torch.tanh(impt.standardised(each, 0)).abs().float() for group, each in raw.items()}

    def _divergence(self, lesson: Lesson, batch: Batch) -> Tensor:
        """KL(p_1 || p_2) of two dropout passes, mean over the tokens of each row. [batch]"""
        logits = [self.backbone.target_logits(batch.ids, batch.mask, batch.ids, self.passing(batch)) for _ in range(2)]
        first, second = (F.log_softmax(each.float(), dim=-1) for each in logits)
        each = F.kl_div(second, first, reduction="none", log_target=True).sum(-1)  # [batch, length]
        return (each * batch.mask).sum(1) / batch.mask.sum(1)

    @contextmanager
    def _dropping(self) -> Iterator[None]:
        """Dropout is on inside, also in a backbone that has none."""
        model = self.backbone.model
        bare = [layer for path in self.units.layers if not (layer := model.get_submodule(path)).dropout]
        try:
            for layer in bare:
                layer.dropout = self.config.das_dropout
            model.train()
            yield
        finally:
            model.eval()
            for layer in bare:
                layer.dropout = 0.0

    def shared(self) -> dict[str, Tensor]:
        return {**super().shared(), **{f"importance.{group}": i for group, i in self.importance.items()}}

    def load_shared(self, tensors: dict[str, Tensor]) -> None:
        super().load_shared(tensors)
        named = {n.removeprefix("importance."): t for n, t in tensors.items() if n.startswith("importance.")}
        self.importance = {group: t.to(self.device) for group, t in named.items()}

    def facts(self) -> dict[str, float]:
        return {"importance": float(torch.cat(list(self.importance.values())).mean())}
