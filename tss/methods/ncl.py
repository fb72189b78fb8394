"""NCL (Adapter): one adapter, trained task after task with nothing to protect it. The measure of forgetting.

Shared: the adapter, which every task reads; kept per task: nothing but its head. ("ncl" of the paper trains the full
LM; this is its adapter form, "adapter_ncl".)
"""

from __future__ import annotations

import torch
from torch import Tensor

from tss.backbones.backbone import Pass
from tss.methods.method import Kept, Train
from tss.methods.one import OneAdapter
from tss.tasks.lesson import Lesson


class NclAdapter(OneAdapter):
    label = "NCL (Adapter)"
    forgets = True
    order_free = False

    def begin(self, lesson: Lesson, train: Train) -> None:
        if not self.weights.numel():
            self._set(self.bank.draw(f"ncl/{self.seed}", "normal002"), torch.zeros(self.bank.bias_size))

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
