"""TSS+: a new task starts from the line, stored sub-network or fresh draw that suits it best. See results/ideas.md.

    s0 = S                          the scores of its line (`line.py`), where tasks alike have been learnt before; else
    s0 = kappa |u| (2 g_p - 1)      u a fresh draw, g_p the gates of the parent p, kappa `sticky`
    w_hat = w (2 g - 1)             in tagging and generation: a closed gate turns the sign (`signed`)

Tasks form a tree, not a chain: what a dissimilar task learnt never slows another, so no soft mask is needed; what
similar tasks learnt is inherited whole, with the rows of the head whose labels have the same names. A line of the
task's labels is taken, unless it answers the task's rows worse than chance: then the task begins afresh. Where there is
none a fresh start races against the line of texts, or the `rivals` stored tasks, that suit best: whose features predict
the targets best by ridge regression with one row left out (classification, tagging), or whose sub-network gives the
targets the smallest loss (generation). Each task keeps its gates, as the difference from its parent; a line is read by
nothing that answers, unless `tss revisit` asks for it. Cost: a forward pass of a few rows for each of the lines, or of
the latest 64 stored tasks of the kind, and (rivals + 1) x `race_steps` steps where there is a race.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tss.errors import ConfigError, DamagedError
from tss.gates.scores import draw_scores
from tss.methods.line import DOUBT, MOST, Agreement, Line, agreement, lines_of, tensors_of
from tss.methods.method import Companion, Earlier, Remembered, Train
from tss.methods.supsup import GateConfig, SupSup, kinds_in
from tss.tasks.batches import IGNORED
from tss.tasks.lesson import Lesson, Split

SCREENED = 128  # rows that a stored task is judged by
LATEST = 64  # stored tasks of a kind that are judged: the five-hundredth task shall not wait for all the others
LEAST_RACE = 16  # training rows below which a race would say nothing
Start = tuple[Earlier, Remembered] | Line | None  # a stored task, a line, or fresh


@dataclass(frozen=True)
class PlusConfig(GateConfig):
    signed: str = "tagging,generation"
    sticky: float = 1.0  # kappa: how firmly inherited gates stand at the start, relative to a fresh draw
    rivals: int = 2  # stored tasks that race against a fresh start
    race_steps: int = 40
    head_start: bool = True  # rows of the parent's head for labels of the same name
    lined: str = "classification,generation"  # kinds, with commas between, whose tasks hand on scores by lines
    settle: float = 0.5  # how much less a small task moves its line than a large one; 0: the last one is the line
    hold: float = 0.0  # share of its way from its line that a task of labels takes back once it is learnt

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.sticky > 0:
            raise ConfigError(f"sticky must be above 0, not {self.sticky}")
        kinds_in("lined", self.lined)
        for key in ("settle", "hold"):
            if not 0.0 <= getattr(self, key) <= 1.0:
                raise ConfigError(f"{key} is from 0 to 1, not {getattr(self, key)}")
        if self.rivals < 0 or self.race_steps < 1:
            raise ConfigError(f"rivals are at least 0 and race_steps at least 1, not {self.rivals}, {self.race_steps}")


class Plus(SupSup):
    label = "TSS+"
    family = "sub-network"
    order_free = False
    defaults: ClassVar[Mapping[str, Any]] = {"adapter_std": 0.0}  # frozen weights of the size that suits the backbone
    Config: ClassVar[type] = PlusConfig

    def __init__(self, backbone, adapters, config, seed):
        super().__init__(backbone, adapters, config, seed)
        self.lines: list[Line] = []  # the one joined last at the end
        self.agreement = Agreement(0.0, 0.0)  # of the best line with the task at hand

    def shared(self) -> dict[str, Tensor]:
        return tensors_of(self.lines)

    def load_shared(self, tensors: dict[str, Tensor]) -> None:
        self.lines = lines_of(tensors)

    def begin(self, lesson: Lesson, train: Train) -> None:
        self.agreement = Agreement(0.0, 0.0)
        line = self._suitable_line(lesson)
        known: Sequence[Start] = ()
        known_by_labels = (line is not None and not lesson.kind.by_loss) or self.agreement.errors <= DOUBT
        if len(lesson.train) >= LEAST_RACE and not known_by_labels:  # else there is nothing left to race for
            known = [line] if line else self._screen(lesson)[: self.config.rivals]
        chosen = self._race(lesson, [None, *known], train) if known else line
        self._start_from(lesson, chosen)
        name = "".join(chosen.tasks[-1:]) if isinstance(chosen, Line) else chosen and chosen[0].name
        self.parent = name if name in [earlier.name for earlier in self.earlier] else None  # a line outlives its tasks

    def _start_from(self, lesson: Lesson, chosen: Start) -> None:
        self._line = chosen if isinstance(chosen, Line) else None
        self._chosen = chosen.start() if isinstance(chosen, Line) else chosen and chosen[1]
        super().begin(lesson, None)  # type: ignore[arg-type]  # a fresh draw asks for no training
        if self._chosen is not None and self.config.head_start:
            inherit_head(lesson, self._chosen)

    def start(self, lesson: Lesson) -> Tensor:
        fresh = draw_scores(self.bank, lesson.seed_key)
        if self._line is not None:
            return self._line.scores
        if self._chosen is None:
            return fresh
        assert self._chosen.kept.gates is not None
        return self.config.sticky * fresh.abs() * torch.where(self._chosen.kept.gates, 1.0, -1.0)

    def _suitable_line(self, lesson: Lesson) -> Line | None:
        """The line that the task may start from: of those of its labels the one that answers its rows best, if that is
        not worse than chance; for texts, which have no labels, the one whose sub-network gives them the smallest loss.
        """
        kind = lesson.kind
        if kind.name not in kinds_in("lined", self.config.lined):
            return None
        signed = kind.name in self.config.signed_kinds()
        found = [
            (line, self.recall(self.as_kept(line.scores, signed)))
            for line in self.lines
            if line.suits(kind.name, lesson.pair, kind.labels)
        ]
        if kind.by_loss:
            split = lesson.train.first(SCREENED)
            return min(found, key=lambda one: unfitness(lesson, split, one[1]), default=(None, None))[0]
        judged = [(agreement(lesson, line, added), line) for line, added in found]
        self.agreement, line = max(judged, key=lambda one: one[0], default=(Agreement(0.0, 0.0), None))
        return line if self.agreement.errors > DOUBT else None

    def _join(self, lesson: Lesson) -> None:
        """The line moves on to the task just learnt; a task without one begins one."""
        head = {name: tensor.detach().cpu().clone() for name, tensor in lesson.head.state_dict().items()}
        scores, kind = self.scores.detach().cpu().clone(), lesson.kind
        mine = Line(kind.name, lesson.pair, tuple(kind.labels), len(lesson.train), (lesson.name,), scores, head)
        others = [one.without(lesson.name) for one in self.lines if one is not self._line]
        if self._line is not None:
            mine = self._line.without(lesson.name).joined(mine, self.config.settle)
        self.lines = [*others, mine][-MOST:]

    def _known(self, lesson: Lesson) -> Iterator[tuple[Earlier, Remembered]]:
        """Stored tasks of the same kind, the latest ones."""
        for earlier in [one for one in self.earlier if one.kind == lesson.kind.name][-LATEST:]:
            with suppress(DamagedError):  # `tss verify` tells; a new task can do without it
                yield earlier, earlier.read()

    def _screen(self, lesson: Lesson) -> list[tuple[Earlier, Remembered]]:
        """Stored tasks of the same kind, the most suitable first."""
        split = lesson.train.first(SCREENED)
        found = [(unfitness(lesson, split, self.recall(one[1].kept)), one) for one in self._known(lesson)]
        return [one for _, one in sorted(found, key=lambda pair: pair[0])]

    def _race(self, lesson: Lesson, starts: Sequence[Start], train: Train) -> Start:
        """The start with the smallest loss on rows held out, after a few steps."""
        raced = copy(lesson)
        rows, gold = lesson.train.rows, lesson.train.gold
        held = range(0, len(rows), 4)
        seen = [i for i in range(len(rows)) if i % 4]
        raced.train = Split([rows[i] for i in seen], [gold[i] for i in seen])
        few = lesson.valid.first(len(held) + 200)
        raced.valid = Split([*few.rows, *(rows[i] for i in held)], [*few.gold, *(gold[i] for i in held)])
        losses = []
        steps = self.config.race_steps
        for chosen in starts:
            raced.head = deepcopy(lesson.head)
            self._start_from(raced, chosen)
            outcome = train([raced], self, max_steps=steps, min_steps=steps, eval_steps=steps, warmup=0.0)
            losses.append(outcome.dev_loss)
        return starts[losses.index(min(losses))]

    def end(self, lesson: Lesson) -> None:
        super().end(lesson)
        if lesson.kind.name in kinds_in("lined", self.config.lined):
            self._join(lesson)
        if self._line is not None and self.config.hold and not lesson.kind.by_loss:
            with torch.no_grad():
                self.scores.lerp_(self._line.scores.to(self.device), self.config.hold)

    def companions(self) -> list[Companion]:
        """Lines of labels, for all their tasks: each has seen texts that the others have not."""
        signed = self.config.signed_kinds()
        found = [line for line in self.lines if line.labels and len(line.tasks) > 1]
        whats = [Remembered(self.as_kept(one.scores, one.kind in signed), dict(one.head), one.labels) for one in found]
        return [Companion(f"{one.kind} line", one.tasks, what) for one, what in zip(found, whats, strict=True)]

    def facts(self) -> dict[str, float]:
        told = {"inherited": float(self._chosen is not None), "agreement": self.agreement.errors}
        return {**super().facts(), **told}


@torch.no_grad()
def unfitness(lesson: Lesson, split: Split, added) -> float:
    """How badly the features of a sub-network suit a task, before anything is trained: smaller is better."""
    lesson.backbone.model.eval()
    batches = list(lesson.batches(split.rows, 64))
    if lesson.kind.by_loss:
        losses = torch.cat([lesson.row_losses(batch, added) for batch in batches])
        return float(losses.mean())
    features, targets = [], []
    for batch in batches:
        states = lesson.kind.logits(lesson.backbone, nn.Identity(), batch, added).flatten(0, -2)
        target = batch.target.flatten()
        features.append(states[target != IGNORED])
        targets.append(target[target != IGNORED])
    return left_out_error(torch.cat(features).double(), torch.cat(targets), len(lesson.kind.labels))


def left_out_error(features: Tensor, targets: Tensor, labels: int) -> float:
    """Mean squared error of ridge regression on one-hot targets, each row predicted without itself.

    features [n, d], targets [n]. e_i / (1 - h_ii) with H = X (X'X + r I)^-1 X' needs no second fit.
    """
    x = torch.cat([F.normalize(features - features.mean(0), dim=-1), features.new_ones(len(features), 1)], dim=1)
    y = F.one_hot(targets, labels).to(x)
    gram = x.T @ x + 0.1 * torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    solved = torch.linalg.solve(gram, x.T)  # [d + 1, n]
    rest = y - x @ (solved @ y)
    own = (x * solved.T).sum(1, keepdim=True)
    return float((rest / (1 - own).clamp(min=1e-6)).square().sum(1).mean())


def inherit_head(lesson: Lesson, parent: Remembered) -> None:
    """Rows of the parent's head for labels of the same name, and its inner layer; the others stay as drawn."""
    rows = [(i, parent.labels.index(label)) for i, label in enumerate(lesson.kind.labels) if label in parent.labels]
    if not rows:
        return
    here, there = (list(each) for each in zip(*rows, strict=True))
    with torch.no_grad():
        for name, parameter in lesson.head.named_parameters():
            old = parent.head[name].to(parameter)
            if name.startswith("outer"):
                parameter[here] = old[there]
            else:
                parameter.copy_(old)
