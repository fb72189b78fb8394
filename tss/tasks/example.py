"""`Example`: one input with its target; what may stand in it, and how a user's value becomes an input."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tss.errors import TaskError, nearest

KINDS = ("classification", "tagging", "generation")
MAX_CHARACTERS = 1_000_000
SECOND_FIELDS = ("pair", "aspect")


@dataclass(frozen=True, slots=True)
class Example:
    """One example.

    input: classification `(text,)` or `(text, pair)`; tagging the words; generation `(source,)`.
    target: classification the label; tagging the BIO tags, one a word; generation the text to produce.
    """

    input: tuple[str, ...]
    target: str | tuple[str, ...]


def check_kind(kind: object) -> str:
    """The kind itself. Raises TaskError if there is no such kind."""
    if kind not in KINDS:
        raise TaskError(f"there is no kind of task {kind!r}{nearest(str(kind), KINDS)} (kinds: {', '.join(KINDS)})")
    return str(kind)


def as_input(kind: str, value: object, pair: bool | None = None) -> tuple[str, ...]:
    """Turn what a user passes to predict into `Example.input`.

    Classification: a text or, for two fields, `(text, pair)`. Tagging: a list of words, or a text that is split at
    blanks. Generation: the source text. A dict with the names of the fields (`text`, `pair` or `aspect`; `tokens`;
    `source`) and an `Example` do as well.
    pair: whether the task takes two fields; None accepts either.
    Raises TaskError that says what was expected.
    """
    expected = _expected(kind, pair)
    if isinstance(value, Example):
        value = value.input
    if isinstance(value, Mapping):
        value = _mapping_input(kind, value, expected)
    if isinstance(value, str):
        _check_text(value)  # before a huge one is split
        value = value.split() if kind == "tagging" else (value,)
    if not isinstance(value, (tuple, list)):
        raise TaskError(f"expected {expected}, not {_shown(value)}")
    for part in value:
        if not isinstance(part, str):
            raise TaskError(f"expected {expected}; it holds {_shown(part)}, which is not text")
    counts = {"tagging": None, "generation": (1,)}.get(kind, {None: (1, 2), True: (2,), False: (1,)}[pair])
    if counts is not None and len(value) not in counts:
        raise TaskError(f"expected {expected}, not {len(value)} field{'s' * (len(value) != 1)}")
    _check_input(kind, tuple(value))
    return tuple(value)


def check_shape(kind: str, example: Example) -> None:
    """Raise TaskError unless the example is well formed for its kind, whatever the task's labels are."""
    _check_input(kind, example.input)
    target = example.target
    if kind == "tagging":
        if isinstance(target, str):
            raise TaskError("expected the tags as a list, one a word")
        if len(target) != len(example.input):
            raise TaskError(f"{len(example.input)} words but {len(target)} tags; each word needs one tag")
        check_tags(target)
        return
    if not isinstance(target, str):
        raise TaskError(f"expected {'a label' if kind == 'classification' else 'the text to produce'}, one text")
    _check_text(target)
    if kind == "classification":
        _check_label_text(target)
    elif not target.strip():
        raise TaskError("the text to produce is empty")
    if len(example.input) not in ((1, 2) if kind == "classification" else (1,)):
        raise TaskError(f"expected {_expected(kind, None)}, not {len(example.input)} fields")


def check_labels_known(kind: str, example: Example, labels: Collection[str]) -> None:
    """Raise TaskError naming the first label of the example that is not among `labels`."""
    if kind == "generation":
        return
    for label in (example.target,) if isinstance(example.target, str) else example.target:
        if label not in labels:
            shown = ", ".join(repr(known) for known in list(labels)[:10]) + (", …" if len(labels) > 10 else "")
            what = "label" if kind == "classification" else "tag"
            raise TaskError(
                f"{what} {label!r} is not among the task's labels ({shown}); "
                "labels come from the training examples unless they are listed under `labels`"
            )


def check_tags(tags: tuple[str, ...]) -> None:
    """Raise TaskError at the first tag that is no BIO tag, or an I- that continues nothing of its type."""
    before = "O"
    for position, tag in enumerate(tags, start=1):
        _check_label_text(tag)
        if tag != "O" and (tag[:2] not in ("B-", "I-") or len(tag) < 3):
            raise TaskError(f"tag {position} is {tag!r}; tags are O, B-<type> or I-<type>")
        if tag[:2] == "I-" and (before == "O" or before[2:] != tag[2:]):
            raise TaskError(
                f"tag {position} is {tag!r} but continues no {tag[2:]} (before it: {before!r}); "
                f"write 'B-{tag[2:]}', or ask for such tags to be repaired (repair_tags)"
            )
        before = tag


def repair_tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    """The tags with each I- that continues nothing of its type turned into B-."""
    repaired: list[str] = []
    for tag in tags:
        orphan = tag[:2] == "I-" and (not repaired or repaired[-1] == "O" or repaired[-1][2:] != tag[2:])
        repaired.append("B-" + tag[2:] if orphan else tag)
    return tuple(repaired)


def _check_input(kind: str, fields: tuple[str, ...]) -> None:
    for part in fields:
        _check_text(part)
    if kind == "tagging":
        if not fields:
            raise TaskError("there are no words")
        if sum(map(len, fields)) > MAX_CHARACTERS:
            raise TaskError(f"the words have more than {MAX_CHARACTERS:,} characters together; divide the sentence")
        for position, word in enumerate(fields, start=1):
            if not word.strip():
                raise TaskError(f"word {position} is empty; leave it and its tag out")


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise TaskError(f"expected text, not {_shown(text)}")
    if len(text) > MAX_CHARACTERS:
        raise TaskError(f"a text has {len(text):,} characters; at most {MAX_CHARACTERS:,} are allowed, divide it")
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TaskError(
            f"the text is broken at character {error.start + 1}: half of a Unicode surrogate pair "
            f"(U+{ord(text[error.start]):04X}); save it as UTF-8 again"
        ) from None


def _check_label_text(label: object) -> None:
    _check_text(label)
    assert isinstance(label, str)
    if not label.strip():
        raise TaskError("the label is empty")
    if label != label.strip():
        raise TaskError(f"label {label!r} begins or ends with a blank; remove it")


def _mapping_input(kind: str, value: Mapping, expected: str) -> object:
    if kind != "classification":
        key = "tokens" if kind == "tagging" else "source"
        if key not in value:
            raise TaskError(f"expected {expected}; the dict has no {key!r}")
        return value[key]
    if "text" not in value:
        raise TaskError(f"expected {expected}; the dict has no 'text'")
    second = [value[key] for key in SECOND_FIELDS if key in value]
    return (value["text"], *second)


def _expected(kind: str, pair: bool | None) -> str:
    if kind == "tagging":
        return "a list of words, or a text to be split at blanks"
    if kind == "generation":
        return "a source text"
    return {None: "a text or (text, pair)", True: "two fields, (text, pair)", False: "one text"}[pair]


def _shown(value: object) -> str:
    shown = repr(value)
    return f"{type(value).__name__} {shown if len(shown) <= 40 else shown[:39] + '…'}"
