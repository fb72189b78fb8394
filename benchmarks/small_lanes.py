"""Many small trainings at once: each *lane* has scores and a head of its own, its own rows, and its own sub-network at
every site of a shared forward pass. What `small_tasks.py` trains by.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from statistics import fmean

import torch
import torch.nn.functional as F
from sklearn.metrics import f1_score
from torch import Tensor, nn

from tss.backbones.adapters import AdapterBank, AdapterConfig
from tss.backbones.added import Pass
from tss.backbones.backbone import Backbone
from tss.backbones.load import load_backbone
from tss.gates.mixed import grouped
from tss.gates.scores import draw_scores, gated
from tss.learning.schedule import LearningConfig
from tss.methods.plus import SCREENED, left_out_error
from tss.randomness import normal
from tss.tasks.batches import Batch, Row
from tss.tasks.classification import Classification
from tss.tasks.kind import ReadingConfig
from tss.tasks.task import Task

LABELS = ("positive", "negative", "neutral")
LONGEST = 64  # tokens; most reviews are shorter
BATCH, STEPS, FOLDS = 32, 200, 5
LR, HEAD_LR = 3e-2, 2.75e-3


@dataclass
class Lane:
    """One training. labels: how many of LABELS its task has."""

    name: str
    train: list[Row]
    held: list[Row]
    labels: int


@dataclass
class State:
    """scores [lanes, size], head [lanes, labels, d] and its bias [lanes, labels]."""

    scores: Tensor
    head: Tensor
    bias: Tensor

    def of(self, lane: int, times: int) -> State:
        return State(*(each[lane : lane + 1].expand(times, *each.shape[1:]).clone() for each in vars(self).values()))


def folds_of(task: Task, backbone: Backbone) -> list[list[Row]]:
    """The rows of train and valid in folds; rows of one text are in the same one."""
    kind = Classification(LABELS, replace(task.lengths, max_input=LONGEST), "macro_f1", ReadingConfig())
    place: dict[str, int] = {}
    out: list[list[Row]] = [[] for _ in range(FOLDS)]
    for example in (*task.train, *task.valid):
        text = example.input[0] if isinstance(example.input, tuple) else example.input
        fold = place.setdefault(text, len(place) % FOLDS)
        out[fold].append(kind.row(backbone, example.input, example.target))
    return out


class Bench:
    """The backbone, the frozen weights, and training of many lanes at once."""

    def __init__(self, device: str, backbone: str):
        self.backbone = load_backbone(backbone, device=device, dtype="bfloat16" if device == "cuda" else "float32")
        self.bank = AdapterBank(self.backbone.sites, AdapterConfig(adapter_std=0.0), self.backbone.model.dtype)
        self.fixed = self.bank.fixed().to(device)
        self.device = device
        self.kind = Classification(LABELS, None, "macro_f1", ReadingConfig())  # type: ignore[arg-type]

    def fresh(self, names: list[str]) -> State:
        draws = torch.stack([draw_scores(self.bank, f"0/{name}") for name in names])
        heads = [normal(f"head/0/{name}/outer.weight", len(LABELS) * self.bank.width, 0.02) for name in names]
        head = torch.stack(heads).view(len(names), len(LABELS), self.bank.width)
        return State(draws.to(self.device), head.to(self.device), torch.zeros(len(names), len(LABELS)).to(self.device))

    def logits(self, ids: Tensor, mask: Tensor, weights: Tensor, state: State, labels: Tensor) -> Tensor:
        """ids [lanes * rows, length] -> [lanes, rows, LABELS]"""
        lanes = len(weights)
        added = Pass(grouped(self.bank, weights, None, [len(ids) // lanes] * lanes))
        batch = Batch(ids, mask, ids[:, 0], ())
        features = self.kind.features(self.backbone, self.backbone.states(ids, mask, added), batch)
        features = features.float().view(lanes, -1, self.bank.width)
        out = torch.baddbmm(state.bias[:, None], features, state.head.transpose(1, 2))
        return out.masked_fill((torch.arange(len(LABELS), device=ids.device) >= labels[:, None])[:, None], -inf)

    def train(self, lanes: list[Lane], start: State, steps: int = STEPS, noise: float = 0.0, lr: float = LR) -> State:
        """noise: gates open with the chance of s + noise * logistic > 0 while they are trained."""
        table = Rows(lanes, self.backbone.text.pad, self.device)
        state = State(*(nn.Parameter(each.clone()) for each in vars(start).values()))
        optimiser = torch.optim.AdamW(
            [{"params": [state.scores], "lr": lr}, {"params": [state.head, state.bias], "lr": HEAD_LR}],
            weight_decay=0.0,
            fused=self.device == "cuda",
        )
        rates = [group["lr"] for group in optimiser.param_groups]
        schedule = LearningConfig()
        order = torch.Generator().manual_seed(0)
        chances = torch.Generator(self.device).manual_seed(0)
        for step, chosen in zip(range(steps), table.batches(order), strict=False):
            for group, rate in zip(optimiser.param_groups, rates, strict=True):
                group["lr"] = rate * schedule.factor(step, steps)
            scores = state.scores
            if noise:
                u = torch.rand(scores.shape, generator=chances, device=self.device).clamp(1e-6, 1 - 1e-6)
                scores = scores + noise * (u.log() - (-u).log1p())
            weights = gated(scores, self.fixed)
            ids, mask, target = table.at(chosen)
            logits = self.logits(ids, mask, weights, state, table.labels)
            loss = F.cross_entropy(logits.flatten(0, 1), target, reduction="sum") / BATCH  # each lane has its own mean
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        return State(*(each.detach() for each in vars(state).values()))

    @torch.no_grad()
    def answers(self, lanes: list[Lane], state: State) -> list[Tensor]:
        """Logits of the held-out rows, lane by lane."""
        table = Rows([replace(lane, train=lane.held) for lane in lanes], self.backbone.text.pad, self.device)
        weights = gated(state.scores, self.fixed)
        found: list[Tensor] = []
        for first in range(0, max(len(lane.held) for lane in lanes), BATCH):
            numbers = torch.arange(first, first + BATCH)
            chosen = torch.stack([numbers.clamp(max=len(lane.held) - 1) for lane in lanes]) + table.first[:, None]
            ids, mask, _ = table.at(chosen)
            found.append(self.logits(ids, mask, weights, state, table.labels).cpu())
        return [out[: len(lane.held)] for lane, out in zip(lanes, torch.cat(found, dim=1), strict=True)]

    @torch.no_grad()
    def unfitness(self, lane: Lane, scores: Tensor) -> float:
        """How badly the features of a sub-network [size] suit a lane, by TSS+'s screening."""
        table = Rows([replace(lane, train=lane.train[:SCREENED])], self.backbone.text.pad, self.device)
        ids, mask, target = table.at(torch.arange(table.sizes[0])[None])
        added = Pass(self.bank.functions(gated(scores, self.fixed)))
        batch = Batch(ids, mask, target, ())
        states = self.kind.features(self.backbone, self.backbone.states(ids, mask, added), batch)
        return left_out_error(states.double(), target, lane.labels)


def judged(lanes: list[Lane], logits: list[Tensor]) -> dict[str, float]:
    """Scores of all held-out rows; lanes of one name count as one task."""
    each: dict[str, tuple[list[int], list[int]]] = {lane.name: ([], []) for lane in lanes}
    losses = []
    for lane, out in zip(lanes, logits, strict=True):
        gold = torch.tensor([row.target[0] for row in lane.held])
        losses.append(F.cross_entropy(out, gold, reduction="none"))
        each[lane.name][0].extend(gold.tolist())
        each[lane.name][1].extend(out.argmax(1).tolist())
    gold_all, said = ([x for pair in each.values() for x in pair[i]] for i in (0, 1))
    return {
        "right": round(100 * fmean(a == b for a, b in zip(gold_all, said, strict=True)), 2),
        "loss": round(float(torch.cat(losses).mean()), 4),
        "macro_f1": round(100 * f1_score(gold_all, said, average="macro"), 2),
        "mean": round(100 * fmean(f1_score(*pair, average="macro") for pair in each.values()), 2),
        "rows": len(gold_all),
    }


class Rows:
    """The rows of all lanes on the device."""

    def __init__(self, lanes: list[Lane], pad: int, device: str):
        rows = [row for lane in lanes for row in lane.train]
        self.sizes = [len(lane.train) for lane in lanes]
        self.first = torch.tensor([0, *self.sizes[:-1]]).cumsum(0)
        length = max(len(row.ids) for row in rows)
        self.ids = torch.tensor([row.ids + [pad] * (length - len(row.ids)) for row in rows], device=device)
        self.lengths = torch.tensor([len(row.ids) for row in rows])
        self.target = torch.tensor([row.target[0] for row in rows], device=device)
        self.labels = torch.tensor([lane.labels for lane in lanes], device=device)
        self.device = device

    def batches(self, order: torch.Generator):
        """[lanes, BATCH] row numbers, for ever; each lane goes through its rows in orders of its own."""
        left: list[Tensor] = [torch.empty(0, dtype=torch.long) for _ in self.sizes]
        while True:
            out = []
            for i, size in enumerate(self.sizes):
                while len(left[i]) < BATCH:
                    left[i] = torch.cat([left[i], torch.randperm(size, generator=order)])
                out.append(left[i][:BATCH] + self.first[i])
                left[i] = left[i][BATCH:]
            yield torch.stack(out)

    def at(self, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        longest = int(self.lengths[chosen.cpu()].max())
        chosen = chosen.to(self.device).flatten()
        ids = self.ids[chosen, :longest]
        mask = (torch.arange(longest, device=self.device) < self.lengths.to(self.device)[chosen, None]).long()
        return ids, mask, self.target[chosen]
