"""LAMOL: one language model solves the tasks and dreams examples of the earlier ones (Sun et al. 2020, "LAMOL: LAnguage
MOdeling for Lifelong Language Learning", arXiv 1909.03329).

    L = L_task + lambda * L_generation         both forms of `lamol_forms`, of every example
    before task t > 1: gamma * |D_t| texts are drawn from the LM after `__gen__`, equally many for each earlier task;
    those with exactly one `__ans__` join the training examples, in both forms

L_task is the mean over answer and end mark, L_generation the mean over all tokens, those of `__ans__` weighing 5.
Classification is by writing the label; a text that is none of the labels is wrong. No tagging, as published.

On a decoder (GPT-2) this is LAMOL; on an encoder-decoder it is our port, labelled "LAMOL (port)": the encoder reads
what stands left of a form's bar, the decoder writes the rest. Shared: the LM. Kept per task: nothing. Cost: NCL with
both forms of every example, about twice its tokens, and the drawing of the pseudo-examples.
`lamol_count=code` imitates the published code, which rounds gamma |D_t| up and then down to a multiple of the number
of earlier tasks: 228 examples at 0.05 give none from task 14 on. `lamol_task_tokens` is its own mark for each task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from tss.backbones.backbone import Pass
from tss.errors import BackboneError, ConfigError
from tss.methods.lamol_forms import ANSWER, GENERATE, Asked, Named, ends, generation_row, mark, parse
from tss.methods.method import Group, Train
from tss.methods.ncl import Ncl
from tss.methods.one import TrainedLmConfig
from tss.randomness import seed_of
from tss.tasks.batches import IGNORED, Batch, Row
from tss.tasks.lesson import Lesson, Split

COUNTS = ("even", "code")
TOGETHER = 32  # texts drawn at once


@dataclass(frozen=True)
class LamolConfig(TrainedLmConfig):
    lm_lr: float = 6.25e-5
    lamol_lambda: float = 0.25
    lamol_gamma: float = 0.05
    lamol_count: str = "even"  # "code": as published code rounds
    lamol_task_tokens: bool = False
    lamol_top_k: int = 20
    lamol_answer_weight: float = 5.0
    lamol_eps: float = 1e-4  # of Adam
    lamol_decay: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("lamol_lambda", "lamol_gamma", "lamol_decay"):
            if not getattr(self, key) >= 0.0:
                raise ConfigError(f"{key} must not be negative: {getattr(self, key)}")
        if self.lamol_count not in COUNTS:
            raise ConfigError(f"lamol_count {self.lamol_count!r} is not one of {', '.join(COUNTS)}")
        if self.lamol_top_k < 1:
            raise ConfigError(f"lamol_top_k must be at least 1, not {self.lamol_top_k}")
        for key in ("lamol_answer_weight", "lamol_eps"):
            if not getattr(self, key) > 0.0:
                raise ConfigError(f"{key} must be above 0, not {getattr(self, key)}")


def shares(examples: int, gamma: float, tasks: int, rounding: str = "even") -> list[int]:
    """How many pseudo-examples each of `tasks` earlier tasks gives a task of so many examples."""
    if not tasks:
        return []
    total = ceil(round(gamma * examples, 9))  # 0.07 * 100 is 7.000000000000001
    spare = 0 if rounding == "code" else total % tasks
    return [total // tasks + (i < spare) for i in range(tasks)]


def covered(ids: Tensor, sought: Tensor) -> Tensor:
    """Which places belong to an occurrence of a mark. ids [batch, m]; sought [n] -> bool [batch, m]"""
    begins = (ids.unfold(1, len(sought), 1) == sought).all(dim=-1)
    room = ids.shape[1] - begins.shape[1]
    return torch.stack([F.pad(begins, (i, room - i)) for i in range(room + 1)]).any(dim=0)


class Lamol(Ncl):
    label = "LAMOL (port)"
    family = "replay"
    kinds = {"classification": Named, "generation": Asked}
    Config: ClassVar[type] = LamolConfig

    def __init__(self, backbone, adapters, config, seed):
        super().__init__(backbone, adapters, config, seed)
        if backbone.layout.family == "encoder":
            raise BackboneError(f"{backbone.name} is an encoder; LAMOL writes text: take a decoder or encoder-decoder")
        self.port = backbone.layout.family != "decoder"
        self.label = type(self).label if self.port else "LAMOL"  # type: ignore[misc]
        self.learnt = 0
        self.pseudo: list[Row] = []  # task forms of what was drawn
        self.drawn = 0
        self._forms: list[Row] = []  # generation form of each training row and of each pseudo-example
        self._answer = torch.tensor(mark(backbone.text, ANSWER), device=self.device)

    def begin(self, lesson: Lesson, train: Train) -> None:
        super().begin(lesson, train)
        c = self.config
        counts = shares(len(lesson.train), c.lamol_gamma, self.learnt, c.lamol_count)
        self.drawn, self.pseudo = sum(counts), []
        own = self._start(self.learnt)
        self._forms = [generation_row(self.backbone, row, own) for row in lesson.train.rows]
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(seed_of("lamol", lesson.seed_key))
            wanted = Counter[tuple[int, ...]]()  # tasks that begin with the same mark are drawn together
            for task, count in enumerate(counts):
                wanted[tuple(self._start(task))] += count
            limit = lesson.kind.limit(self.backbone)
            for start, count in wanted.items():
                found = [parse(self.backbone, ids, limit) for ids in self._draw(lesson, start, count)]
                kept = [row for row in found if row is not None]
                self.pseudo += kept
                self._forms += [generation_row(self.backbone, row, start) for row in kept]

    def _start(self, task: int) -> Sequence[int]:
        """The mark before the generation forms of task number `task`, from 0."""
        return mark(self.backbone.text, f"__{task + 1}__" if self.config.lamol_task_tokens else GENERATE)

    def _draw(self, lesson: Lesson, start: Sequence[int], count: int) -> Iterator[list[int]]:
        """Texts that the LM writes after a mark."""
        opening, closing = ends(self.backbone)
        ids = torch.tensor([*opening, *start, *closing], device=self.device)
        lengths, longest = lesson.kind.lengths, self.backbone.longest
        most = lengths.max_input + lengths.max_target
        if longest is not None:
            most = min(most, longest - (0 if self.port else len(ids)))
        for i in range(0, count, TOGETHER):
            rows = ids.expand(min(TOGETHER, count - i), -1)
            limits = {"max_tokens": most, "beams": 1, "top_k": self.config.lamol_top_k}
            yield from self.backbone.generate(rows, torch.ones_like(rows), self.passing(), **limits)

    def lessons(self, lesson: Lesson) -> list[Lesson]:
        """The task with the pseudo-examples among its training rows; what is chosen by is its own dev split."""
        mixed = Lesson(lesson.backbone, lesson.kind, lesson.name, lesson.seed_key)
        mixed.head, mixed.valid, mixed.test = lesson.head, lesson.valid, lesson.test
        rows, gold = [*lesson.train.rows, *self.pseudo], [*lesson.train.gold, *[None] * len(self.pseudo)]
        mixed.train = Split(rows, gold, self._forms)
        return [mixed]

    def groups(self) -> list[Group]:
        options = {"eps": self.config.lamol_eps, "weight_decay": self.config.lamol_decay}
        return [Group(list(self.weights.values()), self.config.lm_lr, options=options)]

    def passing(self, batch: Batch | None = None) -> Pass:
        return Pass(parameters=self.weights, separated=False)

    def loss(self, lesson: Lesson, batch: Batch) -> Tensor:
        added = self.passing(batch)
        assert batch.beside is not None
        generation = self._generation_loss(lesson, batch.beside, added)
        return lesson.loss(batch, added) + self.config.lamol_lambda * generation

    def _generation_loss(self, lesson: Lesson, batch: Batch, added: Pass) -> Tensor:
        logits, target = lesson.logits(batch, added).float(), batch.target
        each = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=IGNORED, reduction="none")
        weight = torch.where(covered(target, self._answer), self.config.lamol_answer_weight, 1.0) * (target != IGNORED)
        return (each.view_as(weight) * weight).sum() / weight.sum()

    def end(self, lesson: Lesson) -> None:
        self.learnt += 1

    def shared(self) -> dict[str, Tensor]:
        return {**super().shared(), "learnt": torch.tensor(self.learnt)}

    def load_shared(self, tensors: dict[str, Tensor]) -> None:
        super().load_shared(tensors)
        self.learnt = int(tensors.get("learnt", torch.tensor(0)))

    def facts(self) -> dict[str, float]:
        return {"port": float(self.port), "pseudo_drawn": float(self.drawn), "pseudo_kept": float(len(self.pseudo))}
