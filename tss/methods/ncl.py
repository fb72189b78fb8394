"""NCL and NCL (Adapter): one model, trained task after task with nothing to protect it. The measure of forgetting.

NCL trains the whole LM, as "ncl" of the authors' code; NCL (Adapter) one adapter, as their "adapter_ncl".
Shared: the LM (or the adapter), which every task reads; kept per task: nothing but its head.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tss.backbones.backbone import Pass
from tss.methods.method import Kept, Train
from tss.methods.one import One, OneAdapter
from tss.tasks.lesson import Lesson


class NclAdapter(OneAdapter):
    label = "NCL (Adapter)"
    self_contained = False
    forgets = True
    order_free = False

    def begin(self, lesson: Lesson, train: Train) -> None:
        if not self.weights.numel():
            self._set(self.bank.near_identity(f"ncl/{self.seed}"), torch.zeros(self.bank.bias_size))

    def shared(self) -> dict[str, Tensor]:
        return {"weights": self.weights.detach(), "biases": self.biases.detach()}

    def load_shared(self, tensors: dict[str, Tensor]) -> None:
        nothing = torch.empty(0)  # no task yet: `begin` draws
        self._set(tensors.get("weights", nothing), tensors.get("biases", nothing))

    def kept(self) -> Kept:
        return Kept()

    def recall(self, kept: Kept) -> Pass:
        with torch.no_grad():
            return self.passing()


class Ncl(One):
    label = "NCL"
    self_contained = False
    forgets = True
    order_free = False

    def begin(self, lesson: Lesson, train: Train) -> None:
        if not self.weights:
            super().begin(lesson, train)

    def shared(self) -> dict[str, Tensor]:
        return {f"lm.{name}": p.detach() for name, p in self.weights.items()}

    def load_shared(self, tensors: dict[str, Tensor]) -> None:
        self._set({name.removeprefix("lm."): t for name, t in tensors.items() if name.startswith("lm.")})

    def kept(self) -> Kept:
        return Kept()

    def recall(self, kept: Kept) -> Pass:
        return self.passing()
