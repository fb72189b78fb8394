"""From the bytes of a request to what is asked. Whatever the bytes are, the answer is a list or a `Refusal`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NoReturn

from tss.serve.limits import Limits, Refusal

KEYS = ("task", "text", "pair")
SHAPE = '{"task": "name", "text": "…"}, with "pair" for tasks learnt on pairs, or a list of such objects'


@dataclass(frozen=True)
class Asked:
    """One input of one task. text: a text, or the words of a sentence."""

    task: str
    text: str | list[str]
    pair: str | None

    @property
    def size(self) -> int:
        """Characters; a blank between words counts, so that a list of empty words is not free."""
        text = len(self.text) if isinstance(self.text, str) else sum(len(word) + 1 for word in self.text)
        return text + len(self.pair or "")

    @property
    def value(self) -> Any:
        """As `Learner.predict` takes it."""
        return self.text if self.pair is None else (self.text, self.pair)


def read(body: bytes, limits: Limits) -> tuple[list[Asked], bool]:
    """What is asked, and whether it was asked as a list. Raises Refusal: 400 for what is no JSON, 422 for the rest."""
    found = _json(body)
    if isinstance(found, dict) and "items" in found:
        _known(found, ("items",), "the request")
        found = found["items"]
        if not isinstance(found, list):
            raise Refusal(422, f'"items" must be a list, not {_shown(found)}')
    if not isinstance(found, list):
        return [_one(found, "the request", limits)], False
    if not found:
        raise Refusal(422, "the list is empty; send at least one input")
    if len(found) > limits.items:
        raise Refusal(422, f"{len(found)} inputs in one request; at most {limits.items} are taken, send several")
    return [_one(value, f"input {number}", limits) for number, value in enumerate(found, 1)], True


def _json(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise Refusal(400, f"the request is not UTF-8 (byte {error.start + 1})") from None
    except RecursionError:
        raise Refusal(400, "the request is nested too deeply") from None
    except ValueError as error:
        raise Refusal(400, f"the request is not JSON: {str(error)[:200]}") from None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _one(value: Any, where: str, limits: Limits) -> Asked:
    if not isinstance(value, dict):
        raise Refusal(422, f"{where} is {_shown(value)}; expected {SHAPE}")
    _known(value, KEYS, where)
    task, text, pair = (value.get(key) for key in KEYS)
    if not isinstance(task, str):
        raise Refusal(422, f'{where}: "task" must be the name of a task, not {_shown(task)}')
    words = isinstance(text, list) and all(isinstance(word, str) for word in text)
    if not (isinstance(text, str) or words):
        raise Refusal(422, f'{where}: "text" must be a text, or the words of a sentence as a list, not {_shown(text)}')
    if pair is not None and not isinstance(pair, str):
        raise Refusal(422, f'{where}: "pair" must be a text, not {_shown(pair)}')
    if words and pair is not None:
        raise Refusal(422, f'{where}: "pair" goes with a text, not with a list of words')
    assert text is not None
    found = Asked(task, text, pair)
    if found.size > limits.characters:
        raise Refusal(422, f"{where} has {found.size:,} characters; at most {limits.characters:,} are taken")
    return found


def _known(value: dict[str, Any], keys: tuple[str, ...], where: str) -> None:
    for key in value:
        if key not in keys:
            raise Refusal(422, f"{where} has the unknown key {key[:40]!r}; known: {', '.join(keys)}")


def _shown(value: Any) -> str:
    """What a value is, without repeating it: it may be large."""
    names = {
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "an object",
    }
    return "missing" if value is None else names.get(type(value), type(value).__name__)
