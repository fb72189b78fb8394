"""`Task`: what is to be learnt. A name, a kind, labels, examples and how long texts may be; nothing of models."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tss.errors import TaskError

if TYPE_CHECKING:
    from pathlib import Path

KINDS = ("classification", "tagging", "generation")


@dataclass(frozen=True, slots=True)
class Example:
    """One example.

    input: classification `(text,)` or `(text, pair)`; tagging the words; generation `(source,)`.
    target: classification the label; tagging the BIO tags, one a word; generation the text to produce.
    """

    input: tuple[str, ...]
    target: str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lengths:
    """Token limits. `min_target`, `beams` and `no_repeat` matter for generation only."""

    max_input: int = 128
    max_target: int = 128
    min_target: int = 1
    beams: int = 4
    no_repeat: int = 3


@dataclass(frozen=True)
class Task:
    """A task to learn.

    Make one with `Task.from_folder`, `Task.from_lists` or `Task.from_dataset`.
    `family` groups tasks that are measured together (for example `asc`); it has no influence on learning.
    """

    name: str
    kind: str
    labels: tuple[str, ...] = ()
    train: tuple[Example, ...] = ()
    valid: tuple[Example, ...] = ()
    test: tuple[Example, ...] = ()
    lengths: Lengths = field(default_factory=Lengths)
    metric: str = ""
    family: str = ""
