"""CUBER: updates stay orthogonal to what earlier tasks read, except where those tasks would gain as well (Lin et al.
2022, "Beyond Not-Forgetting: Continual Learning with Backward Knowledge Transfer", arXiv 2211.00789). On adapters; no
published code was found, so this is a reconstruction from the paper and TRGP, its predecessor (arXiv 2202.02931).

Per weight matrix W [out, in], inputs of task j as columns of R [in, n]: of all directions m of the memory M (energies
|m'R|^2) and the left singular vectors of R - MM'R (energies sigma^2) the strongest that hold tau |R|^2 are S_j; those
that are new join M. So S_j is a choice of columns of M. G_j: gradient of L_j at the end of task j.
Before task t, g = gradient of L_t at W_{t-1} on one batch; for every matrix and j < t:

    sufficient  |g S_j| >= eps_1 |g|           positive  <G_j, g> >= eps_2 |G_j||g|
    regime 1    not sufficient                 S_j is projected out
    regime 2    sufficient, not positive       S_j is projected out; W_eff = W + sum_j W S_j (Q_j - I) S_j'
    regime 3    both                           S_j is free, + lambda |(W - W_{t-1}) S_j|^2; W_eff as well
    W <- W - (step - step S S')                S: all columns of M in an S_j of regime 1 or 2

Q_j starts at I and is learnt by task t, for the `cuber_top` tasks of a matrix with the largest |g S_j|. Biases are
unprotected, so only the first task trains them. Shared: the adapter, M, the columns of each S_j, G_j (bfloat16).
Kept per task: its Q_j. Cost: NCL (Adapter), a batch before and a hundred examples after each task, eigenvectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from tss.backbones.backbone import Pass
from tss.backbones.repeatable import gradients
from tss.errors import ConfigError
from tss.gates.subspace import directions, energies, regime
from tss.methods.method import Group, Kept, Train
from tss.methods.ncl import NclAdapter
from tss.tasks.batches import Batch
from tss.tasks.lesson import Lesson


@dataclass(frozen=True)
class CuberConfig:
    cuber_tau: float = 0.97  # energy kept of the first task; grows by cuber_tau_step a task up to cuber_tau_most
    cuber_tau_step: float = 0.003
    cuber_tau_most: float = 0.995
    cuber_eps1: float = 0.5
    cuber_eps2: float = 0.0
    cuber_lambda: float = 2.0
    cuber_top: int = 2
    cuber_samples: int = 125  # whose inputs make up R
    cuber_batch: int = 32  # of the gradients g and G
    cuber_lr: float = 0.01
    cuber_rule: str = "sgd"  # "adamw": then its step is projected, not the gradient

    def __post_init__(self) -> None:
        for key in ("cuber_tau", "cuber_tau_most"):
            if not 0.0 < getattr(self, key) <= 1.0:
                raise ConfigError(f"{key} is a share above 0, at most 1, not {getattr(self, key)}")
        if min(self.cuber_samples, self.cuber_batch) < 1 or min(self.cuber_top, self.cuber_lambda) < 0:
            raise ConfigError("cuber_samples and cuber_batch must be at least 1, cuber_top and cuber_lambda at least 0")
        if not self.cuber_lr > 0.0:
            raise ConfigError(f"cuber_lr must be above 0, not {self.cuber_lr}")
        if self.cuber_rule not in ("sgd", "adamw"):
            raise ConfigError(f"cuber_rule {self.cuber_rule!r} is not one of sgd, adamw")


class Cuber(NclAdapter):
    label = "CUBER"
    family = "projection"
    Config: ClassVar[type] = CuberConfig

    def __init__(self, backbone, adapters, config, seed):
        super().__init__(backbone, adapters, config, seed)
        self._clear()

    def _clear(self) -> None:
        self.memory = [torch.zeros(s.columns, 0, device=self.device) for s in self.bank.segments]  # M of each matrix
        self.columns: list[list[Tensor]] = []  # [task][matrix]: which columns of M are S_j
        self.gradients: list[Tensor] = []  # [task]: G_j, flat as the weights
        self._plain()

    def _plain(self) -> None:
        """Nothing projected or scaled, as for a first task."""
        self.regimes: list[list[int]] = [[] for _ in self.memory]  # [matrix][task]
        self.blocked = [m[:, :0] for m in self.memory]  # S of each matrix
        self.free: dict[int, Tensor] = {}  # by matrix, the sum of S_j S_j' over regime 3
        self.scales: dict[str, nn.Parameter] = {}  # Q_j by "matrix.task"
        self.bases: dict[str, Tensor] = {}  # S_j likewise

    @property
    def size(self) -> int:
        return self.bank.size + self.config.cuber_top * sum(s.columns**2 for s in self.bank.segments)

    def basis(self, matrix: int, task: int) -> Tensor:
        """S_j. [in, k]"""
        chosen = self.columns[task][matrix]
        return self.memory[matrix][:, : len(chosen)][:, chosen]

    def begin(self, lesson: Lesson, train: Train) -> None:
        super().begin(lesson, train)
        self._plain()
        if self.columns:
            self.start = self.weights.detach().clone()  # W_{t-1}
            for i, g in enumerate(self.bank.matrices(self._gradient(lesson))):
                self._judge(i, g)

    def _judge(self, i: int, g: Tensor) -> None:
        """Regimes of all earlier tasks at matrix number i, and what follows from them."""
        c, used = self.config, torch.zeros(self.memory[i].shape[1], dtype=torch.bool, device=self.device)
        ranked = []
        for task, before in enumerate(self.gradients):
            basis, past = self.basis(i, task), self.bank.matrices(before.float())[i]
            found, share = regime(g, basis, past, c.cuber_eps1, c.cuber_eps2)
            self.regimes[i].append(found)
            if found == 3:
                self.free[i] = self.free.get(i, 0.0) + basis @ basis.T
            else:
                used[: len(self.columns[task][i])] |= self.columns[task][i]
            if found > 1:
                ranked.append((share, task, basis))
        self.blocked[i] = self.memory[i][:, used]
        for _, task, basis in sorted(ranked, key=lambda one: one[:2], reverse=True)[: c.cuber_top]:
            self.bases[f"{i}.{task}"] = basis
            self.scales[f"{i}.{task}"] = nn.Parameter(torch.eye(basis.shape[1], device=self.device))

    def _gradient(self, lesson: Lesson) -> Tensor:
        """dL/dW on the task's first examples, as the method stands. [size]"""
        lesson.head.eval()
        batch = lesson.batch(lesson.train.rows[: self.config.cuber_batch])
        return gradients(lambda: lesson.loss(batch, self.passing()), [self.weights])[0].float()

    def groups(self) -> list[Group]:
        trained = [self.weights, *self.scales.values(), *([] if self.columns else [self.biases])]
        return [Group(trained, self.config.cuber_lr, self.config.cuber_rule)]

    def effective(self, scales: Mapping[str, Tensor], bases: Mapping[str, Tensor]) -> Tensor:
        """W + sum_j W S_j (Q_j - I) S_j' of all matrices, flat."""
        if not scales:
            return self.weights
        own = self.bank.matrices(self.weights)
        parts = list(own)
        for key, scale in scales.items():
            i, basis = int(key.split(".")[0]), bases[key]
            parts[i] = parts[i] + own[i] @ basis @ (scale - torch.eye(len(scale), device=self.device)) @ basis.T
        return torch.cat([part.flatten() for part in parts])

    def passing(self, batch: Batch | None = None) -> Pass:
        return Pass(self.bank.functions(self.effective(self.scales, self.bases), self.biases))

    def loss(self, lesson: Lesson, batch: Batch) -> Tensor:
        return super().loss(lesson, batch) + self.config.cuber_lambda * self.drift()

    def drift(self) -> Tensor:
        """Sum over regime 3 of |(W - W_{t-1}) S_j|^2 = <D sum_j S_j S_j', D>: as dear for forty tasks as for one."""
        if not self.free:
            return self.weights.new_zeros(())
        moved = self.bank.matrices(self.weights - self.start)
        return torch.stack([((moved[i] @ spread) * moved[i]).sum() for i, spread in self.free.items()]).sum()

    def before_step(self) -> None:
        self._before = self.weights.detach().clone()

    @torch.no_grad()
    def after_step(self) -> None:
        """Of the step, what lies in S is taken back. With plain SGD that is the same as projecting the gradient."""
        pairs = zip(self.bank.matrices(self.weights), self.bank.matrices(self._before), strict=True)
        for (now, before), basis in zip(pairs, self.blocked, strict=True):
            if basis.shape[1]:
                now.sub_((now - before) @ basis @ basis.T)

    def end(self, lesson: Lesson) -> None:
        c = self.config
        self.gradients.append(self._gradient(lesson).to(torch.bfloat16))
        tau = min(c.cuber_tau + c.cuber_tau_step * len(self.columns), c.cuber_tau_most)
        rows = lesson.train.rows[: c.cuber_samples]
        passes = (partial(lesson.logits, batch) for batch in lesson.batches(rows, 1))  # one by one: no padding
        found = energies(self.bank, self.effective(self.scales, self.bases), self.biases, passes)
        grown = [directions(memory, energy, tau) for memory, energy in zip(self.memory, found, strict=True)]
        self.memory = [memory for memory, _ in grown]
        self.columns.append([chosen for _, chosen in grown])

    def shared(self) -> dict[str, Tensor]:
        state = {**super().shared(), **{f"memory.{i}": m for i, m in enumerate(self.memory)}}
        for task, (chosen, gradient) in enumerate(zip(self.columns, self.gradients, strict=True)):
            state |= {f"columns.{task}.{i}": each for i, each in enumerate(chosen)} | {f"gradient.{task}": gradient}
        return state

    def load_shared(self, tensors: dict[str, Tensor]) -> None:
        super().load_shared(tensors)
        self._clear()
        held = {name: tensor.to(self.device) for name, tensor in tensors.items()}
        self.memory = [held.get(f"memory.{i}", m) for i, m in enumerate(self.memory)]
        while (task := len(self.columns)) < sum(name.startswith("gradient.") for name in held):
            self.gradients.append(held[f"gradient.{task}"])
            self.columns.append([held[f"columns.{task}.{i}"] for i in range(len(self.memory))])

    def kept(self) -> Kept:
        return Kept(tensors={f"scale.{key}": scale.detach().cpu() for key, scale in self.scales.items()})

    @torch.no_grad()
    def recall(self, kept: Kept) -> Pass:
        scales = {name.removeprefix("scale."): t.to(self.device) for name, t in kept.tensors.items()}
        bases = {key: self.basis(*map(int, key.split("."))) for key in scales}
        return Pass(self.bank.functions(self.effective(scales, bases), self.biases))

    def facts(self) -> dict[str, float]:
        """Shares of regimes over matrices and earlier tasks, of directions in use, and bytes of all that is shared."""
        judged = [found for each in self.regimes for found in each]
        facts = {f"regime_{n}": judged.count(n) / len(judged) for n in (1, 2, 3) if judged}
        for name, part in (("used_down", self.memory[::2]), ("used_up", self.memory[1::2])):
            facts[name] = sum(m.shape[1] / m.shape[0] for m in part) / len(part)
        return facts | {"shared_bytes": float(sum(t.numel() * t.element_size() for t in self.shared().values()))}
