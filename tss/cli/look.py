"""`tss tasks`, `tss verify` and `tss methods`: what is there, and whether it is still the same."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tss.cli import options, show
from tss.errors import TssError
from tss.methods import page_of

if TYPE_CHECKING:
    from tss.backbones.backbone import Backbone

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
            ", ".join(info.beside),
        )
        for info in known
    ]
    columns = ("task", "v", "kind", "on disk", "open", "learnt at", "together with")
    shown = len(columns) if any(info.beside for info in known) else -1
    show.table(columns[:shown], [row[:shown] for row in rows])


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
    backbone: Annotated[str, typer.Option(help="The backbone that bytes and cost are for.")] = "bart-nano",
    as_json: show.Json = False,
) -> None:
    """List the methods and what they take, or the settings of one.

    Bytes and cost are counted while each method learns two toy tasks on the backbone. `a task`: bytes that each further
    task keeps, beside its head; `shared`: bytes kept once; `trained`: numbers trained, as a share of the backbone's;
    `cost`: work of learning a second task of ten epochs, in positions that pass through the backbone's layers (with
    gradients up to three times); NCL is 1. docs/methods has a page for each.

    \b
    Examples:
      tss methods
      tss methods --backbone bart-large
      tss methods tss --preset paper
    """
    from tss.backbones.load import load_backbone
    from tss.config import resolve
    from tss.methods import METHODS

    if method is not None:
        settings = resolve(method, preset).flat()
        if as_json:
            show.document({"method": method, "preset": preset, "settings": settings})
        else:
            show.table(("setting", preset), [(key, json.dumps(value)) for key, value in settings.items()])
        return
    loaded = load_backbone(backbone)
    found = [_measured(name, preset, loaded) for name in METHODS]
    if as_json:
        show.document({"backbone": loaded.name, "methods": found})
        return
    heads = ("method", "family", "forgets", "a task", "shared", "trained", "cost")
    show.table(heads, [_row(one) for one in found])
    show.note(f"bytes and cost on {loaded.name}; `tss methods --help` says what they mean")


def _measured(name: str, preset: str, backbone: Backbone) -> dict[str, Any]:
    """What there is to say of a method; numbers are None where it cannot work on this backbone, and `why` tells."""
    from tss.config import resolve
    from tss.learning.footprint import measure
    from tss.methods import method_class

    kind, config = method_class(name), resolve(name, preset)
    forgets = None if kind.joint else kind.forgets  # a joint method never learns a second time
    out: dict[str, Any] = {"name": name, "label": kind.label, "family": kind.family, "forgets": forgets}
    out |= {"kinds": list(kind.kinds), "page": f"docs/methods/{page_of(name)}.md"}
    try:
        numbers = asdict(measure(lambda: kind(backbone, config.adapter, config.method, 0), backbone))
    except TssError as problem:
        return out | dict.fromkeys(("trained", "per_task", "shared", "work")) | {"why": str(problem)}
    size = sum(p.numel() for p in backbone.model.parameters())
    return out | numbers | {"trained_share": numbers["trained"] / size}


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    forgets = {None: "-", True: "yes", False: "no"}[one["forgets"]]
    numbers = ["-"] * 4
    if one["work"] is not None:
        share = f"{one['trained_share']:.1%}"
        numbers = [show.size(one["per_task"]), show.size(one["shared"]), share, f"{one['work']:.2f}"]
    return one["name"], one["family"], forgets, *numbers
