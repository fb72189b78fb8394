"""CTR: capsules and transfer routing for continual learning (Ke et al. 2021, arXiv 2112.03271).

At every encoder site, x [n, d] the adapter's input, t the task, i <= t the tasks it can see:

    f_i     = squash(FC_i x) in R^3 for each token,   squash(u) = |u|^2/(1+|u|^2) u/|u|
    u_{j|i} = f_i R_{j,i}, j = 1..3                                               nine numbers a token
    c_i     = max over time of relu(convolutions of width 3, 4, 5 over f_i), 100 channels each;   z_i = c_i + P c_t
    delta_i = hard Gumbel-softmax(G z_i) in {0, 1};   a_i = A z_i in R^9          per text
    v       = sum_{i <= t} delta_i a_i u_i;   h = x + O_t v + o_t;   a = HAT's two masked layers of h

Loss, masks and blocking are HAT's. FC_i and R_i of all tasks seen, the convolutions, P, G and A stay trainable: that is
the transfer, and why it forgets; capsules of later tasks do not exist yet. When it answers, delta is the argmax.
Padding is left out of convolutions and maximum, so that an answer does not depend on the other texts of a batch.
Decoder sites have the masked layers alone, as in the released code: cached decoding sees one token at a time.

Shared: HAT's, convolutions and the like, and for every task 3 d + 30 numbers a site. Kept per task: its mask, O_t and
o_t (10 d a site) and its number. Cost grows linearly with the number of tasks, at every encoder site.
"""

from __future__ import annotations

from functools import partial
from math import sqrt
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tss.backbones.backbone import Pass
from tss.backbones.sites import AdapterFunction
from tss.errors import ConfigError
from tss.methods.hat import Hat
from tss.methods.method import Group, Kept, Train
from tss.randomness import normal, uniform
from tss.tasks.lesson import Lesson

CAPSULE = 3  # numbers a task capsule
SEMANTIC = 3  # semantic capsules, of as many numbers
CHANNELS, WINDOWS = 100, (3, 4, 5)
MIXED, POOLED = SEMANTIC * CAPSULE, CHANNELS * len(WINDOWS)
GROWING = ("capsule", "capsule_bias", "route")  # [tasks, sites, …]


def squash(u: Tensor) -> Tensor:
    square = u.square().sum(dim=-1, keepdim=True)
    return u * (square + 1e-12).sqrt() / (1 + square)


class Ctr(Hat):
    label = "CTR"
    mixable = False  # adapters depend on the padding of a batch
    Config: ClassVar[type] = Hat.Config

    def __init__(self, backbone, adapters, config, seed):
        super().__init__(backbone, adapters, config, seed)
        if backbone.layout.family == "decoder":
            raise ConfigError(f"CTR routes by the whole text and needs an encoder, which {backbone.name} has not")
        layers = len(backbone.model.get_submodule(backbone.layout.stacks[0].layers))
        self.sites = layers * (1 if adapters.adapter_sites == "ffn" else 2)  # those of the encoder come first
        self.routing: dict[str, nn.Parameter] = {}
        self.own: dict[str, nn.Parameter] = {}  # O_t [sites, d, 9], o_t [sites, d]
        self.learnt = 0

    @property
    def size(self) -> int:
        return super().size + sum(p.numel() for p in (self.routing | self.own).values())

    def shared(self) -> dict[str, Tensor]:
        return {**super().shared(), **{f"routing.{name}": p.detach() for name, p in self.routing.items()}}

    def load_shared(self, tensors: dict[str, Tensor]) -> None:
        super().load_shared(tensors)
        found = {n.removeprefix("routing."): t for n, t in tensors.items() if n.startswith("routing.")}
        self.routing = self._trained(found)
        self.learnt = len(found["route"]) if found else 0

    def _trained(self, tensors: dict[str, Tensor]) -> dict[str, nn.Parameter]:
        return {name: nn.Parameter(t.detach().to(self.device).clone()) for name, t in tensors.items()}

    def begin(self, lesson: Lesson, train: Train) -> None:
        super().begin(lesson, train)
        key, sites, width = f"ctr/{lesson.seed_key}", self.sites, self.bank.width
        new = {
            "capsule": _drawn(f"{key}/capsule", 1, sites, CAPSULE, width),
            "capsule_bias": torch.zeros(1, sites, CAPSULE),
            "route": normal(f"{key}/route", sites * MIXED * CAPSULE, 1.0).view(1, sites, SEMANTIC, CAPSULE, CAPSULE),
        }
        routing: dict[str, Tensor] = {**(self.routing or self._first_routing())}
        for name, rows in new.items():
            before = routing[name][: self.learnt].detach().cpu() if self.learnt else rows[:0]
            routing[name] = torch.cat([before, rows])
        self.routing = self._trained(routing)
        project = normal(f"{key}/project", sites * width * MIXED, 0.02).view(sites, width, MIXED)
        self.own = self._trained({"project": project, "project_bias": torch.zeros(sites, width)})

    def _first_routing(self) -> dict[str, Tensor]:
        key, sites = f"ctr/{self.seed}", self.sites
        parts = {f"conv{w}": _drawn(f"{key}/conv{w}", sites, CHANNELS, CAPSULE, w) for w in WINDOWS}
        parts |= {f"conv{w}_bias": torch.zeros(sites, CHANNELS) for w in WINDOWS}
        for name, rows in {"summary": POOLED, "open": 2, "weigh": MIXED}.items():
            parts[name] = _drawn(f"{key}/{name}", sites, rows, POOLED)
        return parts | {"open_bias": torch.zeros(sites, 2), "weigh_bias": torch.zeros(sites, MIXED)}

    def groups(self) -> list[Group]:
        trained = [*self.routing.values(), *self.own.values()]
        return [*super().groups(), Group(trained, self.config.adapter_lr)]

    def _masked(self, mask: Tensor) -> Pass:
        return self._routed(mask, dict(self.own), self.learnt + 1)

    def _routed(self, mask: Tensor, own: dict[str, Tensor], tasks: int) -> Pass:
        """The pass of task number `tasks`, which sees the capsules of tasks 1 … `tasks`."""
        layers = self.layers.functions(self.weights, self.biases, mask)

        def fitting(ids: Tensor, text: Tensor) -> list[AdapterFunction]:
            inner = [partial(self._site, site, own, tasks, text, layers[site]) for site in range(self.sites)]
            return [*inner, *layers[self.sites :]]

        return Pass(fitting=fitting)

    def _site(
        self, site: int, own: dict[str, Tensor], tasks: int, text: Tensor, layers: AdapterFunction, x: Tensor
    ) -> Tensor:
        v = self.transferred(site, tasks, x.float(), text)
        return layers(x + F.linear(v, own["project"][site], own["project_bias"][site]).to(x.dtype))

    def transferred(self, site: int, tasks: int, x: Tensor, text: Tensor) -> Tensor:
        """v. x [batch, n, d]; text [batch, n], 0 at padding -> [batch, n, 9]"""
        p = self.routing
        weight, bias, route = (p[name][:tasks, site] for name in GROWING)
        f = squash(F.linear(x, weight.flatten(0, 1), bias.flatten()).unflatten(-1, (tasks, CAPSULE)))
        f = f * text[:, :, None, None]  # [batch, n, tasks, 3]
        u = torch.einsum("bnic,ijcd->bnijd", f, route).flatten(-2)  # [batch, n, tasks, 9]
        pooled = self._pooled(site, f, text)  # [batch, tasks, 300]
        z = pooled + F.linear(pooled[:, -1:], p["summary"][site])  # the task itself is the last it sees
        delta = self._open(F.linear(z, p["open"][site], p["open_bias"][site]))  # [batch, tasks]
        a = F.linear(z, p["weigh"][site], p["weigh_bias"][site])  # [batch, tasks, 9]
        return ((delta[..., None] * a)[:, None] * u).sum(dim=2)

    def _pooled(self, site: int, f: Tensor, text: Tensor) -> Tensor:
        tasks = f.shape[2]
        rows = f.permute(0, 2, 3, 1).flatten(0, 1)  # [batch * tasks, 3, n]
        outside = (text == 0).repeat_interleave(tasks, dim=0)[:, None]
        found = []
        for width in WINDOWS:
            weight, bias = self.routing[f"conv{width}"][site], self.routing[f"conv{width}_bias"][site]
            moved = F.conv1d(F.pad(rows, (0, width - 1)), weight, bias)  # windows that begin at each token
            found.append(F.relu(moved.masked_fill(outside, -torch.inf).amax(dim=-1)))  # as relu rises, it may come last
        return torch.cat(found, dim=-1).unflatten(0, (-1, tasks))

    def _open(self, logits: Tensor) -> Tensor:
        """delta: 1 where the first of two logits wins, drawn in a training step."""
        if self.moment is None:
            return (logits[..., 0] >= logits[..., 1]).to(logits.dtype)
        return F.gumbel_softmax(logits, hard=True)[..., 0]

    def end(self, lesson: Lesson) -> None:
        super().end(lesson)
        self.learnt += 1

    def kept(self) -> Kept:
        own = {name: p.detach().cpu() for name, p in self.own.items()}
        return Kept(tensors={**super().kept().tensors, **own, "number": torch.tensor(self.learnt)})

    def recall(self, kept: Kept) -> Pass:
        tensors = {name: t.to(self.device) for name, t in kept.tensors.items()}
        with torch.no_grad():
            return self._routed(tensors["mask"], tensors, int(tensors["number"]))


def _drawn(key: str, *shape: int) -> Tensor:
    """Uniform in +-1/sqrt(fan-in), the fan-in being the last number of the shape (times the one before for windows)."""
    fan = shape[-1] * (shape[-2] if shape[-1] in WINDOWS else 1)
    return uniform(key, torch.Size(shape).numel(), 1 / sqrt(fan)).view(shape)
