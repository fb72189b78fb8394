"""`tss learn`."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tss.cli import options, show
from tss.cli.launched import launched
from tss.learning.track import check_trackers
from tss.tasks.task import Task

if TYPE_CHECKING:
    from tss.learner import Learned, Learner
    from tss.learning.progress import Progress


class OnError(str, Enum):
    """What a bad row of a task's files does."""

    stop = "stop"
    skip = "skip"


def learn(
    store: options.Store,
    task_folder: options.Folder,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="A name or folder of a Hugging Face model; fixed by the first task of a store.", show_default=False
        ),
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="One of `tss methods`; fixed by the first task.", show_default=False)
    ] = None,
    device: options.Device = None,
    preset: Annotated[str | None, typer.Option(help="recommended, paper or code.", show_default=False)] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all randomness.", show_default=False)] = None,
    change: options.Set = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show steps, time and bytes; learn nothing.")] = False,
    new_version: Annotated[
        bool, typer.Option("--new-version", help="Learn a known task again; the old one stays.")
    ] = False,
    track: options.Track = "",
    on_error: Annotated[OnError, typer.Option("--on-error", help="What a bad row does.")] = OnError.stop,
    as_json: show.Json = False,
) -> None:
    """Learn a task and keep it in the store.

    A run that was stopped goes on where it was: give the same command again.

    \b
    Examples:
      tss learn store reviews/
      tss learn store reviews/ --dry-run
      tss learn store reviews/ --set max_steps=300
      tss learn store reviews/ --track tensorboard
    """
    config = options.settings(change)
    check_trackers(options.words(track))
    task = Task.from_folder(task_folder, on_error=on_error.value)
    for warning in task.warnings:
        show.note(f"warning: {warning}")
    from tss.learner import Learner  # not above: a mistake in the folder is told before torch is loaded

    chosen = partial(
        Learner.open, backbone=backbone, method=method, device=device, config=config, preset=preset, seed=seed
    )
    if dry_run:
        with TemporaryDirectory() as nowhere:  # a plan for a new store must not make one
            _show_plan(chosen(store if store.exists() else nowhere).plan(task), as_json)
        return
    with launched(device) as ranks, ranks.own(store) as place:
        learner = chosen(place, device=ranks.device or device)
        learner.ranks = ranks
        learned = _learn(learner, task, new_version, options.words(track), Path(f"{store}-track"))
        if not ranks.first:
            return
    for warning in learned.warnings:
        if warning not in task.warnings:
            show.note(f"warning: {warning}")
    _show_learned(learned, as_json)


def _learn(learner: Learner, task: Task, new_version: bool, trackers: list[str], folder: Path) -> Learned:
    from tss.learning.track import tracked

    about = learner.config.flat() if trackers else {}
    quiet = not learner.ranks.first
    with show.progress_bar(quiet) as shown, tracked(trackers, folder, task.name, about) as track:

        def watch(now: Progress) -> None:
            for one in (shown, track and track.watch):
                if one:
                    one(now)

        learned = learner.learn(task, new_version=new_version, progress=watch)
        if track:
            track.scores(learned.name, learned.scores)
    return learned


def _show_plan(plan: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show.document(plan)
        return
    show.table(("plan", "nothing is learnt"), [(key.replace("_", " "), _readable(key, plan[key])) for key in plan])


def _readable(key: str, value: Any) -> str:
    if "bytes" in key:
        return show.size(value)
    return show.duration(value) if key == "seconds" else str(value)


def _show_learned(learned: Learned, as_json: bool) -> None:
    if as_json:
        show.document({key: value for key, value in asdict(learned).items() if key != "answers"})
        return
    resumed = ", resumed" if learned.resumed else ""
    typer.echo(f"learnt {show.printable(learned.name)}: {show.scores(learned.scores)}")
    typer.echo(
        f"{learned.steps} steps in {show.duration(learned.seconds)}{resumed}, {show.size(learned.bytes)} on disk"
    )
