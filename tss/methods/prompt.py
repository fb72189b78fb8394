"""ONE (Prompt): every task alone, by soft prompts before the input of the frozen backbone (Lester et al. 2021,
arXiv 2104.08691; in continual learning the C-PT baseline of Zhu et al. 2022, arXiv 2203.06654).

    encoder input = [p_1 … p_n ; E(x)],  attention mask = [1 … 1 ; mask],  decoder and targets as without prompts

Trained: p [n, d] and the task's head; p begins as the embeddings of words. Kept per task: p in float32. Nothing is
shared, so nothing is forgotten. Cost about 0.7 of NCL (no weight gradients of the LM), on inputs n tokens longer.
`prompt_init=first` takes the first n rows of the vocabulary, as the published code does. That code also puts n
ignored labels before the target of a generation, which moves the decoder against its targets: not imitated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from tss.backbones.backbone import Pass
from tss.errors import ConfigError
from tss.methods.method import Group, Kept, Method, Train
from tss.randomness import shuffler
from tss.tasks.batches import Batch
from tss.tasks.lesson import Lesson

INITS = ("words", "first")


@dataclass(frozen=True)
class PromptConfig:
    prompt_length: int = 20
    prompt_lr: float = 3e-2
    prompt_init: str = "words"  # embeddings of words drawn at random; "first": of the first rows of the vocabulary

    def __post_init__(self) -> None:
        if self.prompt_length < 1:
            raise ConfigError(f"prompt_length must be at least 1, not {self.prompt_length}")
        if not self.prompt_lr > 0.0:
            raise ConfigError(f"prompt_lr must be above 0, not {self.prompt_lr}")
        if self.prompt_init not in INITS:
            raise ConfigError(f"prompt_init {self.prompt_init!r} is not one of {', '.join(INITS)}")


class OnePrompt(Method):
    label = "ONE (Prompt)"
    family = "bounds"
    order_free = True
    Config: ClassVar[type] = PromptConfig

    def __init__(self, backbone, adapters, config, seed):
        super().__init__(backbone, adapters, config, seed)
        self.prompt = nn.Parameter(torch.empty(0, device=self.device))  # [n, d]

    @property
    def prefix_length(self) -> int:
        return self.config.prompt_length

    def begin(self, lesson: Lesson, train: Train) -> None:
        ids = torch.tensor(self._words(lesson.seed_key), device=self.device)
        with torch.no_grad():
            self.prompt = nn.Parameter(self.backbone.embeddings(ids).float().clone())

    def _words(self, key: str) -> list[int]:
        """Ids of the tokens whose embeddings a prompt begins with."""
        known = list(range(self.backbone.model.config.vocab_size))
        if self.config.prompt_init == "words":
            known = [i for i in known if i not in self.backbone.text.special]
            shuffler("prompt", key).shuffle(known)
        return [known[i % len(known)] for i in range(self.config.prompt_length)]

    def groups(self) -> list[Group]:
        return [Group([self.prompt], self.config.prompt_lr)]

    def passing(self, batch: Batch | None = None) -> Pass:
        return before_each(self.prompt)

    def kept(self) -> Kept:
        return Kept(tensors={"prompt": self.prompt.detach().cpu()})

    def recall(self, kept: Kept) -> Pass:
        return before_each(kept.tensors["prompt"].to(self.device))


def before_each(prompt: Tensor) -> Pass:
    """A pass with the same prompt [n, d] before every input."""
    return Pass(prefix=lambda ids, mask: prompt.expand(len(ids), -1, -1))
