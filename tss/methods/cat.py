"""CAT: continual learning of similar and dissimilar tasks (Ke et al. 2020, arXiv 2112.10017), here on adapters.

HAT, and before each task a test of which earlier tasks are similar (`similarity.py`):

    v_k    dev score of a new readout over the frozen features of task k's mask;  v_ref of a fresh adapter and readout
    task k is similar iff v_k > v_ref
    m_acc  = max of the masks of the dissimilar tasks only: units of similar tasks are open and may move
    L      = L_HAT + CE of a second path, with a head of its own: attention over the features of the similar tasks (no
             gradient) and of the task, at every position before the head or LM head (`attention.py`)

Dev says which path answers. With no similar task it is HAT, bit for bit. `cat_open=code` opens every unit that a
similar task was the first to claim, even if a dissimilar one uses it too, as the released code does. `cat_probe=full`
trains every readout as a whole task, as published: t trainings before task t. `cached` (a shortcut) trains each for a
few epochs over features computed once; generation computes them again.

Kept per task: its mask, the numbers of its similar tasks, its task embedding. Shared: HAT's, the masks of all tasks,
the attention. The second path runs the masks of all similar tasks. Inner trainings are not resumed halfway.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from tss.backbones.added import Functions, Pass
from tss.errors import ConfigError
from tss.methods.attention import answering_path, first_values, learning_path
from tss.methods.hat import Hat, HatConfig
from tss.methods.method import Group, Kept, Train
from tss.methods.similarity import dev_score, reference_score, transfer_score
from tss.randomness import normal
from tss.tasks.batches import Batch
from tss.tasks.lesson import Lesson

OPENINGS = ("similar", "code")
PROBES = ("cached", "full")


@dataclass(frozen=True)
class CatConfig(HatConfig):
    cat_open: str = "similar"
    cat_probe: str = "cached"  # "full": as published
    cat_probe_epochs: int = 10  # of a cached probe
    cat_lr: float = 1e-3  # of the attention, its task embedding and its head

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, known in {"cat_open": OPENINGS, "cat_probe": PROBES}.items():
            if getattr(self, key) not in known:
                raise ConfigError(f"{key} {getattr(self, key)!r} is not one of {', '.join(known)}")
        if self.cat_probe_epochs < 1:
            raise ConfigError(f"cat_probe_epochs must be at least 1, not {self.cat_probe_epochs}")
        if not self.cat_lr > 0.0:
            raise ConfigError(f"cat_lr must be above 0, not {self.cat_lr}")


def first_claims(masks: Tensor) -> Tensor:
    """What each task added to m_acc when it was learnt. [tasks, units] -> [tasks, units]"""
    so_far = masks.cummax(dim=0).values
    return torch.diff(so_far, dim=0, prepend=torch.zeros_like(masks[:1]))


class Cat(Hat):
    label = "CAT"
    mixable = False  # a task may run several masks
    Config: ClassVar[type] = CatConfig

    def __init__(self, backbone, adapters, config, seed):
        super().__init__(backbone, adapters, config, seed)
        self.masks = torch.zeros(0, self.layers.units, device=self.device)  # of all tasks [tasks, units]
        self.attention: dict[str, nn.Parameter] = {}  # empty before the first task
        self.query = nn.Parameter(torch.empty(0, device=self.device))  # task embedding [d]
        self.similar: list[int] = []  # numbers of the earlier tasks that are similar to this one
        self.second: Lesson | None = None  # the task as read by the second path's own head
        self.attends = False  # whether that path answers
        self._scores: dict[str, float] = {}

    @property
    def size(self) -> int:
        return super().size + 8 * self.backbone.width**2

    def shared(self) -> dict[str, Tensor]:
        attention = {f"attention.{name}": p.detach() for name, p in self.attention.items()}
        return {**super().shared(), "masks": self.masks, **attention}

    def load_shared(self, tensors: dict[str, Tensor]) -> None:
        super().load_shared(tensors)
        self.masks = tensors.get("masks", torch.zeros(0, self.layers.units)).to(self.device)
        self._set_attention({n.removeprefix("attention."): t for n, t in tensors.items() if n.startswith("attention.")})

    def _set_attention(self, tensors: dict[str, Tensor]) -> None:
        self.attention = {name: nn.Parameter(t.to(self.device).clone()) for name, t in tensors.items()}

    def begin(self, lesson: Lesson, train: Train) -> None:
        self.second, self.attends, self._scores = None, False, {}
        self.similar = self._find_similar(lesson, train)
        self.used = self._blocked()
        super().begin(lesson, train)
        if not self.attention:
            self._set_attention(first_values(self.backbone.width, f"cat/{self.seed}"))
        if self.similar:
            self.masks_of_similar = self.masks[self.similar]
            self.query = nn.Parameter(normal(f"cat/{lesson.seed_key}", self.backbone.width, 1.0).to(self.device))
            self.second = copy(lesson)
            self.second.head = lesson.kind.head(self.backbone.width, f"{lesson.seed_key}/second").to(self.device)

    def _find_similar(self, lesson: Lesson, train: Train) -> list[int]:
        """Numbers of the earlier tasks whose features serve this one better than a fresh adapter does."""
        if not len(self.masks):
            return []
        epochs = self.config.cat_probe_epochs if self.config.cat_probe == "cached" else 0
        reference = reference_score(self, lesson, train)
        found = [transfer_score(self, mask, lesson, train, epochs) for mask in self.masks]
        self._scores = {"reference_dev": reference, "best_transfer_dev": max(found)}
        return [k for k, score in enumerate(found) if score > reference]

    def _blocked(self) -> Tensor:
        """m_acc, with what similar tasks hold left open. [units]"""
        others = torch.tensor([k not in self.similar for k in range(len(self.masks))], device=self.device)
        if not others.any():
            return torch.zeros_like(self.used)
        if self.config.cat_open == "code":
            return first_claims(self.masks)[others].sum(dim=0)
        return self.masks[others].amax(dim=0)

    def groups(self) -> list[Group]:
        if self.second is None:
            return super().groups()
        own = [*self.attention.values(), self.query, *self.second.head.parameters()]
        return [*super().groups(), Group(own, self.config.cat_lr)]

    def loss(self, lesson: Lesson, batch: Batch) -> Tensor:
        loss = super().loss(lesson, batch)
        if self.second is None:
            return loss
        self.second.head.train(lesson.head.training)
        masks = self.masks_of_similar
        own, others = self._adapters(self.mask()), self._adapters(masks)
        added = learning_path(self.attention, self.query, own, others, len(masks), self.second, batch)
        return loss + self.second.loss(batch, added)

    def _adapters(self, mask: Tensor) -> Functions:
        return self.layers.functions(self.weights, self.biases, mask)

    def _second_path(self, mask: Tensor, similar: list[int], query: Tensor) -> Pass:
        masks = torch.cat([mask[None], self.masks[similar]])
        weights = {name: p.detach() for name, p in self.attention.items()}
        return answering_path(weights, query, self._adapters(masks), len(masks))

    @torch.no_grad()
    def end(self, lesson: Lesson) -> None:
        if self.second is not None:
            self.second.head.eval()
            second = self._second_path(self.mask(), self.similar, self.query.detach())
            self.attends = dev_score(self.second, second) > dev_score(lesson, self.passing())
            if self.attends:
                lesson.head.load_state_dict(self.second.head.state_dict())
        self.masks = torch.cat([self.masks, self.mask()[None]])
        self.used = self.masks.amax(dim=0)

    def kept(self) -> Kept:
        tensors = dict(super().kept().tensors)
        if self.similar:
            tensors["similar"] = torch.tensor(self.similar)
        if self.attends:
            tensors["query"] = self.query.detach().cpu()
        return Kept(tensors=tensors)

    def recall(self, kept: Kept) -> Pass:
        if "query" not in kept.tensors:
            return super().recall(kept)
        mask, query = (kept.tensors[name].to(self.device) for name in ("mask", "query"))
        with torch.no_grad():
            return self._second_path(mask, kept.tensors["similar"].tolist(), query)

    def facts(self) -> dict[str, float]:
        more = {"similar_tasks": float(len(self.similar)), "attends": float(self.attends)}
        return {**super().facts(), **self._scores, **more}
