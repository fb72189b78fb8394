"""The arguments and options that several commands share, and how they are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tss.errors import ConfigError

Store = Annotated[
    Path, typer.Argument(metavar="STORE", help="The folder where what is learnt is kept.", show_default=False)
]
Folder = Annotated[
    Path,
    typer.Argument(metavar="TASK_FOLDER", help="A folder with task.json and train, valid, test.", show_default=False),
]
Device = Annotated[
    str | None, typer.Option(help="cpu, cuda, cuda:1 …; found by itself if not given.", show_default=False)
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one setting; may be repeated.", show_default=False),
]
Track = Annotated[
    str, typer.Option(metavar="NAMES", help="tensorboard, mlflow, wandb; several with commas.", show_default=False)
]


def words(text: str) -> list[str]:
    """`"asc, ner"` as ["asc", "ner"]."""
    return [word.strip() for word in text.split(",") if word.strip()]


def settings(pairs: list[str] | None) -> dict[str, Any] | None:
    """`["max_steps=300", "pool=mean"]` as a config; a value is read as JSON where it is JSON, else as text.

    Raises ConfigError for a pair without `=` or a key given twice.
    """
    config: dict[str, Any] = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ConfigError(f"--set {pair!r} is not key=value; write for example --set max_steps=300")
        if key in config:
            raise ConfigError(f"--set {key} is given twice; give it once")
        try:
            config[key] = json.loads(value)
        except ValueError:
            config[key] = value
    return config or None
