"""`tss backbone`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from tss.cli import options, show
from tss.errors import BackboneError


def known(as_json: show.Json = False) -> None:
    """List the backbones at hand. Any other Hugging Face model can be given by name or folder.

    \b
    Example:
      tss backbone list
    """
    from tss.backbones.load import DEFAULT, available

    found = available()
    if as_json:
        show.document({"default": DEFAULT, "backbones": found})
        return
    show.table(("backbone", "folder"), [(name, str(folder)) for name, folder in found.items()])


def pretrain(
    corpus: Annotated[
        list[Path],
        typer.Argument(metavar="CORPUS...", help="Text files, .xz too; one document a line.", show_default=False),
    ],
    size: Annotated[str, typer.Option(help="The shape, such as nano or mini.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The folder to write.", show_default=False)],
    minutes: Annotated[float | None, typer.Option(help="Stop after so many minutes.", show_default=False)] = None,
    steps: Annotated[int | None, typer.Option(help="Stop after so many steps.", show_default=False)] = None,
    device: options.Device = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin again; forget the checkpoint in OUT.")] = False,
    as_json: show.Json = False,
) -> None:
    """Pretrain a small BART from plain text.

    A run that was stopped goes on from its last checkpoint. For several GPUs put `accelerate launch -m` before it.

    \b
    Example:
      tss backbone pretrain corpus.txt \\
          --size nano --out my-bart --minutes 25
    """
    if find_spec("accelerate") is None:
        raise BackboneError("pretraining needs the package accelerate: pip install 'tss[bench]'")
    from tss.backbones.pretrain import pretrain as train

    scores = train(corpus, size, out, minutes=minutes, steps=steps, device=device, resume=not fresh, on_progress=_tell)
    if as_json:
        show.document({"out": out, "scores": scores})
    else:
        typer.echo(f"wrote {out}; use it with --backbone {out}")


def _tell(line: dict[str, Any]) -> None:
    """A line of the log, for people."""
    numbers = {key: value for key, value in line.items() if isinstance(value, (int, float))}
    show.note(f"{line['event']}: " + ", ".join(f"{key} {value:.4g}" for key, value in numbers.items()))
