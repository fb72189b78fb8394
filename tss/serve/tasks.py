"""The tasks of a store as a server sees them: it follows the index, and one bad task is that task's trouble alone."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

from tss.errors import DamagedError, TaskError, UnknownTaskError
from tss.learner import Learner
from tss.learning.answering import Question, question
from tss.methods import method_class
from tss.serve.asked import Asked
from tss.serve.limits import Refusal
from tss.store import Index, Store, TaskEntry
from tss.tasks.names import check_name

SAMPLE = "Anna and John went to the bank on Monday and met nobody there."
LOOK_AGAIN = 2.0  # seconds before the file of a damaged task is read once more


class Tasks:
    """`entry` may be called from any thread; `load` and `question` belong to the one that runs the model."""

    def __init__(self, path: str | os.PathLike[str], device: str | None = None):
        self.store = Store.open(path)
        self.device = device
        self.learner: Learner | None = None
        self._identity: Any = None  # what the store said of backbone and method when the model was loaded
        self._marks: dict[str, tuple[int, int, int]] = {}  # file -> what `stat` said when it was read
        self._damaged: dict[str, tuple[float, str]] = {}  # file -> when it was found so, and what is wrong

    def index(self) -> Index:
        """What the store holds now. Raises StoreError."""
        return self.store.index()

    def load(self) -> bool:
        """Load the model, once the store has a task to say which. Raises TssError if that cannot be done."""
        identity = self.index().identity
        if self.learner is None and identity:
            learner = Learner.open(self.store.path, device=self.device, create=False)
            learner.backbone.model.eval()
            _ = learner.method
            self.learner, self._identity = learner, identity
        return self.learner is not None

    def entry(self, name: str) -> TaskEntry:
        """Raises Refusal: 404 for a task that is not there, 422 for what cannot be a name."""
        try:
            return self.index().entry(check_name(name))
        except UnknownTaskError as problem:
            raise Refusal(404, str(problem)) from None
        except TaskError as problem:
            raise Refusal(422, str(problem)) from None

    def question(self, asked: Asked, where: str) -> tuple[Question, TaskEntry]:
        """Encode an input. Raises Refusal: 404, 422, or 503 for a task whose file is damaged."""
        assert self.learner is not None
        self.check_same()
        entry = self.entry(asked.task)
        try:
            self._check(entry)
            ready = self.learner.ready(entry.name)
        except DamagedError as problem:
            self._damaged.setdefault(entry.file, (time.monotonic(), str(problem)))
            raise Refusal(503, f"task {entry.name!r} is damaged on disk; the others go on") from None
        except UnknownTaskError as problem:
            raise Refusal(404, str(problem)) from None
        self._damaged.pop(entry.file, None)
        if asked.pair is not None and not ready.record.meta["pair"]:  # two texts could pass for a sentence of two words
            raise Refusal(422, f'task {entry.name!r}, {where}: it takes one text; leave "pair" out')
        try:
            return question(ready, asked.value, where), entry
        except TaskError as problem:
            raise Refusal(422, str(problem)) from None

    def samples(self) -> list[tuple[Asked, Question, TaskEntry]]:
        """An input for the newest task of each kind, to get warm on; tasks that cannot answer are left out."""
        index = self.index()
        out = []
        for entry in {one.summary["kind"]: one for one in map(index.entry, index.names())}.values():
            for pair in (None, SAMPLE):  # some tasks take one text, some two
                asked = Asked(entry.name, SAMPLE, pair)
                with contextlib.suppress(Refusal):
                    out.append((asked, *self.question(asked, "the sample")))
                    break
        return out

    def check_same(self) -> None:
        """Raises Refusal: 503 if another store lies where the one was whose model is loaded."""
        if self.index().identity != self._identity:
            raise Refusal(503, "the store was replaced by one with another backbone or method; restart the server")

    def _check(self, entry: TaskEntry) -> None:
        """Files never change, so one that did is damaged: it is read again, and its checksum decides."""
        found = self._damaged.get(entry.file)
        if found is not None:
            if time.monotonic() - found[0] < LOOK_AGAIN:
                raise DamagedError(found[1])
            del self._damaged[entry.file]
        try:
            now = os.stat(self.store.path / entry.file)
        except OSError as problem:
            self._forget(entry)
            raise DamagedError(f"{entry.file}: {problem.strerror}") from None
        mark = now.st_mtime_ns, now.st_size, now.st_ino
        if self._marks.setdefault(entry.file, mark) != mark:
            self._forget(entry)
            self._marks[entry.file] = mark

    def _forget(self, entry: TaskEntry) -> None:
        assert self.learner is not None
        self._marks.pop(entry.file, None)
        self.learner.resident.forget(entry.file)

    def damaged(self) -> dict[str, str]:
        """Name -> reason, of tasks in use that could not be read when they were last asked."""
        by_file = self.index().by_file
        known = list(self._damaged.items())
        return {by_file[file].name: reason for file, (_, reason) in known if file in by_file}

    def at_hand(self) -> int:
        """Tasks in memory."""
        return 0 if self.learner is None else len(self.learner.resident)

    def listed(self) -> list[dict[str, Any]]:
        """What `GET /tasks` tells; no file but the index is opened."""
        index, bad = self.index(), self.damaged()
        return [_told(index, name, bad.get(name)) for name in index.names()]

    def forgets(self) -> bool | None:
        """Whether a later task can change an earlier one; None if all were learnt at once. Raises TssError."""
        identity = self.index().identity
        method = method_class(identity["method"]) if identity else None
        return None if method is None or method.joint else method.forgets


def _told(index: Index, name: str, damage: str | None) -> dict[str, Any]:
    entry = index.entry(name)
    summary = entry.summary
    return {
        "name": entry.name,
        "id": entry.id,
        "version": entry.version,
        "kind": summary["kind"],
        "labels": summary["labels"],
        "bytes": entry.bytes,
        "gate_bytes": entry.gate_bytes,
        "open_gates": summary.get("open_gates"),
        "scores": summary["scores"],
        "beside": index.beside(entry),
        "state": "ok" if damage is None else "damaged",
    }
