"""A line: what tasks alike (of the same labels; texts) have learnt one after another, as the start of the next of them.

    S <- S + a (s_t - S)        s_t the scores of the task just learnt, which began at S
    a  = (n_t / n)^settle       n_t its training rows, n those of all tasks of the line, itself counted

Stored tasks keep bits; how sure each bit is is what a line adds: a score that many rows have pushed far from 0 is not
turned by a hundred more. Small tasks move the line a little, large ones more. Kept once for all tasks of the line, with
the running mean of their heads: two bytes a weight. Nothing that answers reads it, unless asked to: `tss revisit` has
tasks of labels answer beside what their line knows by then. A task that is removed has left its mark there. A line that
answers a task's rows worse than chance means something else by its labels (`agreement`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tss.backbones.backbone import Pass
from tss.methods.method import Kept, Remembered
from tss.tasks.batches import IGNORED
from tss.tasks.lesson import Lesson, Member

MOST = 8  # lines that are kept; the one that no task has joined for longest goes first
ALIKE = 2  # labels that a task must share with a line
JUDGED = 512  # training rows that tell whether a line means the same by its labels
DOUBT = -3.0  # standard errors below chance at which it does not


@dataclass(frozen=True)
class Line:
    """scores [size]; head: tensors by name, a row of `outer` for each label; tasks: names, the latest last."""

    kind: str
    pair: bool  # its tasks ask about two texts, such as a sentence and an aspect
    labels: tuple[str, ...]
    rows: int
    tasks: tuple[str, ...]
    scores: Tensor
    head: Mapping[str, Tensor]

    def suits(self, kind: str, pair: bool, labels: Sequence[str]) -> bool:
        """Whether a task that asks alike may start from it: enough labels, and half of its own, are known, or both
        have none, as texts."""
        if (kind, pair) != (self.kind, self.pair):
            return False
        shared = len(set(labels) & set(self.labels))
        return not (labels or self.labels) or (shared >= ALIKE and 2 * shared >= len(set(labels)))

    def start(self) -> Remembered:
        """As what a stored task would hand on."""
        return Remembered(Kept(self.scores > 0), dict(self.head), self.labels)

    def without(self, task: str) -> Line:
        """Not for a task any more that was learnt again and has gone elsewhere; what it taught stays."""
        return replace(self, tasks=tuple(name for name in self.tasks if name != task))

    def joined(self, other: Line, settle: float) -> Line:
        """With a task that began at it."""
        rows = self.rows + other.rows
        share = (other.rows / rows) ** settle
        labels = (*self.labels, *(label for label in other.labels if label not in self.labels))
        tasks = (*self.tasks, *other.tasks)
        head = {name: self._mixed(name, other, labels, share) for name in self.head}
        scores = torch.lerp(self.scores, other.scores, share)
        return Line(self.kind, self.pair, labels, rows, tasks, scores, head)

    def _mixed(self, name: str, other: Line, labels: Sequence[str], share: float) -> Tensor:
        """A tensor of both heads: rows of labels that both know are mixed, the others stay as they are."""
        mine, theirs = self.head[name], other.head[name]
        if not name.startswith("outer"):
            return torch.lerp(mine, theirs, share)
        out = dict(zip(self.labels, mine, strict=True))
        for label, row in zip(other.labels, theirs, strict=True):
            out[label] = torch.lerp(out[label], row, share) if label in out else row
        return torch.stack([out[label] for label in labels])


@dataclass(frozen=True, order=True)
class Agreement:
    """How much more of a label a line gives to rows of that label than to all rows; errors: in standard errors."""

    mean: float
    errors: float


@torch.no_grad()
def agreement(lesson: Lesson, line: Line, added: Pass) -> Agreement:
    """Of a line, through its sub-network, with the training rows of a task that it has not seen."""
    shared = [label for label in lesson.kind.labels if label in line.labels]
    column = torch.tensor([shared.index(label) if label in shared else -1 for label in lesson.kind.labels])
    asked = _asked(lesson, shared, line, added)
    lesson.backbone.model.eval()
    chances, meant = [], []
    for batch in lesson.batches(lesson.train.spread(JUDGED).rows, 64):
        target = batch.target.flatten().cpu()
        place = torch.where(target == IGNORED, -1, column[target.clamp(min=0)])  # [rows], or [rows x tokens]
        chances.append(lesson.asked(asked, batch).flatten(0, -2).float().softmax(dim=-1).cpu()[place >= 0])
        meant.append(place[place >= 0])
    given, wanted = torch.cat(chances).double(), torch.cat(meant)
    each = given.gather(1, wanted[:, None])[:, 0] - given.mean(dim=0)[wanted]
    error = float(each.std(correction=0)) / max(len(each), 1) ** 0.5
    return Agreement(float(each.mean()), float(each.mean()) / error) if error > 0.0 else Agreement(0.0, 0.0)


def _asked(lesson: Lesson, labels: Sequence[str], line: Line, added: Pass) -> Member:
    """A line as one that is asked for some of the labels it knows, with the lesson's inputs."""
    kind = lesson.kind
    head = type(kind)(line.labels, kind.lengths, kind.metric, kind.reading).head(lesson.backbone.width, "")
    head.load_state_dict(dict(line.head))
    return Member.of(labels, head.to(lesson.backbone.device).eval(), lambda: added, line.labels)


def tensors_of(lines: Iterable[Line]) -> dict[str, Tensor]:
    """Lines as named tensors, scores in half precision; names and numbers as the bytes of a JSON text."""
    out = {}
    for i, line in enumerate(lines):
        about = {key: getattr(line, key) for key in ("kind", "pair", "labels", "rows", "tasks")}
        out[f"line.{i}.about"] = torch.frombuffer(bytearray(json.dumps(about).encode()), dtype=torch.uint8)
        out[f"line.{i}.scores"] = line.scores.half()
        out |= {f"line.{i}.head.{name}": tensor for name, tensor in line.head.items()}
    return out


def lines_of(tensors: Mapping[str, Tensor]) -> list[Line]:
    """What `tensors_of` was given."""
    out: list[Line] = []
    while (key := f"line.{len(out)}.") + "about" in tensors:
        about = json.loads(bytes(tensors[key + "about"].cpu().numpy()))
        head = {name.removeprefix(f"{key}head."): t for name, t in tensors.items() if name.startswith(f"{key}head.")}
        about.setdefault("tasks", [about.pop("last", "")])  # all that lines of the first stores say
        labels, tasks = (tuple(about.pop(part)) for part in ("labels", "tasks"))
        out.append(Line(**about, labels=labels, tasks=tasks, scores=tensors[key + "scores"].float(), head=head))
    return out
