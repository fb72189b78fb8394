"""`Learner`: the public face. Learn tasks one after another, predict, evaluate, and prove that nothing is forgotten."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tss.errors import DamagedError, StoreError, TaskError, TrainingError
from tss.learning import probes
from tss.learning.loop import Watch
from tss.learning.resident import Ready, Resident
from tss.learning.resume import Keyed
from tss.learning.session import Learnt, describe, estimate, learn_lessons
from tss.methods import method_class
from tss.methods.method import Method
from tss.results import Learned, TaskCheck, TaskInfo
from tss.settings import Settings, choose_device
from tss.store import Store, TaskRecord
from tss.store.layout import INDEX
from tss.tasks.lesson import Lesson
from tss.tasks.names import check_name
from tss.tasks.task import Task

if TYPE_CHECKING:
    from tss.backbones.backbone import Backbone


class Learner:
    """Teaches one frozen backbone task after task, in a store.

    >>> learner = Learner.open("store")                       # doctest: +SKIP
    >>> learner.learn(Task.from_folder("reviews"))            # doctest: +SKIP
    >>> learner.predict("reviews", ["a joy to use"])          # doctest: +SKIP
    ['positive']
    """

    def __init__(self, store: Store, settings: Settings, device: str):
        self.store, self.settings, self.device = store, settings, device
        self.config = settings.config()
        self._resident = Resident(method_class(settings.method).resident)
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

        config: options by key (`tss methods tss` lists them). device: "cpu", "cuda"; by default a GPU if there is one.
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
            self.store.require_space(self._bytes_while_learning())
            lessons = [Lesson.of(task, self.backbone, self.config.reading, self.settings.seed) for task in tasks]
            kept_there = Keyed(self.store.running, self._training_key(tasks))
            try:
                learnt = learn_lessons(lessons, self.method, self.config.learning, progress, kept_there)
            except TrainingError:
                self._drop_models()
                raise
            self._identify()  # a training that fails fixes nothing, so that it can be repeated with other settings
            out = []
            for task, lesson in zip(tasks, lessons, strict=True):
                out.append(self._keep(task, lesson, learnt, new_version))
            return out

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
            if task.kind == "generation" and self.backbone.layout.family == "encoder":
                raise TaskError(f"task {task.name!r}: {self.backbone.name} is an encoder and cannot generate")

    def _drop_models(self) -> None:
        """A training that went wrong may have left anything in memory, even in what is frozen: load it all anew."""
        self._resident.clear()
        for name in ("backbone", "method"):
            self.__dict__.pop(name, None)

    def _identify(self) -> None:
        if not self.store.index().identity:
            fixed = hashlib.sha256(self.method.bank.fixed().numpy().tobytes()).hexdigest()
            hashes = {"backbone_hash": self.backbone.fingerprint(), "adapter_hash": fixed}
            self.store.identify({**asdict(self.settings), **hashes})

    def _training_key(self, tasks: Iterable[Task]) -> str:
        """Changes whenever a checkpoint would no longer fit."""
        index = self.store.index()
        parts = [self.config.flat(), asdict(self.settings), index.next_id, [(t.name, t.fingerprint()) for t in tasks]]
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()

    def _keep(self, task: Task, lesson: Lesson, learnt: Learnt, new_version: bool) -> Learned:
        added = self.method.recall(learnt.kept)
        split = lesson.test if len(lesson.test) else lesson.valid
        scores, _ = lesson.evaluate(split, added)
        shown, output_hash = probes.make(lesson, split.rows, added)
        meta = describe(task, lesson, learnt, self.config.flat()) | {"scores": scores, "probe_hash": output_hash}
        summary = {"kind": task.kind, "labels": len(task.labels), "scores": scores, **learnt.facts}
        head = {f"head.{k}": v.detach().cpu() for k, v in lesson.head.state_dict().items()}
        kept = {f"method.{k}": v for k, v in learnt.kept.tensors.items()}
        record = TaskRecord(task.name, meta, learnt.kept.gates, {**head, **kept}, shown, summary)
        entry = self.store.add(
            record,
            parent=self._parent(),
            shared={k: v.cpu() for k, v in self.method.shared().items()},
            new_version=new_version,
        )
        return Learned(
            version=entry.version,
            scores=scores,
            bytes=entry.bytes,
            gate_bytes=entry.gate_bytes,
            facts=meta["facts"],
            name=task.name,
            steps=learnt.outcome.steps,
            seconds=learnt.outcome.seconds,
            open_gates=learnt.facts.get("open_gates"),
            curve=learnt.outcome.curve,
            warnings=(*task.warnings, *learnt.remarks(lesson)),
            resumed=learnt.outcome.resumed,
        )

    def _parent(self) -> str | None:
        """The task whose gates are nearest: the one before, where scores carry over."""
        names = self.store.index().tasks
        return names[-1].name if self.method.inherits and names else None

    def _bytes_while_learning(self) -> int:
        """Checkpoint (state, best state, two moments), shared state and the task, in float32, generously."""
        return 4 * 8 * self.method.size + (4 << 20)

    def plan(self, task: Task) -> dict[str, Any]:
        """What learning the task would take: steps, seconds (from three timed steps), bytes. Changes nothing."""
        self._refuse([task], new_version=True)
        method = self._new_method()  # first: it may keep positions of the backbone for itself
        method.load_shared(self.store.read_shared())
        lesson = Lesson.of(task, self.backbone, self.config.reading, self.settings.seed)
        found = estimate(lesson, method, self.config.learning)
        return {"backbone": self.backbone.name, **found, "bytes_while_learning": self._bytes_while_learning()}

    # Answering.
    def _open(self, name: str, version: int | None = None) -> Ready:
        """A stored task, ready to answer. Raises UnknownTaskError, DamagedError."""
        entry = self.store.index().entry(check_name(name), version)
        self._follow_shared()
        return self._resident.get(
            entry.file, lambda: self.store.read(entry.name, entry.version), self.backbone, self.method
        )

    def _follow_shared(self) -> None:
        """Methods whose tasks share weights answer with the latest ones, also when another process learnt since."""
        shared = self.store.index().shared
        file = shared["file"] if shared else None
        method = self.method
        if not method.self_contained and file != self._shared_file:
            method.load_shared(self.store.read_shared())
            self._resident.clear()
            self._shared_file = file

    def predict(self, task: str | Sequence[str], inputs: Sequence[Any], *, details: bool = False) -> list[Any]:
        """Answers, one an input: a label, a list of tags or a text. `task`: one name, or one an input.

        inputs: texts; (text, pair) for tasks learnt on pairs; words (or a text split at blanks) for tagging.
        details: dicts with answer, confidence (chance of the label or of each tag) and whether the input was cut.
        Raises UnknownTaskError, TaskError with the number of the input.
        """
        if isinstance(inputs, (str, bytes)):
            raise TaskError("predict takes a list of inputs, not one text: put it into a list")
        names = [task] * len(inputs) if isinstance(task, str) else list(task)
        if len(names) != len(inputs):
            raise TaskError(f"{len(names)} task names for {len(inputs)} inputs; give one name, or one an input")
        out: list[Any] = [None] * len(inputs)
        for name in dict.fromkeys(names):
            where = [i for i, n in enumerate(names) if n == name]
            ready = self._open(name)
            for i, answer in zip(where, ready.answers([inputs[i] for i in where], where), strict=True):
                out[i] = answer if details else answer["answer"]
        return out

    def evaluate(self, task: Task, name: str | None = None) -> dict[str, float]:
        """Scores of a stored task on the test examples of `task` (valid, then train, where there are none).

        Raises TaskError if the kinds differ or an example has a label that the stored task never saw.
        """
        ready = self._open(name or task.name)
        if task.kind != ready.lesson.kind.name:
            raise TaskError(f"task {ready.record.name!r} is of kind {ready.lesson.kind.name}, not {task.kind}")
        return ready.evaluate(task.test or task.valid or task.train)

    def tasks(self) -> list[TaskInfo]:
        """The tasks of the store in the order they were learnt, newest version of each; no model is loaded."""
        index = self.store.index()
        return [TaskInfo.of(index.entry(name)) for name in index.names()]

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
        entry = self.store.index().entry(check_name(name))
        self._resident.forget(entry.file)  # read from disk, not from memory
        try:
            ready = self._open(name)
        except DamagedError as problem:
            return TaskCheck(name, "damaged", str(problem))
        found = ready.compare()
        place = "in the environment it was learnt in" if found.same_environment else "in another environment"
        detail = f"{found.outputs} outputs {place}: {found.changed_bytes} bytes changed"
        if found.changed_bytes and not found.same_environment:
            detail += f", largest difference {found.largest:.2g} (tolerance {probes.TOLERANCE:g})"
        return TaskCheck(name, found.status, detail, found.outputs, found.changed_bytes, found.same_environment)
