"""What a continual-learning method is: a few answers to the one training loop.

A method never steps an optimiser, loads data, moves devices, prints or saves. It says what is frozen and what is
trainable for this task, which lessons are seen, what the forward pass carries, the loss, what happens to gradient or
update, and what is remembered at the end. `begin` may call the loop itself (similarity probes, inner trainings).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor, nn

from tss.backbones.adapters import AdapterBank, AdapterConfig
from tss.backbones.backbone import Backbone, Pass
from tss.tasks.batches import Batch
from tss.tasks.example import KINDS
from tss.tasks.kind import Kind, kind_of
from tss.tasks.lesson import Lesson

# train(lessons, method) -> outcome: the loop, handed to `begin` for probes and inner trainings
Train = Callable[..., Any]


@dataclass(frozen=True)
class Group:
    """Parameters trained alike. `rule`: "adamw" or "sgd"; `options` go to the optimiser."""

    parameters: list[nn.Parameter]
    lr: float
    rule: str = "adamw"
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Moment:
    """Where a training step stands in its epoch: batch number `batch`, from 0, of `batches`.

    passed: batch / (batches - 1), 1 where there is but one, as a tensor that the loop changes in place; a recorded step
    sees such a change, and no other. None where nothing is recorded.
    """

    batch: int
    batches: int
    passed: Tensor | None = None


@dataclass(frozen=True)
class Kept:
    """What a task keeps beside its head: gates (bool [n] or None) and named tensors."""

    gates: Tensor | None = None
    tensors: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Remembered:
    """What the store has of a task: what its method keeps, the tensors of its head, and its labels."""

    kept: Kept
    head: dict[str, Tensor]
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Earlier:
    """A task learnt before; `read` fetches it from the store."""

    name: str
    kind: str
    read: Callable[[], Remembered]


@dataclass(frozen=True)
class Companion:
    """A sub-network that stored tasks may answer beside, with its own head: what it is called, and for which tasks."""

    name: str
    tasks: Sequence[str]
    what: Remembered


class Method:
    """Defaults that suit most methods; a subclass overrides what differs.

    label: as in the paper's tables. family: what keeps tasks apart, in a word or two. kinds: the kinds of task it
    learns, each with how it is encoded and answered. forgets: whether later tasks can change an earlier task's answers.
    self_contained: a stored task answers without what is shared, so that damage there cannot silence it.
    order_free: no task influences another. joint: all tasks are learnt together. inherits: gates of a task are best
    stored as the difference from the task before. trains_backbone: copies of the backbone's own weights are trained;
    they stay in float32 whatever the precision, which then is that of the computation (autocast).
    steady: the loss is the same computation at every step of a task, so that a GPU may record it and replay it; False
    where it depends on things that change and are no tensors.
    by_row: the loss is a mean over rows (or labels) and rows know nothing of each other, so that a batch may be
    computed in pieces of like length.
    mixable: a task adds adapters to the backbone and nothing else, so that one forward pass can answer many tasks.
    defaults: options of other parts (adapters, reading, training) that are usually otherwise with this method.
    earlier: the tasks of the store, oldest first, set before `begin`. parent: the one this task started from, if any.
    moment: set by the loop for every training step; None outside of one, as in evaluation.
    """

    label: ClassVar[str]
    family: ClassVar[str] = "other"
    kinds: ClassVar[Mapping[str, type[Kind]]] = {name: kind_of(name) for name in KINDS}
    forgets: ClassVar[bool] = False
    self_contained: ClassVar[bool] = False
    order_free: ClassVar[bool] = False
    joint: ClassVar[bool] = False
    inherits: ClassVar[bool] = False
    trains_backbone: ClassVar[bool] = False
    steady: ClassVar[bool] = True
    by_row: ClassVar[bool] = False
    mixable: ClassVar[bool] = False
    defaults: ClassVar[Mapping[str, Any]] = {}
    Config: ClassVar[type]
    moment: Moment | None = None
    earlier: Sequence[Earlier] = ()
    parent: str | None = None

    def __init__(self, backbone: Backbone, adapters: AdapterConfig, config: Any, seed: int):
        self.backbone, self.config, self.seed = backbone, config, seed
        self.bank = AdapterBank(backbone.sites, adapters, backbone.model.dtype)
        self.device = backbone.device
        backbone.reserve(self.prefix_length)

    @property
    def size(self) -> int:
        """Numbers trained for one task beside its head, at most: what disk space is reckoned by."""
        return self.bank.size

    @property
    def prefix_length(self) -> int:
        """Soft prompt vectors before every input; texts are cut so that both fit the backbone."""
        return 0

    # Between tasks.
    def shared(self) -> dict[str, Tensor]:
        """What the next task needs of all tasks so far."""
        return {}

    def load_shared(self, tensors: dict[str, Tensor]) -> None:
        """Continue from what `shared` gave."""

    def companions(self) -> Sequence[Companion]:
        """What stored tasks may answer beside, once asked to (`tss revisit`): what their like have learnt since."""
        return ()

    # One task.
    def begin(self, lesson: Lesson, train: Train) -> None:
        """Prepare for a task. Must do the same thing again when an interrupted task is resumed."""

    def lessons(self, lesson: Lesson) -> list[Lesson]:
        """What is trained on: the task itself, and whatever a method adds (pseudo-samples, other tasks)."""
        return [lesson]

    def groups(self) -> list[Group]:
        """What is trained beside the head."""
        raise NotImplementedError

    def frozen(self) -> dict[str, Tensor]:
        """What must not change while a task is learnt, hash-checked before and after: all of the backbone."""
        return {f"backbone.{name}": tensor for name, tensor in self.backbone.tensors().items()}

    def passing(self, batch: Batch | None = None) -> Pass:
        """What the forward pass carries, differentiable in the trained parameters."""
        raise NotImplementedError

    def loss(self, lesson: Lesson, batch: Batch) -> Tensor:
        """The training loss of a batch."""
        return lesson.loss(batch, self.passing(batch))

    def before_step(self) -> None:
        """After backward and clipping, before the optimiser."""

    def after_step(self) -> None:
        """After the optimiser."""

    def end(self, lesson: Lesson) -> None:
        """The best state is restored; compute what is remembered."""

    def kept(self) -> Kept:
        """What this task keeps. Called after `end`."""
        return Kept()

    def recall(self, kept: Kept) -> Pass:
        """The forward pass of a task learnt earlier."""
        raise NotImplementedError

    def opened(self, gates: Tensor, tensors: Sequence[Mapping[str, Tensor]]) -> Tensor | None:
        """Adapter weights [tasks, size] of several tasks from their gates, bool [tasks, n], and tensors, in one step.

        None where a task is not its gates alone: then each is recalled by itself.
        """
        return None

    def facts(self) -> dict[str, float]:
        """Numbers about the task just learnt, for the record and the report."""
        return {}
