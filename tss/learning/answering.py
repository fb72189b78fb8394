"""Answering questions put to many tasks at once: one forward pass for all that can share it.

Tasks of all kinds that have a head share the backbone's states; texts with equal limits are generated together. The
gated adapters of the tasks present run as grouped products. A task that others answer beside has a row for each of
them in the same pass. Methods whose tasks change the backbone itself (soft prompts, whole models) answer one task after
the other.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from tss.backbones.adapters import Adapters
from tss.backbones.backbone import Pass
from tss.backbones.sites import AdapterFunction
from tss.errors import TaskError
from tss.gates.mixed import arranged, grouped, looped
from tss.gates.packed import unpack_rows
from tss.learning.resident import Ready
from tss.tasks.batches import Batch, Row, collate, plan
from tss.tasks.generation import Generation
from tss.tasks.kind import Answer, Head
from tss.tasks.lesson import in_company
from tss.tasks.task import as_input

SIZE = 64  # rows of a batch


@dataclass(frozen=True)
class Question:
    """One input of one task, encoded. `form`: questions with equal forms can share a forward pass.

    Equal forms have equally many rows in it, so that what a batch costs is known by its form.
    """

    ready: Ready
    given: tuple[str, ...]
    row: Row
    form: Hashable


def as_given(ready: Ready, value: Any, where: str) -> tuple[str, ...]:
    """What a user passes, as the task's input. Raises TaskError naming the task and where the value stands."""
    try:
        return as_input(ready.record.meta["kind"], value, ready.record.meta["pair"])
    except TaskError as problem:
        raise TaskError(f"task {ready.record.name!r}, {where}: {problem}") from None


def question(ready: Ready, value: Any, where: str) -> Question:
    """Encode an input. Raises TaskError."""
    given = as_given(ready, value, where)
    kind, backbone = ready.lesson.kind, ready.lesson.backbone
    shared = kind.together(backbone) if ready.method.mixable else None
    form = id(ready) if shared is None else (shared, len(ready.others))
    return Question(ready, given, kind.input_row(backbone, given), form)


def answers(questions: Sequence[Question], size: int = SIZE) -> list[dict[str, Any]]:
    """What each task says, in the order of the questions; like forms and lengths go together."""
    out: list[dict[str, Any]] = [{}] * len(questions)
    forms: dict[Hashable, list[int]] = {}
    for number, one in enumerate(questions):
        forms.setdefault(one.form, []).append(number)
    for numbers in forms.values():
        for chosen in plan([len(questions[i].row.ids) for i in numbers], size, None):
            batch = [numbers[i] for i in chosen]
            for number, told in zip(batch, answer_batch([questions[i] for i in batch]), strict=True):
                out[number] = told
    return out


@torch.no_grad()
def answer_batch(questions: Sequence[Question]) -> list[dict[str, Any]]:
    """Answers to questions of one form, from one forward pass, in their order."""
    tasks = list(dict.fromkeys(one.ready for one in questions))
    owners = [tasks.index(one.ready) for one in questions]
    order, present, sizes = arranged(owners)
    rows = [questions[i].row for i in order]
    tasks[0].lesson.backbone.model.eval()
    found = _answers([tasks[i] for i in present], sizes, rows)
    out: list[dict[str, Any]] = [{}] * len(questions)
    for number, answer in zip(order, found, strict=True):
        asked = questions[number]
        out[number] = asked.ready.lesson.kind.told(answer, asked.given)
    return out


def _answers(tasks: list[Ready], sizes: list[int], rows: list[Row]) -> list[Answer]:
    """rows: those of the first task, then those of the second …"""
    lesson = tasks[0].lesson
    backbone, kind = lesson.backbone, lesson.kind
    if len(tasks) == 1:
        return lesson.answer(_batch(tasks, rows), rows, tasks[0].added)
    parts = zip(tasks, _split(rows, sizes), strict=True)
    if isinstance(kind, Generation):
        batch, added = _batch(tasks, rows), mixed_pass(tasks, sizes)
        texts = backbone.generate(batch.ids, batch.mask, added, **dict(kind.together(backbone)))
        spoken = zip(parts, _split(texts, sizes), strict=True)
        return [answer for (task, own), out in spoken for answer in task.lesson.kind.spoken(backbone, out, own)]
    read = zip(parts, _logits(tasks, sizes, rows), strict=True)
    return [answer for (task, own), one in read for answer in task.lesson.kind.read(one, own)]


def _batch(tasks: Sequence[Ready], rows: Sequence[Row]) -> Batch:
    backbone = tasks[0].lesson.backbone
    return collate(rows, (), backbone.text.pad, single=True).to(backbone.device)


def _logits(tasks: list[Ready], sizes: list[int], rows: list[Row]) -> list[Tensor]:
    """Logits of each task's rows, on the CPU. In the batch they stand once for it and once for each other voice."""
    times = 1 + len(tasks[0].others)
    askers = [task for task in tasks for _ in range(times)]
    counts = [size for size in sizes for _ in range(times)]
    read_by = [one for task in tasks for one in (task, *task.others)]
    heads = [head for task in tasks for head in (task.lesson.head, *(one.head for one in task.lesson.company))]
    batch = _batch(tasks, [row for own in _split(rows, sizes) for _ in range(times) for row in own])
    states = tasks[0].lesson.backbone.states(batch.ids, batch.mask, mixed_pass(read_by, counts))
    found = mixed_logits(askers, counts, states, batch, heads)
    return [_together(task, found[i * times : (i + 1) * times]) for i, task in enumerate(tasks)]


def _together(task: Ready, each: Sequence[Tensor]) -> Tensor:
    """each: logits of the same rows by the task and by those who answer beside it."""
    own, *others = each
    asked = [logits[..., member.columns] for logits, member in zip(others, task.lesson.company, strict=True)]
    return in_company([own, *asked]) if asked else own


def mixed_pass(tasks: Sequence[Ready], sizes: Sequence[int]) -> Pass:
    """The forward pass of a batch in which the first `sizes[0]` rows are the first task's, and so on."""
    if len(tasks) == 1:
        return tasks[0].added
    return Pass(_adapters(tasks, sizes))


def _adapters(tasks: Sequence[Ready], sizes: Sequence[int]) -> list[AdapterFunction]:
    method = tasks[0].method
    packed = [task.packed for task in tasks if task.packed is not None]
    if len(packed) == len(tasks) and method.device.type == "cuda":
        # A GPU opens the gates of a whole batch faster than it would gather sub-networks kept in full numbers.
        gates = unpack_rows(torch.stack(packed), tasks[0].count)
        weights = method.opened(gates, [task.tensors for task in tasks])
        if weights is not None:
            return grouped(method.bank, weights, None, sizes)
    each = [task.added.adapters or () for task in tasks]
    flat = [one for one in each if isinstance(one, Adapters)]
    biases = [one.biases for one in flat if one.biases is not None]
    if len(flat) < len(each) or len(biases) not in (0, len(flat)):
        return looped(each, sizes)  # adapters that are more than weights
    weights = torch.stack([one.weights for one in flat])
    return grouped(method.bank, weights, torch.stack(biases) if biases else None, sizes)


def mixed_logits(
    tasks: Sequence[Ready], sizes: Sequence[int], states: Tensor, batch: Batch, through: Sequence[nn.Module] = ()
) -> list[Tensor]:
    """Logits of each task's rows, on the CPU. Tasks that read the states alike share one product over all heads.

    through: the head for each task's rows, where not its own.
    """
    through = through or [task.lesson.head for task in tasks]
    out: dict[int, Tensor] = {}
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    alike = sorted(range(len(tasks)), key=lambda i: _reading(tasks[i]))
    for _, run in groupby(alike, key=lambda i: _reading(tasks[i])):
        members = list(run)
        rows = [row for i in members for row in range(starts[i], starts[i] + sizes[i])]
        whole = len(members) == len(tasks)
        index = None if whole else torch.tensor(rows, device=states.device)
        if index is None:
            part, read = batch, states
        else:
            part = Batch(batch.ids[index], batch.mask[index], batch.target[index], ())
            read = states[index]
        lesson = tasks[members[0]].lesson
        features = lesson.kind.features(lesson.backbone, read, part)
        heads = [through[i] for i in members]
        out |= zip(members, _headed(heads, [sizes[i] for i in members], features), strict=True)
    return [out[i] for i in range(len(tasks))]


def _reading(task: Ready) -> str:
    """Equal where `features` does the same thing."""
    kind = task.lesson.kind
    return f"{type(kind).__qualname__} {kind.reading} {task.record.meta['pair']}"


def _headed(heads: Sequence[Any], sizes: Sequence[int], features: Tensor) -> list[Tensor]:
    """Each head on its own rows of the features [rows, ..., d]: all heads as one matrix where they are linear."""
    if not all(isinstance(head, Head) and head.inner is None for head in heads):
        parts = features.split(list(sizes))
        return [head(part).float().cpu() for head, part in zip(heads, parts, strict=True)]
    weight = torch.cat([head.outer.weight for head in heads])  # [labels of all, d]
    bias = torch.cat([head.outer.bias for head in heads])
    logits = torch.nn.functional.linear(features.to(weight.dtype), weight, bias).float().cpu()
    out, label = [], 0
    for head, part in zip(heads, logits.split(list(sizes)), strict=True):
        out.append(part[..., label : label + head.outer.out_features])
        label += head.outer.out_features
    return out


def _split(values: Sequence[Any], sizes: Sequence[int]) -> list[Sequence[Any]]:
    out, first = [], 0
    for size in sizes:
        out.append(values[first : first + size])
        first += size
    return out
