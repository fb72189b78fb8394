"""`tss predict`, `tss which` and `tss evaluate`."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from tss.cli import options, show
from tss.errors import TaskError
from tss.tasks.task import Task

Name = Annotated[str, typer.Argument(metavar="TASK", help="The name of a learnt task.", show_default=False)]


Text = Annotated[str, typer.Argument(metavar="[TEXT|-]", help="The text, or - for one text a line on stdin.")]
Pair = Annotated[
    str | None, typer.Option(help="The second field of a pair task, such as the aspect.", show_default=False)
]


def predict(
    store: options.Store,
    task: Name,
    text: Text = "-",
    pair: Pair = None,
    device: options.Device = None,
    as_json: show.Json = False,
) -> None:
    """Answer one text, or each line of stdin.

    Words of a tagging task are separated by spaces.

    \b
    Examples:
      tss predict store reviews "A fine read."
      tss predict store laptops "It glows." --pair screen
      tss predict store reviews - < lines.txt
    """
    texts = _lines() if text == "-" else [text]
    from tss.learner import Learner

    learner = Learner.open(store, device=device, create=False)
    answers = learner.predict(task, _inputs(texts, pair), details=True)
    for row, answer in enumerate(answers, 1):
        if answer.get("truncated"):
            show.note(f"warning: text {row} is longer than the task allows and was cut")
    if as_json:
        show.document({"task": task, "answers": answers})
        return
    for answer in answers:
        typer.echo(_one_line(answer))


def which(
    store: options.Store,
    text: Text = "-",
    pair: Pair = None,
    most: Annotated[int, typer.Option(min=1, help="Tasks to name for each text.")] = 3,
    device: options.Device = None,
    as_json: show.Json = False,
) -> None:
    """Say which tasks a text is most likely for: those that learnt on the most similar ones.

    The number is a distance, about 1 for a text like those the task was learnt on. A text of any task will do; words
    of a tagging task are separated by spaces.

    \b
    Examples:
      tss which store "A fine read."
      tss which store "It glows." --pair screen
      tss which store - --most 1 < lines.txt
    """
    texts = _lines() if text == "-" else [text]
    from tss.learner import Learner

    found = Learner.open(store, device=device, create=False).which(_inputs(texts, pair), most)
    if as_json:
        show.document({"tasks": [[{"task": one.task, "distance": one.distance} for one in each] for each in found]})
        return
    for each in found:
        typer.echo("  ".join(f"{show.printable(one.task)} {one.distance:.2f}" for one in each))


def _inputs(texts: list[str], pair: str | None) -> list[Any]:
    return list(texts) if pair is None else [{"text": one, "pair": pair} for one in texts]


def _lines() -> list[str]:
    """The lines of stdin. Raises TaskError where they are not UTF-8."""
    if sys.stdin.isatty():
        show.note("reading one text a line; end with Ctrl-D")
    texts = []
    for row, line in enumerate(sys.stdin.buffer, 1):
        try:
            texts.append(line.decode("utf-8").rstrip("\r\n"))
        except UnicodeDecodeError as error:
            raise TaskError(f"stdin, line {row}: not UTF-8 ({error.reason}); convert the text first") from error
    return texts


def _one_line(answer: dict[str, Any]) -> str:
    """The answer alone, on one line so that answers stay beside their texts."""
    found = answer["answer"]
    joined = found if isinstance(found, str) else " ".join(found)
    return show.printable(" ".join(joined.splitlines()))


def evaluate(
    store: options.Store,
    task_folder: options.Folder,
    name: Annotated[
        str | None,
        typer.Option("--as", metavar="TASK", help="The learnt task, if it has another name.", show_default=False),
    ] = None,
    device: options.Device = None,
    as_json: show.Json = False,
) -> None:
    """Score a task on the test set of a folder.

    \b
    Examples:
      tss evaluate store reviews/
      tss evaluate store newer-reviews/ --as reviews
    """
    task = Task.from_folder(task_folder)
    from tss.learner import Learner

    found = Learner.open(store, device=device, create=False).evaluate(task, name=name)
    if as_json:
        show.document({"task": name or task.name, "scores": found})
        return
    show.table(("score", "value"), [(key, f"{value:.2f}") for key, value in found.items()])
