"""R6: names never become paths: thousands of generated names, every file the process touches watched."""

from __future__ import annotations

import os
import random
import re
import sys
import unicodedata
from pathlib import Path
from typing import Any

from torture.form import Asked, Told
from tss.errors import TaskError
from tss.store import Store, TaskRecord
from tss.tasks.names import check_name

PARTS = ["..", "/", "\\", ".", "~", "-", "con", "NUL", "aux", "é", "e\u0301", "\u202e", "\0", "\n", "\t", " ", "%2e",
         "*", "?", ":", "|", "$(x)", "`x`", ";", "'", '"', "<", "\ud800", "\U0001f600", "ﬁ", "İ", "ß", "tasks",
         "index.json", "lock", "\u200b", "a", "Z", "0", "\x7f", "\ufeff", "file://", "C:", "\\\\server"]  # fmt: skip
EVENTS = ("open", "os.mkdir", "os.rename", "os.remove", "os.listdir", "os.rmdir", "os.link", "os.symlink", "os.chmod")
FILES = r"[0-9]+-[0-9a-f]{32}\.safetensors|index(\.backup)?\.json|lock|[0-9]+\.checkpoint"
OURS = re.compile(rf"(\.tmp-)?({FILES})|tasks|shared|running")


def run(asked: Asked) -> Told:
    told = Told("names of nasty parts go through check_name and a store; an audit hook watches every path touched")
    root, dice = asked.folder / "store", random.Random(asked.seed)
    store = Store.open(root, create=True)
    touched: list[str] = []
    watching = [True]

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if watching[0] and event in EVENTS:
            touched.extend(os.fsdecode(one) for one in arguments[:2] if isinstance(one, (str, bytes)) and len(one) > 1)

    accepted: set[str] = set()
    done = refused = 0
    sys.addaudithook(hook)
    while done < asked.names and asked.in_time():
        batch = []
        for _ in range(min(200, asked.names - done)):
            done += 1
            name = "".join(dice.choice(PARTS) for _ in range(dice.randrange(1, 8))) * dice.choice([1, 1, 1, 1, 50])
            try:
                kept = check_name(name)
            except TaskError:
                refused += 1
                continue
            told.check(kept == unicodedata.normalize("NFC", name), f"{name!r} became {kept!r}")
            if kept not in accepted:
                accepted.add(kept)
                batch.append(kept)
        with store.writing():
            store.add_all([TaskRecord(name, meta={"name": name}) for name in batch])
        again = Store.open(root)
        for name in batch:
            told.check(again.read(name).meta["name"] == name, f"{name!r} does not come back")
    watching[0] = False
    told.check(set(store.index().names()) == accepted, "the list of names is not what was accepted")
    outside = {path for path in touched if not _ours(path, root)}
    told.check(not outside, f"touched outside the store: {sorted(outside)[:5]}")
    told.check(os.listdir(asked.folder) == ["store"], f"made beside the store: {os.listdir(asked.folder)}")
    told.whole = done == asked.names
    told.numbers = {"names": done, "refused": refused, "kept and read back": len(accepted)}
    told.numbers |= {"paths touched": len(touched), "outside": len(outside)}
    return told


def _ours(path: str, root: Path) -> bool:
    known = (str(root), "/proc/", sys.prefix, sys.base_prefix)
    return path.startswith(known) if os.path.isabs(path) else OURS.fullmatch(path) is not None
