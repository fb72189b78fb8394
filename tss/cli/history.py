"""`tss export`, `import`, `rollback`, `revisit`, `remove`, `gc`: carry tasks, go back, revisit, remove, tidy up."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tss.cli import options, show

Name = Annotated[str, typer.Argument(metavar="TASK", help="The name of a learnt task.", show_default=False)]


def export(
    store: options.Store,
    task: Name,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The new file to write.", show_default=False)],
    version: Annotated[int | None, typer.Option(help="This version, not the one in use.", show_default=False)] = None,
    as_json: show.Json = False,
) -> None:
    """Write one task into one file, to carry it to another store.

    The file has everything the task needs but the backbone, and its own checksum.

    \b
    Example:
      tss export store reviews reviews.safetensors
    """
    from tss.learner import Learner

    count = Learner.open(store, create=False).export(task, file, version)
    if as_json:
        show.document({"task": task, "file": str(file), "bytes": count})
    else:
        typer.echo(f"{show.printable(task)} is in {file} ({show.size(count)})")


def import_(
    store: options.Store,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file made by tss export.", show_default=False)],
    name: Annotated[
        str | None, typer.Option("--as", metavar="TASK", help="Give it another name.", show_default=False)
    ] = None,
    new_version: Annotated[
        bool, typer.Option("--new-version", help="The store has the task: keep the old version too.")
    ] = False,
    backbone: Annotated[
        str | None, typer.Option(help="The backbone's folder, if it is elsewhere here.", show_default=False)
    ] = None,
    device: options.Device = None,
    as_json: show.Json = False,
) -> None:
    """Take in a task that was exported from a store with the same backbone, adapters and method.

    Before it is kept it answers its probes here, which must come out as they did there. A store that does not exist is
    made with the settings of the file.

    \b
    Examples:
      tss import store reviews.safetensors
      tss import store reviews.safetensors --as old-reviews
    """
    from tss.learner import Learner
    from tss.operations import settings_in

    given = {} if (store / "index.json").exists() else settings_in(file)
    if backbone is not None:
        given["backbone"] = backbone
    info = Learner.open(store, device=device, **given).import_(file, name=name, new_version=new_version)
    if as_json:
        show.document({"task": asdict(info)})
    else:
        typer.echo(f"{show.printable(info.name)} version {info.version} is in {store}")


def rollback(
    store: options.Store,
    task: Name,
    to: Annotated[
        int | None, typer.Option("--to", metavar="VERSION", help="Any version in the history.", show_default=False)
    ] = None,
    as_json: show.Json = False,
) -> None:
    """Use the previous version of a task again.

    The version withdrawn stays in the history until `tss gc`; --to brings it back, or a task that was removed.

    \b
    Examples:
      tss rollback store reviews
      tss rollback store reviews --to 2
    """
    from tss.learner import Learner

    info = Learner.open(store, create=False).rollback(task, to)
    if as_json:
        show.document({"task": asdict(info)})
    else:
        typer.echo(f"{show.printable(info.name)} is at version {info.version}")


def revisit(
    store: options.Store,
    tasks: Annotated[list[str] | None, typer.Argument(help="Only these.", show_default="all")] = None,
    as_json: show.Json = False,
) -> None:
    """Let tasks gain from what tasks alike have learnt since.

    For stores of TSS+: a task of a line answers together with what its line knows by now, half and half. That costs a
    second pass for each input. Nothing is trained, no example is needed; each task that changes gets a new version, and
    `tss rollback` undoes it.

    \b
    Examples:
      tss revisit store
      tss revisit store reviews
    """
    from tss.learner import Learner

    changed = Learner.open(store, create=False).revisit(tasks or None)
    if as_json:
        show.document({"tasks": [asdict(info) for info in changed]})
    elif not changed:
        typer.echo("nothing to do: no task alike has been learnt since")
    for info in () if as_json else changed:
        typer.echo(f"{show.printable(info.name)} is at version {info.version}")


def remove(store: options.Store, task: Name, as_json: show.Json = False) -> None:
    """Take a task out of use.

    It stays in the history, from where `tss rollback --to` brings it back, until `tss gc`.

    \b
    Example:
      tss remove store reviews
    """
    from tss.learner import Learner

    versions = Learner.open(store, create=False).remove(task)
    if as_json:
        show.document({"task": task, "versions": versions})
    else:
        typer.echo(f"{show.printable(task)} is removed; tss gc {store} frees its space")


def gc(store: options.Store, as_json: show.Json = False) -> None:
    """Free the space of versions withdrawn by rollback and remove, and of files left over.

    They cannot be brought back afterwards. Others may go on using the store meanwhile.

    \b
    Example:
      tss gc store
    """
    from tss.learner import Learner

    found = Learner.open(store, create=False).gc()
    if as_json:
        show.document(asdict(found))
        return
    for name, version in found.tasks:
        typer.echo(f"dropped {show.printable(name)} version {version}")
    typer.echo(f"{found.files} files fewer, {show.size(abs(found.bytes))} {'freed' if found.bytes >= 0 else 'more'}")
