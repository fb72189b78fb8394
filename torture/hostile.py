"""R4: mutated stores and crafted attacks: noticed, refused, nothing run, nothing outside read, no memory wasted.

Everything happens in forked processes, so that a crash of the interpreter would be seen; an audit hook there sees
imports of pickle, processes started and files opened by a full path outside the store.
"""

from __future__ import annotations

import codecs
import json
import os
import random
import resource
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from store_samples import assert_same, family

from torture.attacks import ATTACKS, CANARY
from torture.attacks_on_index import ENCODINGS
from torture.form import Asked, Told, in_child
from tss.errors import StoreError
from tss.store import Store, portable
from tss.store.layout import TaskEntry, encode_index

MEGABYTES = 64
FORBIDDEN = ("pickle.find_class", "os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "exec", "compile")


def _guard(root: Path) -> list[str]:
    """From now on in this process: what it did that reading a store must not do.

    No code is let through for where it says it comes from, so what Python itself imports on the way is imported before.
    """
    for encoding in ENCODINGS:
        codecs.lookup(encoding)  # json imports its codec when a file's first bytes look like that encoding
    seen: list[str] = []

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in FORBIDDEN:
            what = [getattr(one, "co_filename", one) for one in arguments]
            seen.append(f"{event} {what!r:.200}")
        elif event == "open" and isinstance(arguments[0], str) and os.path.isabs(arguments[0]):
            path = arguments[0]
            if not path.startswith((str(root.parent), sys.prefix, sys.base_prefix, "/proc/", "/usr", "/dev/shm/torch")):
                seen.append(f"open {path}")

    sys.addaudithook(hook)
    return seen


def _refused(work: Callable[[], Any]) -> bool:
    try:
        work()
    except StoreError:
        return True
    return False


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _touch_all(root: Path, records: dict) -> str:
    """Use every part of a store; what was refused. A task that is answered must be what it was."""
    store = Store.open(root)
    damaged = store.damage()
    refused = [f"damage {len(damaged)}"] if damaged else []
    for name, one in records.items():
        try:
            found = store.read(name)
        except StoreError:
            refused.append(name)
            continue
        assert_same(found, one)
    if _refused(store.read_shared):
        refused.append("shared")
    if store.running.load() is None and store.running.problem:
        refused.append("checkpoint")
    return " ".join(refused)


def _crafted(asked: Asked, told: Told, start: Path, records: dict) -> int:
    calls: dict[str, Callable[[Store], Any]] = {
        "all": lambda store: store.read("a"),
        "write": lambda store: store.writing().__enter__(),
    }
    for name, spoil in ATTACKS.items():
        home = asked.folder / "attack"
        home.mkdir()
        root = shutil.copytree(start, home / "store")

        def child(root: Path = root, spoil: Callable[[Path], str] = spoil) -> None:
            target = spoil(root)
            largest = max((p.stat().st_size for p in root.rglob("*") if p.is_file()), default=0)
            seen, before, began = _guard(root), _memory(), time.monotonic()
            if target == "open":
                assert _refused(lambda: Store.open(root)), "it was opened"
            elif target.startswith("import "):
                file = root.parent / target.split()[1]
                assert _refused(lambda: portable.read(file)), "it was imported"
            elif target == "checkpoint":
                running = Store.open(root).running
                assert running.load() is None and running.problem, "the checkpoint was used"
            else:
                store = Store.open(root)
                call = calls.get(target, lambda store: store.read(target))
                assert _refused(lambda: call(store)), f"{target} was not refused"
                if target not in calls:
                    assert_same(store.read("b" if target in "dec" else "e"), records["b" if target in "dec" else "e"])
            grown, seconds = _memory() - before, time.monotonic() - began
            assert not seen, f"it did {seen}"
            assert grown <= min(largest, 64 << 20) + (MEGABYTES << 20), f"{grown:,} bytes more memory"
            assert seconds < 5, f"{seconds:.1f} seconds"

        try:
            ended = in_child(child)
            told.check(ended == 0, f"attack {name!r}: the process ended with {ended}; see above")
        finally:
            told.check(not (home / CANARY).exists(), f"attack {name!r} ran its code")
            shutil.rmtree(home)
    return len(ATTACKS)


def _mutant(blob: bytes, other: bytes, dice: random.Random) -> bytes:
    """Flips, cuts, additions, doublings, blanks and parts of another file; never the same bytes."""
    place, end = sorted(dice.randrange(len(blob) + 1) for _ in range(2))
    kind = dice.randrange(8)
    if kind <= 2:
        out = bytearray(blob)
        for _ in range(1 if kind < 2 else dice.randrange(2, 30)):
            out[dice.randrange(len(out))] ^= 1 << dice.randrange(8)
        new = bytes(out)
    elif kind == 3:
        new = blob[:place]
    elif kind == 4:
        new = blob + dice.randbytes(dice.randrange(1, 100))
    elif kind == 5:
        new = blob[:place] + blob[end:]
    elif kind == 6:
        new = blob[:place] + bytes(end - place) + blob[end:]
    else:
        new = blob[:place] + other[place:end] + blob[end:]
    return new if new != blob else blob + b"\0"


def _structured(store: Store, dice: random.Random) -> bytes:
    """An index that is intact by its checksum, with one field of one entry, or of itself, made into something else."""
    index = store.index()
    odd = [None, -1, 0, 10**30, 1.5, float("inf"), "", "../../x", "a\0b", [], {}, True, ["x"], "tasks/1-0.safetensors"]
    value = dice.choice(odd)
    if dice.random() < 0.2:
        changed = replace(index, **{dice.choice(["format", "identity", "shared", "next_id"]): value})
    else:
        place = dice.randrange(len(index.tasks))
        entry = replace(index.tasks[place], **{dice.choice(list(TaskEntry.__dataclass_fields__)): value})
        changed = replace(index, tasks=(*index.tasks[:place], entry, *index.tasks[place + 1 :]))
    return encode_index(changed)


def _mutants(asked: Asked, root: Path, records: dict, count: int, seed: int, report: Path) -> None:
    """In a child: so many mutants of the files of one store; writes what it saw to `report`."""
    dice, store = random.Random(seed), Store.open(root)
    carried = portable.pack(portable.Carried(records["a"], 1, {"seed": 1}))
    with store.writing():
        store.running.save({"x": records["a"].tensors["head.weight"]}, {"step": 1})
    files = sorted(p for p in root.rglob("*") if p.is_file() and p.name not in ("lock", "index.backup.json"))
    good = {path: path.read_bytes() for path in files}
    seen = _guard(root)
    done = noticed = tolerated = 0
    largest, before = max(map(len, good.values())), _memory()
    problems: list[str] = []
    while done < count and asked.in_time() and len(problems) < 5:
        done += 1
        path = dice.choice(files)
        if dice.random() < 0.1:
            try:
                portable.unpack(_mutant(carried, good[path], dice))
                problems.append("a changed export was taken")
            except ValueError:
                noticed += 1
            continue
        by_structure = path.name == "index.json" and dice.random() < 0.5
        new = _structured(store, dice) if by_structure else _mutant(good[path], good[dice.choice(files)], dice)
        path.write_bytes(new)
        try:
            refused = _touch_all(root, records)
        except StoreError as error:
            refused = str(error)
        except Exception as error:  # an assertion: a task was answered, but is not what it was
            problems.append(f"{path.name}: {type(error).__name__}: {error}")
            refused = "wrong"
        noticed += bool(refused)
        tolerated += not refused
        if not refused and not by_structure and new != good[path]:
            problems.append(f"a change of {path.name} was not noticed")
        path.write_bytes(good[path])
    grown = _memory() - before
    if grown > largest + (MEGABYTES << 20):
        problems.append(f"{grown:,} bytes more memory")
    problems += [f"it did {one}" for one in seen]
    numbers = {"done": done, "noticed": noticed, "harmless": tolerated, "grown": grown, "problems": problems}
    report.write_text(json.dumps(numbers))


def run(asked: Asked) -> Told:
    told = Told("files of a store mutated (bits, cuts, swaps, by structure), and crafted attacks, each in a process")
    made, records = family(asked.folder / "start", count=160)
    attacks = _crafted(asked, told, made.path, records)
    sums = {"done": 0, "noticed": 0, "harmless": 0}
    grown = 0
    while sums["done"] < asked.files and asked.in_time():
        root = shutil.copytree(made.path, asked.folder / "inner" / "store")
        report = asked.folder / "report.json"
        count = min(1000, asked.files - sums["done"])
        seed = asked.seed + sums["done"]
        ended = in_child(lambda r=root, c=count, s=seed, to=report: _mutants(asked, r, records, c, s, to))
        shutil.rmtree(root.parent)
        if not told.check(ended == 0, f"mutants from seed {seed}: the process ended with {ended}"):
            break
        found = json.loads(report.read_text())
        for problem in found["problems"]:
            told.check(False, f"mutants from seed {seed}: {problem}")
        sums = {key: sums[key] + found[key] for key in sums}
        grown = max(grown, found["grown"])
    told.whole = sums["done"] == asked.files
    told.numbers = {"mutated": sums["done"], "refused": sums["noticed"], "harmless by structure": sums["harmless"]}
    told.numbers |= {"attacks": attacks, "most memory added (MB)": round(grown / 1e6, 1)}
    return told
