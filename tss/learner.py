"""`Learner`: the public face. Learn tasks one after another, predict, evaluate, and prove that nothing is forgotten."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tss.errors import DamagedError, StoreError, TaskError, TrainingError
from tss.finding import Finding
from tss.keeping import Keepsake, earlier
from tss.learning import probes
from tss.learning.answering import answers, question
from tss.learning.parallel import ALONE, Ranks
from tss.learning.progress import Watch
from tss.learning.resident import Ready, Resident
from tss.learning.resume import Keyed
from tss.learning.session import estimate, learn_lessons
from tss.methods import method_class
from tss.methods.method import Method
from tss.operations import StoreOperations
from tss.results import Learned, TaskCheck, TaskInfo
from tss.settings import Settings, choose_device
from tss.store import Store, TaskEntry, TaskRecord
from tss.store.layout import INDEX
from tss.tasks.lesson import Lesson
from tss.tasks.names import check_name
from tss.tasks.task import Task

if TYPE_CHECKING:
    from tss.backbones.backbone import Backbone


class Learner(StoreOperations, Finding):
    """Teaches one frozen backbone task after task, in a store.

    >>> learner = Learner.open("store")                       # doctest: +SKIP
    >>> learner.learn(Task.from_folder("reviews"))            # doctest: +SKIP
    >>> learner.predict("reviews", ["a joy to use"])          # doctest: +SKIP
    ['positive']
    """

    ranks: Ranks = ALONE  # the processes that train together
    apart: float = 0.0  # seconds between two checkpoints, at least

    def __init__(self, store: Store, settings: Settings, device: str):
        self.store, self.settings, self.device = store, settings, device
        self.config = settings.config()
        self.resident = Resident()
        self._shared_file: str | None = None

    @classmethod
    def open(
        cls,
        store: str | PathLike[str],
        backbone: str | None = None,
        method: str | None = None,
        device: str | None = None,
        config: dict[str, Any] | None = None,
        preset: str | None = None,
        seed: int | None = None,
        create: bool = True,
    ) -> Learner:
        """Open a store, or make one. Backbone, method, preset, seed and options are fixed by its first task.

        config: options by key (`tss methods tss+` lists them). device: "cpu", "cuda"; by default a GPU if there is one.
        Raises StoreError if the folder is no store or was made with other settings, ConfigError for bad options.
        """
        given = {"backbone": backbone, "method": method, "preset": preset, "seed": seed}
        chosen = choose_device(device)
        if create and not Path(store, INDEX).exists():  # bad options must not leave an empty store behind
            Settings.settle({}, given, config or {}, str(store)).config()
        opened = Store.open(store, create=create)
        settings = Settings.settle(opened.index().identity, given, config or {}, str(opened.path))
        return cls(opened, settings, chosen)

    @cached_property
    def backbone(self) -> Backbone:
        import torch

        from tss.backbones.load import load_backbone

        precision = self.config.learning.precision
        trained = method_class(self.settings.method).trains_backbone
        loaded = load_backbone(
            self.settings.backbone,
            device=self.device,
            dtype="float32" if trained else precision,
            places=self.config.adapter.adapter_sites,
        )
        if trained and precision != "float32":
            loaded.autocast = torch.bfloat16  # float16 too: it would need its losses scaled
        return loaded

    @cached_property
    def method(self) -> Method:
        if identity := self.store.index().identity:
            self.store.identify({**identity, "backbone_hash": self.backbone.fingerprint()})
        return self._new_method()

    def _new_method(self) -> Method:
        """The method without what its tasks share, which is read when it is needed."""
        return method_class(self.settings.method)(
            self.backbone, self.config.adapter, self.config.method, self.settings.seed
        )

    # Learning.
    def learn(self, task: Task, *, new_version: bool = False, progress: Watch | None = None) -> Learned:
        """Learn a task and keep it. An interrupted call is taken up where its last checkpoint was.

        Raises TaskError, StoreError or TrainingError; then the store is as it was.
        """
        if self.method.joint:
            raise TaskError(f"{self.method.label} learns tasks together: use learn_together")
        return self._learn([task], new_version, progress)[0]

    def learn_together(self, tasks: Sequence[Task], *, progress: Watch | None = None) -> list[Learned]:
        """Learn several tasks at once, for methods that pool them (MTL)."""
        if not self.method.joint:
            raise TaskError(f"{self.method.label} learns one task at a time: use learn")
        return self._learn(list(tasks), False, progress)

    def _learn(self, tasks: list[Task], new_version: bool, progress: Watch | None) -> list[Learned]:
        with self.store.writing(wait=5.0):
            self._refuse(tasks, new_version)
            self._shared_file = None  # from here on the method's memory is ahead of the store
            self.method.load_shared(self.store.read_shared())
            self.method.earlier = earlier(self.store)
            self.store.require_space(self._bytes_while_learning())
            lessons = [self._lesson(task) for task in tasks]
            kept_there = Keyed(self.store.running, self._training_key(tasks), self.apart)
            try:
                learnt = learn_lessons(lessons, self.method, self.config.learning, progress, kept_there, self.ranks)
            except TrainingError:
                self._drop_models()
                raise
            self._identify()  # a training that fails fixes nothing, so that it can be repeated with other settings
            parts = zip(tasks, lessons, strict=True)
            kept = [Keepsake.of(task, lesson, learnt, self.method, self.config.flat()) for task, lesson in parts]
            return self._keep(kept, new_version)

    def _refuse(self, tasks: list[Task], new_version: bool) -> None:
        known = self.store.index().names()
        for task in tasks:
            if not task.train:
                raise TaskError(f"task {task.name!r} has no training examples")
            if task.name in known and not new_version:
                raise StoreError(
                    f"{self.store.path} has a task {task.name!r} already. Choose another name, or ask for a new "
                    "version (--new-version); the old one is kept"
                )
            if task.kind not in self.method.kinds:
                raise TaskError(
                    f"task {task.name!r}: {self.method.label} does not learn {task.kind}, only "
                    f"{' and '.join(self.method.kinds)}; take another method for it"
                )
            if task.kind == "generation" and self.backbone.layout.family == "encoder":
                raise TaskError(f"task {task.name!r}: {self.backbone.name} is an encoder and cannot generate")

    def _lesson(self, task: Task) -> Lesson:
        return Lesson.of(task, self.backbone, self.config.reading, self.settings.seed, self.method.kinds)

    def _drop_models(self) -> None:
        """A training that went wrong may have left anything in memory, even in what is frozen: load it all anew."""
        self.resident.clear()
        for name in ("backbone", "method"):
            self.__dict__.pop(name, None)

    def _identity(self) -> dict[str, Any]:
        fixed = hashlib.sha256(self.method.bank.fixed().numpy().tobytes()).hexdigest()
        return {**asdict(self.settings), "backbone_hash": self.backbone.fingerprint(), "adapter_hash": fixed}

    def _identify(self) -> None:
        if not self.store.index().identity:
            self.store.identify(self._identity())

    def _training_key(self, tasks: Iterable[Task]) -> str:
        """Changes whenever a checkpoint would no longer fit."""
        index = self.store.index()
        parts = [self.config.flat(), asdict(self.settings), index.next_id, [(t.name, t.fingerprint()) for t in tasks]]
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()

    def _keep(self, kept: list[Keepsake], new_version: bool) -> list[Learned]:
        """All of them and what they share, in one step of the store."""
        entries = self.store.add_all(
            [one.record for one in kept],
            parent=self._parent(),
            shared={k: v.cpu() for k, v in self.method.shared().items()},
            new_version=new_version,
        )
        return [one.told(entry) for one, entry in zip(kept, entries, strict=True)]

    def _parent(self) -> str | None:
        """The task whose gates are nearest: the one started from, or the one before, where scores carry over."""
        index = self.store.index()
        used = [entry for entry in index.tasks if index.in_use(entry)]
        return self.method.parent or (used[-1].name if self.method.inherits and used else None)

    def _bytes_while_learning(self) -> int:
        """Checkpoint (state, best state, two moments), shared state and the task, in float32, generously."""
        return 4 * 8 * self.method.size + (4 << 20)

    def plan(self, task: Task) -> dict[str, Any]:
        """What learning the task would take: steps, seconds (from three timed steps), bytes. Changes nothing."""
        self._refuse([task], new_version=True)
        method = self._new_method()  # first: it may keep positions of the backbone for itself
        method.load_shared(self.store.read_shared())
        method.earlier = earlier(self.store)
        found = estimate(self._lesson(task), method, self.config.learning)
        return {"backbone": self.backbone.name, **found, "bytes_while_learning": self._bytes_while_learning()}

    # Answering.
    def ready(self, name: str, fresh: bool = False) -> Ready:
        """A stored task; `fresh`: from disk and with its probes. Raises UnknownTaskError, DamagedError."""
        entry = self.store.index().entry(check_name(name))
        self._follow_shared()
        read = partial(self.store.read, entry.name, entry.version)
        if fresh:
            others = [self.store.read(one.name, one.version) for one in self.store.index().company(entry)]
            return self._made_ready(read(), [self._made_ready(one) for one in others])
        return self.resident.get(entry.file, read, self.backbone, self.method, partial(self._company, entry))

    def _company(self, entry: TaskEntry) -> list[Ready]:
        others = [
            (one.file, partial(self.store.read, one.name, one.version)) for one in self.store.index().company(entry)
        ]
        return [self.resident.get(f"{file} alone", read, self.backbone, self.method) for file, read in others]

    def _made_ready(self, record: TaskRecord, company: Sequence[Ready] = ()) -> Ready:
        return Ready.of(record, self.backbone, self.method, company=company)

    def _follow_shared(self) -> None:
        """Methods whose tasks share weights answer with the latest ones, also when another process learnt since."""
        shared = self.store.index().shared
        file = shared["file"] if shared else None
        method = self.method
        if not method.self_contained and file != self._shared_file:
            method.load_shared(self.store.read_shared())
            self.resident.clear()
            self._shared_file = file

    def predict(self, task: str | Sequence[str], inputs: Sequence[Any], *, details: bool = False) -> list[Any]:
        """Answers, one an input: a label, a list of tags or a text. `task`: one name, or one an input.

        inputs: texts; (text, pair) for tasks learnt on pairs; words (or a text split at blanks) for tagging.
        details: dicts with answer, confidence (chance of the label or of each tag) and whether the input was cut.
        Raises UnknownTaskError, TaskError with the number of the input.
        """
        if isinstance(inputs, (str, bytes, dict)) or not hasattr(inputs, "__len__"):
            raise TaskError(f"predict takes a list of inputs, not one {type(inputs).__name__}: put it into a list")
        many = isinstance(task, Sequence) and not isinstance(task, str)
        names = [check_name(one) for one in (task if many else [task] * len(inputs))]
        if len(names) != len(inputs):
            raise TaskError(f"{len(names)} task names for {len(inputs)} inputs; give one name, or one an input")
        opened = {name: self.ready(name) for name in dict.fromkeys(names)}
        given = enumerate(zip(names, inputs, strict=True), 1)
        asked = [question(opened[name], value, f"input {i}") for i, (name, value) in given]
        return [told if details else told["answer"] for told in answers(asked)]

    def evaluate(self, task: Task, name: str | None = None) -> dict[str, float]:
        """Scores of a stored task on the test examples of `task` (valid, then train, where there are none).

        Raises TaskError if the kinds differ or an example has a label that the stored task never saw.
        """
        ready = self.ready(name or task.name)
        if task.kind != ready.lesson.kind.name:
            raise TaskError(f"task {ready.record.name!r} is of kind {ready.lesson.kind.name}, not {task.kind}")
        return ready.evaluate(task.test or task.valid or task.train)

    def tasks(self) -> list[TaskInfo]:
        """The tasks of the store in the order they were learnt, newest version of each; no model is loaded."""
        index = self.store.index()
        return [TaskInfo.of(index, entry) for entry in map(index.entry, index.names())]

    def verify(self, names: Sequence[str] | None = None, progress: Any = None) -> list[TaskCheck]:
        """Answer every task's probes again and compare with what was recorded when it was learnt."""
        checks = []
        chosen = list(names) if names else list(self.store.index().names())
        for i, name in enumerate(chosen):
            checks.append(self._verify(name))
            if progress:
                progress(i + 1, len(chosen), name)
        return checks

    def _verify(self, name: str) -> TaskCheck:
        try:
            ready = self.ready(name, fresh=True)
        except DamagedError as problem:
            return TaskCheck(name, "damaged", str(problem))
        found = ready.compare()
        place = "in the environment it was learnt in" if found.same_environment else "in another environment"
        detail = f"{found.outputs} outputs {place}: {found.changed_bytes} bytes changed"
        if found.changed_bytes and not found.same_environment:
            detail += f", largest difference {found.largest:.2g} (tolerance {probes.TOLERANCE:g})"
        return TaskCheck(name, found.status, detail, found.outputs, found.changed_bytes, found.same_environment)
