"""The grammar of the demo's tasks: from word lists and sentence patterns to labelled examples.

A writer draws one scene at a time and gives the scene's examples; the label is a function of what was written. The
word lists are the `facts/demo/*.ini` files. In training a domain shows only its own window of the words that it shares
with the other domains of its family; valid and test draw from all of them.
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
    aspects, openings = lists[domain]["aspects"], lists[domain]["openings"]

    def clause(rng: Random, training: bool, aspect: str, polarity: str) -> str:
        form = rng.choices(("plain", "negated", "verb", "idiom"), (7, 1, 2, 2))[0]
        said = POLARITIES[1 - POLARITIES.index(polarity)] if form == "negated" else polarity
        shown = share.of if training else tuple

        def pick(kind: str) -> str:
            own = f"{said}{kind}"
            if own in lists[domain] and rng.random() < 0.15:
                return rng.choice(lists[domain][own])
            return rng.choice(shown(lists["opinion"][own]))

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

    def write(rng: Random, training: bool) -> Scene:
        polarity, scene = rng.choice(POLARITIES), rng.choices(("single", "contrast", "agree"), (16, 2, 2))[0]
        first, second = rng.sample(aspects, 2)
        opposite = POLARITIES[1 - POLARITIES.index(polarity)]
        text = clause(rng, training, first, polarity)
        if scene != "single":
            other = clause(rng, training, second, opposite if scene == "contrast" else polarity)
            text = rng.choice(lists["joins"][scene]).format(first=text, second=other)
        if rng.random() < 0.3:
            text = f"{rng.choice(openings)} . {text}"
        text = tidy(f"{text} .")
        examples = [Example((text, first), polarity)]
        if scene == "contrast":
            examples.append(Example((text, second), opposite))
        return Scene(text, examples)

    return write


def entity_writer(domain: str, share: Share) -> Writer:
    """words -> BIO tags of persons, places and organisations; a third of the sentences have no capital letters."""
    lists = lexicon("entities")

    def source(rng: Random, training: bool, key: str) -> tuple[str, ...]:
        if rng.random() < 0.4:
            return lists[domain][key]
        return share.of(lists["shared"][key]) if training else lists["shared"][key]

    def name(rng: Random, training: bool, slot: str) -> str:
        shown = share.of if training else tuple

        def pick(key: str) -> str:
            return rng.choice(shown(lists["names"][key]))

        if slot == "person":
            return rng.choice(("{first} {last}", "{first} {last}", "{last}", "{first}")).format(
                first=pick("first"), last=pick("last")
            )
        if slot == "place" and rng.random() < 0.8:
            return pick("places")
        forms = lists["names"]["landforms"] if slot == "place" else source(rng, training, "organisations")
        return rng.choice(forms).format(place=pick("places"), last=pick("last"))

    def write(rng: Random, training: bool) -> Scene:
        tokens: list[str] = []
        tags: list[str] = []
        for token in rng.choice(source(rng, training, "patterns")).split():
            kind = {"{person}": "PER", "{place}": "LOC", "{organisation}": "ORG"}.get(token)
            if kind is None:
                tokens.append(rng.choice(lists["names"]["days"]) if token == "{day}" else token)
                tags.append("O")
                continue
            if kind == "PER" and rng.random() < 0.15:
                tokens.append(rng.choice(lists["names"]["titles"]))
                tags.append("O")
            parts = name(rng, training, token[1:-1]).split()
            tokens += parts
            tags += [f"B-{kind}"] + [f"I-{kind}"] * (len(parts) - 1)
        if rng.random() < 0.35:
            tokens = [token.lower() for token in tokens]
        return Scene(" ".join(tokens).lower(), [Example(tuple(tokens), tuple(tags))])

    return write


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
