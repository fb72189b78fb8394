"""LAMOL's sample formats: every task is a text to be continued, as context, question, answer.

    task form         context question __ans__ | answer <end>
    generation form   __gen__ | context question __ans__ answer <end>

Left of the bar the backbone reads, right of it it writes and is trained. A decoder has both in one row without anything
between them, which is the published form; an encoder-decoder reads one side with its encoder and writes the other.
Marks are spelt with the tokens that the backbone has, so that no vocabulary grows; texts cannot contain them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tss.backbones.text import TextCodec
from tss.tasks.batches import Row
from tss.tasks.generation import Generation
from tss.tasks.kind import Answer
from tss.tasks.metrics import NO_ANSWER

ANSWER, GENERATE = "__ans__", "__gen__"
QUESTIONS = {"bleu": "What is the reply?"}  # by metric; any other generation task is a summary
SUMMARY = "What is the summary?"


def mark(text: TextCodec, name: str) -> list[int]:
    """The ids of a mark."""
    return text.tokens(name)


def places(ids: Sequence[int], sought: Sequence[int]) -> list[int]:
    """Where a mark begins in `ids`; occurrences do not overlap."""
    found, i = [], 0
    while i <= len(ids) - len(sought):
        if list(ids[i : i + len(sought)]) == list(sought):
            found.append(i)
            i += len(sought)
        else:
            i += 1
    return found


def ends(backbone) -> tuple[list[int], list[int]]:
    """What stands before and after all that is read; a decoder writes on, so nothing closes its reading."""
    text = backbone.text
    return text.opening, [] if backbone.layout.family == "decoder" else text.closing


def task_row(backbone, asked: list[int], answer: list[int], limit: int, cut: bool = False) -> Row:
    """The task form of context and question (`asked`, with its answer mark, at most `limit` ids) and answer."""
    opening, closing = ends(backbone)
    text, room = backbone.text, max(limit - len(opening) - len(closing), 1)
    target = [*text.target_opening, *answer, text.end]
    return Row([*opening, *asked[-room:], *closing], target, cut or len(asked) > room)


def generation_row(backbone, row: Row, start: Sequence[int]) -> Row:
    """The generation form of a task form, which begins with the mark `start`.

    What exceeds the backbone's positions is cut off the beginning of the context.
    """
    text, (opening, closing) = backbone.text, ends(backbone)
    asked = row.ids[len(opening) : len(row.ids) - len(closing)]
    source, before = [*opening, *start, *closing], text.target_opening
    answer = row.target[len(before) :]
    if backbone.longest is not None:
        used = len(source) if backbone.layout.family == "decoder" else 0
        asked = asked[-max(backbone.longest - used - len(before) - len(answer), 1) :]
    return Row(source, [*before, *asked, *answer])


def parse(backbone, ids: Sequence[int], limit: int) -> Row | None:
    """The task form of generated ids, or None unless they hold exactly one answer mark."""
    sought = mark(backbone.text, ANSWER)
    found = places(ids, sought)
    if len(found) != 1:
        return None
    split = found[0] + len(sought)
    return task_row(backbone, list(ids[:split]), list(ids[split:]), limit)


class Asked(Generation):
    """Generation, with a question after its source."""

    @property
    def name(self) -> str:
        return "generation"

    def question(self, given: tuple[str, ...]) -> str:
        return QUESTIONS.get(self.metric, SUMMARY)

    def input_row(self, backbone, given: tuple[str, ...]) -> Row:
        """The context is cut where all does not fit, never the question."""
        text, (opening, closing) = backbone.text, ends(backbone)
        tail = [*text.tokens(" " + _unmarked(self.question(given))), *mark(text, ANSWER)]
        context = text.tokens(_unmarked(given[0]))
        room = max(self.limit(backbone) - len(opening) - len(closing) - len(tail), 1)
        return task_row(backbone, [*context[:room], *tail], [], self.limit(backbone), len(context) > room)

    def row(self, backbone, given: tuple[str, ...], target: str) -> Row:
        row = self.input_row(backbone, given)
        return Row(row.ids, backbone.text.target(_unmarked(target), self._room(backbone)), row.cut)


class Named(Asked):
    """Classification by writing the label's name; a text that is no label is no answer, hence wrong."""

    @property
    def name(self) -> str:
        return "classification"

    def question(self, given: tuple[str, ...]) -> str:
        """What is asked of the text (an aspect, say), and the labels to choose from."""
        return " ".join([*given[1:], f"{', '.join(self.labels)}?"])

    def _room(self, backbone) -> int:
        """The longest label, opening and end."""
        text = backbone.text
        return max((len(text.tokens(label)) for label in self.labels), default=1) + len(text.target_opening) + 1

    def together(self, backbone) -> tuple[tuple[str, int], ...]:
        return ("max_tokens", self._room(backbone)), ("min_tokens", 1), ("beams", 1), ("no_repeat", 0)

    def spoken(self, backbone, out: Sequence[Sequence[int]], rows: Sequence[Row]) -> list[Answer]:
        text = backbone.text
        known = {text.decode(text.tokens(_unmarked(label))): label for label in self.labels}
        return [
            Answer(known.get(text.decode(ids), NO_ANSWER), None, row.cut) for ids, row in zip(out, rows, strict=True)
        ]

    def told(self, answer: Answer, given: tuple[str, ...]) -> dict:
        told = super().told(answer, given)
        told.pop("unfinished")
        return told


def _unmarked(text: str) -> str:
    for name in (ANSWER, GENERATE):
        text = text.replace(name, name.strip("_"))
    return text
