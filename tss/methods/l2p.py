"""L2P: a shared pool of prompts; each input picks its own by key (Wang et al. 2022, arXiv 2112.08654).

    q(x) = the frozen LM's feature of x without prompts (first decoder position), no gradient
    K(x) = the N of M keys with the highest cos(q, k);  encoder input = [their prompts, best first ; E(x)]
    L    = CE - lambda * sum over K(x) of cos(q, k)

Shared: prompts [M, length, d] and keys [M, d], both U(-0.5, 0.5), trained on by every task: it forgets. Kept per task:
its head. Cost about 1.2 of NCL: every input passes the backbone twice.
`l2p_sign=code` adds the cosines to the loss, as released code does, which drives keys away from the queries;
`l2p_length=12` is that code's length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tss.backbones.backbone import Pass
from tss.errors import ConfigError
from tss.methods.method import Group, Kept, Method, Train
from tss.randomness import uniform
from tss.tasks.batches import Batch
from tss.tasks.lesson import Lesson

SIGNS = {"minus": -1.0, "code": 1.0}


@dataclass(frozen=True)
class L2PConfig:
    l2p_pool: int = 10  # M
    l2p_select: int = 5  # N
    l2p_length: int = 5
    l2p_lambda: float = 0.5
    l2p_sign: str = "minus"  # "code": plus
    prompt_lr: float = 3e-2

    def __post_init__(self) -> None:
        if not 1 <= self.l2p_select <= self.l2p_pool:
            raise ConfigError(f"l2p_select is from 1 to l2p_pool={self.l2p_pool}, not {self.l2p_select}")
        if self.l2p_length < 1:
            raise ConfigError(f"l2p_length must be at least 1, not {self.l2p_length}")
        if self.l2p_lambda < 0.0:
            raise ConfigError(f"l2p_lambda must not be negative: {self.l2p_lambda}")
        if not self.prompt_lr > 0.0:
            raise ConfigError(f"prompt_lr must be above 0, not {self.prompt_lr}")
        if self.l2p_sign not in SIGNS:
            raise ConfigError(f"l2p_sign {self.l2p_sign!r} is not one of {', '.join(SIGNS)}")


class L2P(Method):
    label = "L2P"
    family = "prompt"
    forgets = True
    Config: ClassVar[type] = L2PConfig

    def __init__(self, backbone, adapters, config, seed):
        super().__init__(backbone, adapters, config, seed)
        self._set(torch.empty(0), torch.empty(0))
        self._facts: dict[str, float] = {}

    @property
    def prefix_length(self) -> int:
        return self.config.l2p_select * self.config.l2p_length

    def _set(self, prompts: Tensor, keys: Tensor) -> None:
        self.prompts = nn.Parameter(prompts.to(self.device).clone())  # [M, length, d]
        self.keys = nn.Parameter(keys.to(self.device).clone())  # [M, d]

    def shared(self) -> dict[str, Tensor]:
        return {"prompts": self.prompts.detach(), "keys": self.keys.detach()}

    def load_shared(self, tensors: dict[str, Tensor]) -> None:
        nothing = torch.empty(0)  # no task yet: `begin` draws
        self._set(tensors.get("prompts", nothing), tensors.get("keys", nothing))

    def begin(self, lesson: Lesson, train: Train) -> None:
        if not self.keys.numel():
            shape = (self.config.l2p_pool, self.config.l2p_length, self.backbone.width)
            prompts = uniform(f"l2p/{self.seed}/prompts", shape[0] * shape[1] * shape[2], 0.5).view(shape)
            keys = uniform(f"l2p/{self.seed}/keys", shape[0] * shape[2], 0.5).view(shape[0], shape[2])
            self._set(prompts, keys)

    def groups(self) -> list[Group]:
        return [Group([self.prompts, self.keys], self.config.prompt_lr)]

    def query(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The bare backbone's feature of each input, dropout off. [batch, d]"""
        model = self.backbone.model
        training = model.training
        model.eval()
        with torch.no_grad():
            states = self.backbone.states(ids, mask, Pass()).float()
        model.train(training)
        if self.backbone.reads == "last":  # a decoder's first position has seen one token only
            return states[torch.arange(len(ids), device=ids.device), mask.sum(dim=1) - 1]
        return states[:, 0]

    def select(self, query: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and numbers of the N keys nearest to each query, best first. [batch, d] -> [batch, N], [batch, N]"""
        cosines = F.cosine_similarity(query[:, None], self.keys[None], dim=-1)
        return cosines.topk(self.config.l2p_select, dim=1)

    def _prefix(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.prompts[self.select(self.query(ids, mask))[1]].flatten(1, 2)

    def passing(self, batch: Batch | None = None) -> Pass:
        return Pass(prefix=self._prefix)

    def loss(self, lesson: Lesson, batch: Batch) -> Tensor:
        cosines, chosen = self.select(self.query(batch.ids, batch.mask))
        task = lesson.loss(batch, Pass(prefix=self.prompts[chosen].flatten(1, 2)))
        return task + SIGNS[self.config.l2p_sign] * self.config.l2p_lambda * cosines.sum(dim=1).mean()

    @torch.no_grad()
    def end(self, lesson: Lesson) -> None:
        """Which prompts the training inputs pick: without diversity a few win everything."""
        found = [self.select(self.query(b.ids, b.mask)) for b in lesson.batches(lesson.train.rows, 64)]
        cosines, chosen = (torch.cat(parts) for parts in zip(*found, strict=True))
        uses = chosen.flatten().bincount(minlength=self.config.l2p_pool)
        self._facts = {
            "prompts_used": float((uses > 0).sum()),
            "prompt_top_share": float(uses.max() / len(chosen)),  # share of inputs that pick the favourite
            "prompt_cosine": float(cosines.mean()),
        }

    def recall(self, kept: Kept) -> Pass:
        return self.passing()

    def facts(self) -> dict[str, float]:
        return self._facts
