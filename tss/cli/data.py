"""`tss data`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tss.cli import show
from tss.errors import ConfigError


def prepare(
    out: Annotated[Path, typer.Option(help="Where the task folders go.", show_default=False)],
    raw: Annotated[
        Path | None, typer.Option(help="The folder of public files, under their own names.", show_default=False)
    ] = None,
    hub: Annotated[bool, typer.Option("--hub", help="Fetch what the Hugging Face hub has instead.")] = False,
    family: Annotated[
        list[str] | None, typer.Option(help="asc, ccd, ner, sum or drg; may be repeated.", show_default=False)
    ] = None,
    as_json: show.Json = False,
) -> None:
    """Make the paper's tasks from public files.

    \b
    Examples:
      tss data prepare --raw raw --out data
      tss data prepare --hub --out data --family ner
    """
    if hub == (raw is not None):
        raise ConfigError("say where the files come from: either --raw FOLDER or --hub")
    from tss.data.prepare import not_on_hub, prepare_from_hub
    from tss.data.prepare import prepare as from_raw

    done = from_raw(raw, out, family or None, _tell) if raw else prepare_from_hub(out, family or None, progress=_tell)
    if hub and not family:
        for name, lacking in not_on_hub().items():
            show.note(f"not prepared: {name}: {lacking}; take --raw for them")
    if as_json:
        show.document({"tasks": [asdict(task) for task in done]})
        return
    show.table(("task", "train", "valid", "test"), [(task.task, *map(str, task.rows.values())) for task in done])


def _tell(task: str, done: int, total: int) -> None:
    if task:
        show.note(f"{done + 1}/{total} {task}")


def check(
    folder: Annotated[Path, typer.Argument(metavar="DATA", help="What `tss data prepare` wrote.", show_default=False)],
    as_json: show.Json = False,
) -> None:
    """Check every row of prepared data.

    Counts beside the paper's, labels, lengths, overlaps. Exit status 1 if a row is not as the recipes make it.

    \b
    Example:
      tss data check data
    """
    from tss.data.check import check as look_over

    found = look_over(folder)
    if as_json:
        show.document({"ok": found.ok, **asdict(found)})
    else:
        typer.echo(found.text(), nl=False)
    if not found.ok:
        raise typer.Exit(1)
