"""`tss tasks`, `tss verify` and `tss methods`: what is there, and whether it is still the same."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from tss.cli import options, show

BAD = ("changed", "damaged")


def tasks(store: options.Store, as_json: show.Json = False) -> None:
    """List what the store has learnt, in order.

    \b
    Example:
      tss tasks store
    """
    from tss.learner import Learner

    known = Learner.open(store, create=False).tasks()
    if as_json:
        show.document({"tasks": [asdict(info) for info in known]})
        return
    if not known:
        typer.echo("nothing learnt yet")
        return
    rows = [
        (
            info.name,
            str(info.version),
            info.kind,
            show.size(info.bytes),
            _share(info.open_gates),
            show.scores(dict(list(info.scores.items())[:1])),
        )
        for info in known
    ]
    show.table(("task", "v", "kind", "on disk", "open", "learnt at"), rows)


def _share(value: float | None) -> str:
    """Methods without gates have none open."""
    return "-" if value is None else f"{value:.1%}"


def verify(
    store: options.Store,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[TASK]...", help="Only these.", show_default=False)
    ] = None,
    device: options.Device = None,
    as_json: show.Json = False,
) -> None:
    """Prove that nothing learnt has changed.

    Each task answers its stored probes again. In the environment where it was learnt the answers must be equal byte for
    byte; elsewhere they must agree within a stated tolerance. Exit status 1 if a task is changed or damaged.

    \b
    Examples:
      tss verify store
      tss verify store reviews entities
    """
    from tss.learner import Learner

    checks = Learner.open(store, device=device, create=False).verify(names or None)
    bad = [check for check in checks if check.status in BAD]
    if as_json:
        show.document({"ok": not bad, "tasks": [asdict(check) for check in checks]})
    else:
        show.table(("task", "status", "detail"), [(check.name, check.status, check.detail) for check in checks])
        outputs = sum(check.outputs for check in checks)
        typer.echo(
            f"{outputs} outputs compared in {len(checks)} task{'s' * (len(checks) != 1)}: {len(bad)} changed or damaged"
        )
    if bad:
        raise typer.Exit(1)


def methods(
    method: Annotated[
        str | None, typer.Argument(metavar="[METHOD]", help="List the settings of this one.", show_default=False)
    ] = None,
    preset: Annotated[str, typer.Option(help="recommended, paper or code.")] = "recommended",
    as_json: show.Json = False,
) -> None:
    """List the methods, or the settings of one.

    \b
    Examples:
      tss methods
      tss methods tss --preset paper
    """
    from tss.config import resolve
    from tss.methods import METHODS, method_class

    if method is not None:
        settings = resolve(method, preset).flat()
        if as_json:
            show.document({"method": method, "preset": preset, "settings": settings})
        else:
            show.table(("setting", preset), [(key, json.dumps(value)) for key, value in settings.items()])
        return
    labels = {name: method_class(name).label for name in METHODS}
    if as_json:
        show.document({"methods": [{"name": name, "label": label} for name, label in labels.items()]})
    else:
        show.table(("method", "called"), list(labels.items()))
