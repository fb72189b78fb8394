"""What a `Learner` does with its store beside learning and answering: carry tasks, go back, remove, collect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import torch

from tss.errors import ConfigError, DamagedError, StoreError
from tss.keeping import asked_again, recorded
from tss.learning.resident import Ready, sound
from tss.methods import method_class
from tss.methods.method import Companion, Method
from tss.results import TaskInfo
from tss.settings import Settings
from tss.store import COMPANY, Collected, Store, TaskEntry, TaskRecord, portable
from tss.tasks.names import check_name

_WAIT = 5.0  # seconds for another writer to end


class StoreOperations:
    """The part of `Learner` that keeps a store in order."""

    store: Store
    settings: Settings

    if TYPE_CHECKING:

        def _new_method(self) -> Method: ...
        def _identity(self) -> dict[str, Any]: ...
        def _identify(self) -> None: ...
        def _made_ready(self, record: Any, company: Sequence[Ready] = ()) -> Ready: ...

    def rollback(self, name: str, version: int | None = None) -> TaskInfo:
        """Answer with the version of a task before the present one, or with the version asked for.

        Later versions stay in the history until `gc`; asking for one of them undoes this, or a `remove`.
        Raises UnknownTaskError, StoreError; then nothing has changed.
        """
        with self.store.writing(wait=_WAIT):
            return self._info(self.store.rollback(check_name(name), version))

    def remove(self, name: str) -> int:
        """Take a task out of use; returns how many versions it had. They stay in the history until `gc`.

        Raises UnknownTaskError, StoreError; then nothing has changed.
        """
        with self.store.writing(wait=_WAIT):
            return len(self.store.remove(check_name(name)))

    def gc(self) -> Collected:
        """Drop withdrawn versions and all files that no task needs; what it tells are the bytes won.

        Other processes may go on answering meanwhile. Raises DamagedError, StoreError; then nothing has changed.
        """
        with self.store.writing(wait=_WAIT):
            return self.store.gc()

    def revisit(self, names: Sequence[str] | None = None) -> list[TaskInfo]:
        """Let tasks answer beside what their like have learnt since; returns those that changed.

        Own chances and those of the companion (of TSS+ the task's line) count one half each. No example is kept that
        could tell whether it helps. Sub-networks and heads stay as they are; each task that changes gets a new version,
        and `rollback` undoes it. Raises UnknownTaskError before anything has changed, DamagedError, StoreError; then
        some tasks may have changed.
        """
        changed: list[TaskInfo] = []
        with self.store.writing(wait=_WAIT):
            chosen = [self.store.index().entry(check_name(name)).name for name in names or self.store.index().names()]
            if not chosen:
                return []
            method = self._new_method()
            method.load_shared(self.store.read_shared())
            for companion in method.companions():
                changed += self._beside(companion, [name for name in chosen if name in companion.tasks])
        return changed

    def _beside(self, companion: Companion, names: Sequence[str]) -> list[TaskInfo]:
        """New versions of tasks, which answer beside a companion; not of those that do so already."""
        index, changed = self.store.index(), []
        found = [(entry, self.store.read(entry.name, entry.version)) for entry in map(index.entry, names)]
        known = set(companion.what.labels)
        found = [(entry, record) for entry, record in found if known.issuperset(record.meta["labels"])]
        if not found:
            return []
        made = recorded(companion, found[0][1])
        id = next((one.id for one in index.tasks if one.name == made.name and self._is(one, made)), index.next_id)
        ready = self._made_ready(made)
        beside = [] if id < index.next_id else [asked_again(made, ready)]
        for entry, record in found:
            if entry.summary.get(COMPANY) != [id]:
                again = asked_again(record, self._made_ready(record, [ready]))
                again = replace(again, summary={**again.summary, COMPANY: [id]})
                (kept,) = self.store.add_all([again], parent=entry.name, new_version=True, beside=beside)
                changed.append(self._info(kept))
                beside = []
        return changed

    def export(self, name: str, file: str | PathLike[str], version: int | None = None) -> int:
        """Write a task, with those that answer beside it, into one new file that `import_` reads; returns its bytes.

        Raises UnknownTaskError, DamagedError; StoreError if the file exists or the method's tasks cannot stand alone.
        """
        method = method_class(self.settings.method)
        if not method.self_contained:
            raise StoreError(
                f"tasks of {method.label} answer with weights that all tasks of a store share, so one cannot be "
                "carried alone; copy the whole folder of the store"
            )
        index = self.store.index()
        entry = index.entry(check_name(name), version)
        record, *others = (self.store.read(one.name, one.version) for one in (entry, *index.company(entry)))
        return portable.write(file, portable.Carried(record, entry.version, index.identity, tuple(others)))

    def import_(self, file: str | PathLike[str], *, name: str | None = None, new_version: bool = False) -> TaskInfo:
        """Take in a task that `export` wrote, from a store with the same backbone, adapters and method.

        It must give the answers it gave there: its probes are answered again before it is kept. name: call it so. Tasks
        that answer beside it come along out of use, unless the store has the same ones.
        Raises DamagedError if the file is not intact, StoreError if it does not fit; then nothing has changed.
        """
        carried = portable.read(file)
        chosen = check_name(carried.record.name if name is None else name)
        with self.store.writing(wait=_WAIT):
            if chosen in self.store.index().names() and not new_version:
                raise StoreError(
                    f"{self.store.path} has a task {chosen!r} already; give the imported one another name (--as), or "
                    "ask for a new version (--new-version)"
                )
            check_fits(carried.identity, self.store.index().identity or self._identity(), f"{file}", self.store)
            record = replace(carried.record, name=chosen, summary=_summary(carried.record.meta))
            others = [self._made_ready(one) for one in carried.beside]
            found = self._made_ready(record, others).compare()
            if found.status == "changed":
                raise StoreError(
                    f"{file} was not imported: here it answers {found.changed_bytes} bytes of its probes otherwise "
                    "than where it was learnt"
                )
            return self._info(self._add_together(record, list(zip(carried.beside, others, strict=True)), new_version))

    def _add_together(self, record: TaskRecord, beside: list[tuple[TaskRecord, Ready]], new_version: bool) -> TaskEntry:
        """Keep an imported task and, of those that answer beside it, the ones that are not here yet."""
        index = self.store.index()
        ids: list[int] = []
        new: list[TaskRecord] = []
        for other, ready in beside:
            alike = (one.id for one in index.tasks if one.name == other.name and self._is(one, other))
            there = next(alike, None)
            ids.append(index.next_id + len(new) if there is None else there)
            if there is None:  # its probes were answered with its own company, which stays behind
                with sound(other.name):
                    again = asked_again(replace(other, name=check_name(other.name)), ready)
                new.append(replace(again, summary=_summary(other.meta)))
        if ids:
            record = replace(record, summary={**record.summary, COMPANY: ids})
        self._identify()
        return self.store.add_all([record], new_version=new_version, beside=new)[0]

    def _is(self, entry: TaskEntry, record: TaskRecord) -> bool:
        """Whether a stored version has the gates and tensors of the record."""
        try:
            found = self.store.read(entry.name, entry.version)
        except DamagedError:
            return False
        parts = [{**one.tensors, "": torch.zeros(0) if one.gates is None else one.gates} for one in (found, record)]
        return parts[0].keys() == parts[1].keys() and all(torch.equal(parts[0][key], parts[1][key]) for key in parts[0])

    def _info(self, entry: Any) -> TaskInfo:
        return TaskInfo.of(self.store.index(), entry)


def settings_in(file: str | PathLike[str]) -> dict[str, Any]:
    """Backbone, method, preset, seed and config of the store that an exported file comes from, for `Learner.open`.

    Raises DamagedError, StoreError.
    """
    settings = _settings(portable.read(file).identity, str(file))
    told = asdict(settings)
    return {**{key: value for key, value in told.items() if key != "options"}, "config": settings.options}


def _settings(identity: dict[str, Any], what: str) -> Settings:
    try:
        settings = Settings(**{one.name: identity[one.name] for one in fields(Settings)})
        settings.config()
        return settings
    except (KeyError, TypeError, ValueError, AttributeError, ConfigError) as error:
        raise StoreError(f"{what} comes from a store with settings that are not known here ({error})") from None


def check_fits(theirs: dict[str, Any], ours: dict[str, Any], what: str, store: Store) -> None:
    """Raise StoreError, naming each difference, unless a task from there can answer here as it did there."""
    there, here = _resting_on(theirs, what), _resting_on(ours, str(store.path))
    lines = [
        f"\n  {key}: {there.get(key)!r} in the file, {here.get(key)!r} here"
        for key in {**there, **here}
        if there.get(key) != here.get(key)
    ]
    if lines:
        raise StoreError(f"{what} does not fit the store {store.path}:" + "".join(lines))


def _resting_on(identity: dict[str, Any], what: str) -> dict[str, Any]:
    """What a task's answers depend on beside itself. How it was trained is no part of it."""
    config = _settings(identity, what).config()
    hashes = {key: identity.get(key) for key in ("backbone_hash", "adapter_hash")}
    return {"method": identity["method"], **hashes, **asdict(config.adapter), "precision": config.learning.precision}


def _summary(meta: dict[str, Any]) -> dict[str, Any]:
    """What the index tells of an imported task, taken from what was checked with it."""
    labels = meta.get("labels")
    told = {"kind": str(meta.get("kind")), "labels": len(labels) if isinstance(labels, list) else 0}
    return {**_numbers(meta.get("facts")), **told, "scores": _numbers(meta.get("scores"))}


def _numbers(values: Any) -> dict[str, float]:
    return {k: v for k, v in values.items() if isinstance(v, (int, float))} if isinstance(values, dict) else {}
