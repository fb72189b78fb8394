"""DRG, dialogue replies: five domains of MultiWOZ, from the system's acts to its reply.

The lines of acts and replies do not say which dialogue they come from. Train takes them by domain; valid and test
take the turns of single-domain dialogues, found by their replies.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tss.data.recipe import Row, Splits, draws, first_of_each, key, read_json, read_pairs, squeeze
from tss.errors import TaskError

TASKS = ("taxi", "hotel", "attraction", "train", "restaurant")
TRAIN = {"taxi": 406, "hotel": 1954, "attraction": 298, "train": 569, "restaurant": 3366}
ANY_DOMAIN = {"booking", "general"}
KEPT_INTENTS = {"inform", "recommend", "select"}
BROKEN = (" = ", "none-none", "[")  # replies that the source cut at the wrong place
HOTEL_WORDS = {"hotel", "guesthouse", "room", "rooms", "night", "nights", "stay"}
RESTAURANT_WORDS = {"restaurant", "table", "tables", "dining", "dinner", "lunch"}
HUB: dict[str, str] = {}
HUB_MISSING = "MultiWOZ is on the hub only behind a loading script and without lines of acts and replies"


@dataclass(eq=False)
class Turn:
    """One system turn: its acts with their slots, in order of first appearance, and the reply."""

    acts: dict[str, list[tuple[str, str]]]
    reply: str

    @cached_property
    def source(self) -> str:
        """The acts that the paper keeps, as one string."""
        return " ".join(_written(act, slots) for act, slots in self.acts.items() if _is_kept(act))

    @cached_property
    def domains(self) -> set[str]:
        return {act.split("_")[0] for act in self.acts} - ANY_DOMAIN

    @property
    def row(self) -> Row:
        return {"source": self.source, "target": self.reply}


def prepare(raw: Path, task: str) -> Splits:
    """The splits of one domain from the files in `raw/all/`, which serve all five."""
    folder = raw / "all"
    test = _single_domain(folder, "test", "test", task)
    in_test = {same(row) for row in test}
    valid = [row for row in _single_domain(folder, "dev", "val", task) if same(row) not in in_test]
    train = [turn.row for turn in _turns(folder, "train") if turn.source and _train_domain(turn) == task]
    train = first_of_each(train, same)
    draws("drg", task).shuffle(train)
    held_out = in_test | {same(row) for row in valid}
    train = [row for row in train if same(row) not in held_out][: TRAIN[task]]
    return {"train": train, "valid": valid, "test": test}


def same(row: Row) -> tuple[str, str]:
    """What makes two rows the same example."""
    return row["source"], row["target"]


def _turns(folder: Path, name: str) -> list[Turn]:
    path = folder / f"{name}.src"
    pairs = enumerate(read_pairs(path, folder / f"{name}.trg"), 1)
    turns = (Turn(_acts(acts, f"{path}, line {number}"), squeeze(reply)) for number, (acts, reply) in pairs)
    return [turn for turn in turns if not any(mark in turn.reply for mark in BROKEN)]


def _acts(line: str, where: str) -> dict[str, list[tuple[str, str]]]:
    acts: dict[str, list[tuple[str, str]]] = {}
    for part in line.split(" | ")[1:]:
        match = re.fullmatch(r"(\S+) \( (\S+)-(\S+)(?: = (.*))? \)", part.strip())
        if not match:
            raise TaskError(f"{where}: not an act with a slot: {part!r}; expected 'domain_intent ( slot-1 = value )'")
        act, slot, number, value = match.groups()
        slots = acts.setdefault(act, [])
        if slot != "none":
            # `internet-yes = none` and `choice-1 = none` carry the value where the number should be
            slots.append((slot, number if value in (None, "none") else value))
    return acts


def _is_kept(act: str) -> bool:
    return act in ("booking_book", "booking_nobook") or act.split("_")[1] in KEPT_INTENTS


def _written(act: str, slots: list[tuple[str, str]]) -> str:
    if act == "booking_nobook":
        slots = []
    return f"{act}(" + ",".join(f'{slot}="{_quoted(value)}"' for slot, value in slots) + ")"


def _quoted(value: str) -> str:
    return value.replace('"', "'")


def _train_domain(turn: Turn) -> str | None:
    if turn.domains:
        return next(iter(turn.domains)) if len(turn.domains) == 1 else None
    slots = {slot for kept in turn.acts.values() for slot, _ in kept}
    words = set(turn.reply.split(" "))
    hotel = "stay" in slots or bool(words & HOTEL_WORDS)
    restaurant = "time" in slots or bool(words & RESTAURANT_WORDS)
    if hotel == restaurant:
        return None
    return "hotel" if hotel else "restaurant"


def _single_domain(folder: Path, name: str, official: str, task: str) -> list[Row]:
    """System turns of the single-domain dialogues of `task`, each matched with the first unused line of its reply.

    The dialogues of all domains are walked, since a line of booking or general acts can serve only one of them.
    """
    unused: dict[str, list[Turn]] = {}
    for turn in _turns(folder, name):
        unused.setdefault(_reply_key(turn.reply), []).append(turn)
    rows = []
    for dialogue in read_json(folder / f"single_domain_{official}.json").values():
        domain = next(d for d, goal in dialogue["goal"].items() if goal and d not in ("message", "topic"))
        for entry in dialogue["log"][1::2]:  # the user begins
            candidates = unused.get(_reply_key(entry["text"]), [])
            found = next((turn for turn in candidates if turn.domains <= {domain}), None)
            if found is None:
                continue
            candidates.remove(found)
            if domain == task and found.source:
                rows.append(found.row)
    return rows


def _reply_key(reply: str) -> str:
    return key(reply.replace("&", "and"))
