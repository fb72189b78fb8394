"""What a continual-learning method is: a few answers to the one training loop.

A method never steps an optimiser, loads data, moves devices, prints or saves. It says what is frozen and what is
trainable for this task, which lessons are seen, what the forward pass carries, the loss, what happens to gradient or
update, and what is remembered at the end. `begin` may call the loop itself (similarity probes, inner trainings).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor, nn

from tss.backbones.adapters import AdapterBank, AdapterConfig
from tss.backbones.backbone import Backbone, Pass
from tss.tasks.batches import Batch
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
    """Where a training step stands in its epoch: batch number `batch`, from 0, of `batches`."""

    batch: int
    batches: int


@dataclass(frozen=True)
class Kept:
    """What a task keeps beside its head: gates (bool [n] or None) and named tensors."""

    gates: Tensor | None = None
    tensors: dict[str, Tensor] = field(default_factory=dict)


class Method:
    """Defaults that suit most methods; a subclass overrides what differs.

    label: as in the paper's tables. forgets: whether later tasks can change an earlier task's answers.
    self_contained: a stored task answers without what is shared, so that damage there cannot silence it.
    order_free: no task influences another. joint: all tasks are learnt together. inherits: gates of a task are best
    stored as the difference from the task before. trains_backbone: copies of the backbone's own weights are trained;
    they stay in float32 whatever the precision, which then is that of the computation (autocast).
    resident: how many stored tasks are kept ready to answer.
    moment: set by the loop for every training step; None outside of one, as in evaluation.
    """

    label: ClassVar[str]
    forgets: ClassVar[bool] = False
    self_contained: ClassVar[bool] = False
    order_free: ClassVar[bool] = False
    joint: ClassVar[bool] = False
    inherits: ClassVar[bool] = False
    trains_backbone: ClassVar[bool] = False
    resident: ClassVar[int] = 64
    Config: ClassVar[type]
    moment: Moment | None = None

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

    def facts(self) -> dict[str, float]:
        """Numbers about the task just learnt, for the record and the report."""
        return {}
