"""The grammar of the demo's tasks: from word lists and sentence patterns to labelled examples.

A writer draws one scene at a time and gives the scene's examples; the label is a function of what was written. Words
and patterns are in `facts/demo/*.ini`. In training a domain shows only its own window of the words that it shares with
the other domains of its family; valid and test draw from all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from configparser import ConfigParser
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from random import Random
from typing import NamedTuple

from tss.tasks.task import Example

POLARITIES = ("positive", "negative")
ENTITY_TAGS = ("O", *(f"{place}-{kind}" for kind in ("LOC", "ORG", "PER") for place in "BI"))


class Scene(NamedTuple):
    """What a writer writes at once: a text, and every example made of it."""

    text: str
    examples: list[Example]


Writer = Callable[[Random, bool], Scene]  # (randomness, is it for training?)
Shown = Callable[[tuple[str, ...]], tuple[str, ...]]  # a family's words -> those that this split may use


@dataclass(frozen=True)
class Share:
    """The part of a family's words that one domain shows in training: a window over `width` of them.

    The windows of a family's domains begin at even distances, so together they cover every word if width >= 1/domains.
    """

    index: int
    domains: int
    width: float

    @cache  # noqa: B019 (a handful of shares, each for the life of the process)
    def of(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """The domain's window of `words`."""
        shuffled = sorted(words)
        Random("demo-share").shuffle(shuffled)
        start, size = self.index * len(words) // self.domains, round(self.width * len(words))
        return tuple(shuffled[(start + i) % len(words)] for i in range(size))


@cache
def lexicon(name: str) -> dict[str, dict[str, tuple[str, ...]]]:
    """section -> key -> words or patterns of `facts/demo/<name>.ini`.

    A value that begins on its key's line is a list of words separated by commas; one that begins on the next line
    holds a pattern a line.
    """
    parser = ConfigParser(interpolation=None)
    parser.read_string(files("tss.data").joinpath("facts", "demo", f"{name}.ini").read_text(encoding="utf-8"))
    return {section: {key: _entries(value) for key, value in parser.items(section)} for section in parser.sections()}


def _entries(value: str) -> tuple[str, ...]:
    separator = "\n" if value.startswith("\n") else ","
    return tuple(" ".join(entry.split()) for entry in value.split(separator) if entry.strip())


def tidy(text: str) -> str:
    """Written English from spaced tokens: no blank before punctuation, a capital at the start of a sentence, `I`."""
    text = re.sub(r"\ba (?=[aeiou])(?!use)", "an ", text)
    text = re.sub(r"\bi\b", "I", re.sub(r" ([,.;:?!])", r"\1", text))
    return re.sub(r"(^|[.?!] )([a-z])", lambda found: found[1] + found[2].upper(), text)


def sentiment_writer(domain: str, share: Share) -> Writer:
    """(text, aspect) -> positive or negative. In some scenes two aspects differ, and both are asked for."""
    lists = lexicon("sentiment")

    def write(rng: Random, training: bool) -> Scene:
        shown = share.of if training else tuple
        polarity, scene = rng.choice(POLARITIES), rng.choices(("single", "contrast", "agree"), (16, 2, 2))[0]
        first, second = rng.sample(lists[domain]["aspects"], 2)
        text = _clause(rng, domain, shown, first, polarity)
        if scene != "single":
            other = _clause(rng, domain, shown, second, _opposite(polarity) if scene == "contrast" else polarity)
            text = rng.choice(lists["joins"][scene]).format(first=text, second=other)
        if rng.random() < 0.3:
            text = f"{rng.choice(lists[domain]['openings'])} . {text}"
        text = tidy(f"{text} .")
        examples = [Example((text, first), polarity)]
        if scene == "contrast":
            examples.append(Example((text, second), _opposite(polarity)))
        return Scene(text, examples)

    return write


def _opposite(polarity: str) -> str:
    return POLARITIES[1 - POLARITIES.index(polarity)]


def _clause(rng: Random, domain: str, shown: Shown, aspect: str, polarity: str) -> str:
    """What somebody thinks of one aspect; a negation says the opposite word."""
    lists = lexicon("sentiment")
    form = rng.choices(("plain", "negated", "verb", "idiom"), (7, 1, 2, 2))[0]
    said = _opposite(polarity) if form == "negated" else polarity

    def pick(kind: str) -> str:
        if said + kind in lists[domain] and rng.random() < 0.15:
            return rng.choice(lists[domain][said + kind])
        return rng.choice(shown(lists["opinion"][said + kind]))

    pattern = rng.choice(lists["clauses"][form])
    while "{word}" in pattern:
        word = pick("")
        pattern = pattern if word in pattern else pattern.replace("{word}", word, 1)
    return pattern.format(
        aspect=aspect,
        degree=rng.choice(lists["opinion"]["degrees"]),
        negation=rng.choice(lists["opinion"]["negations"]),
        verb=pick("_verbs"),
        idiom=pick("_idioms"),
    )


def entity_writer(domain: str, share: Share) -> Writer:
    """words -> BIO tags of persons, places and organisations; a third of the sentences have no capital letters."""
    lists = lexicon("entities")

    def write(rng: Random, training: bool) -> Scene:
        shown = share.of if training else tuple
        tokens: list[str] = []
        tags: list[str] = []
        for token in rng.choice(_own_or_shared(rng, domain, shown, "patterns")).split():
            kind = {"{person}": "PER", "{place}": "LOC", "{organisation}": "ORG"}.get(token)
            if kind is None:
                tokens.append(rng.choice(lists["names"]["days"]) if token == "{day}" else token)
                tags.append("O")
                continue
            if kind == "PER" and rng.random() < 0.15:
                tokens.append(rng.choice(lists["names"]["titles"]))
                tags.append("O")
            parts = _name(rng, domain, shown, kind).split()
            tokens += parts
            tags += [f"B-{kind}"] + [f"I-{kind}"] * (len(parts) - 1)
        if rng.random() < 0.35:
            tokens = [token.lower() for token in tokens]
        return Scene(" ".join(tokens).lower(), [Example(tuple(tokens), tuple(tags))])

    return write


def _own_or_shared(rng: Random, domain: str, shown: Shown, key: str) -> tuple[str, ...]:
    lists = lexicon("entities")
    return lists[domain][key] if rng.random() < 0.4 else shown(lists["shared"][key])


def _name(rng: Random, domain: str, shown: Shown, kind: str) -> str:
    """The name of a person, a place or an organisation."""
    lists = lexicon("entities")

    def pick(key: str) -> str:
        return rng.choice(shown(lists["names"][key]))

    if kind == "PER":
        form = rng.choice(("{first} {last}", "{first} {last}", "{last}", "{first}"))
        return form.format(first=pick("first"), last=pick("last"))
    if kind == "LOC" and rng.random() < 0.8:
        return pick("places")
    forms = lists["names"]["landforms"] if kind == "LOC" else _own_or_shared(rng, domain, shown, "organisations")
    return rng.choice(forms).format(place=pick("places"), last=pick("last"))


def topic_labels(domain: str) -> tuple[str, ...]:
    """The labels of a topic task."""
    return lexicon("topics")[domain]["labels"]


def topic_writer(domain: str, share: Share) -> Writer:
    """text -> the topic whose words it uses."""
    lists = lexicon("topics")
    labels = topic_labels(domain)

    def write(rng: Random, training: bool) -> Scene:
        label = rng.choice(labels)
        nouns = lists[domain][label]
        pattern = rng.choice(lists[domain]["patterns"])
        for noun in rng.sample(share.of(nouns) if training else nouns, pattern.count("{noun}")):
            pattern = pattern.replace("{noun}", noun, 1)
        text = tidy(pattern)
        return Scene(text, [Example((text,), label)])

    return write


def reply_writer() -> Writer:
    """A dialogue act such as `hotel_inform(name="x",area="north")` -> what the system says."""
    lists = lexicon("dialogue")
    pairs = [line.split(" => ") for line in lists["replies"]["pairs"]]

    def write(rng: Random, training: bool) -> Scene:
        slots = {key: rng.choice(lists["values"][key]) for key in lists["values"]}
        act, reply = rng.choice(pairs)
        source = act.format(**slots)
        return Scene(source, [Example((source,), tidy(reply.format(**slots)))])

    return write


def summary_writer() -> Writer:
    """A chat of three to five turns -> who meets where and when, and who brings what."""
    lists = lexicon("summary")

    def write(rng: Random, training: bool) -> Scene:
        slots = {key: rng.choice(lists["values"][key]) for key in ("place", "time", "item")}
        slots["a"], slots["b"] = rng.sample(lists["values"]["person"], 2)
        slots["day"], slots["wrong"] = rng.sample(lists["values"]["day"], 2)
        turns = rng.choice((["greeting"], ["greeting", "answer"], []))
        turns += rng.choice((["meet", "agree"], ["meet", "agree"], ["meet_wrong", "refuse", "accept"]))
        ending = rng.choice(("plain", "bring")) if len(turns) < 5 else "plain"
        turns += ["bring"] if ending == "bring" else []
        chat = tidy(" ".join(rng.choice(lists["chat"][turn]) for turn in turns).format(**slots))
        return Scene(chat, [Example((chat,), tidy(lists["summary"][ending][0].format(**slots)))])

    return write
