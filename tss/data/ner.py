"""NER, named entities: CoNLL-2003, WikiGold, Broad Twitter Corpus, RE3D and GUM (one token a line)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from tss.data.recipe import Row, Splits, draws, first_of_each, read_lines

TASKS = ("conll2003", "wikigold", "btc", "re3d", "gum")
TRAIN = 200  # sentences a task, as in the paper
HUB = {"conll2003": "tomaarsen/conll2003"}
HUB_MISSING = "wikigold, re3d and gum (with its entities) are not on the hub, btc only behind a loading script"


def prepare(raw: Path, task: str) -> Splits:
    """The splits of one corpus from its files in `raw/<task>/`."""
    folder = raw / task
    if task == "conll2003":
        train, valid, test = (read_sentences(folder / f"eng.{name}", " ") for name in ("train", "testa", "testb"))
        return _official(train, valid, test)
    if task == "wikigold":
        return _tenths(task, read_sentences(folder / "wikigold.conll.txt", " "), 170)
    if task == "btc":
        rows = [row for name in "abefgh" for row in read_sentences(folder / f"{name}.conll", "\t")]
        return _tenths(task, rows, 934)
    train, test = (read_sentences(folder / f"{task}-{name}.conll", "\t") for name in ("train", "test"))
    draws("ner", task).shuffle(train)
    rest = _different_rest(train, test)
    valid_size = {"re3d": 77, "gum": 250}[task]
    return {"train": rest[valid_size : valid_size + TRAIN], "valid": rest[:valid_size], "test": test}


def same(row: Row) -> tuple[str, ...]:
    """What makes two rows the same example."""
    return tuple(row["tokens"])


def from_hub(task: str, read: Callable[[str], Iterable[Row]]) -> Splits:
    """CoNLL-2003 from the hub: the official files, the same 200 training sentences."""
    splits = []
    for split in ("train", "validation", "test"):
        rows = (row for row in read(split) if row["tokens"] and row["tokens"] != ["-DOCSTART-"])
        splits.append([{"tokens": list(row["tokens"]), "tags": to_bio(row["ner_tags"])} for row in rows])
    return _official(*splits)


def to_bio(tags: list[str]) -> list[str]:
    """Tags in IO, IOB1 or BIO as BIO: an entity starts at `B-`, after `O`, and where the type changes."""
    result, before = [], "O"
    for tag in tags:
        if tag == "O":
            result.append(tag)
        else:
            starts = tag.startswith("B-") or before[2:] != tag[2:]
            result.append(("B-" if starts else "I-") + tag[2:])
        before = tag
    return result


def read_sentences(path: Path, separator: str) -> list[Row]:
    """The sentences of a file of columns: token first, tag last, an empty line after each sentence."""
    sentences: list[list[tuple[str, str]]] = [[]]
    for line in read_lines(path, errors="replace"):
        if line == "":
            sentences.append([])
            continue
        columns = line.split(separator)
        token = columns[0].strip()
        if token and token != "-DOCSTART-":
            sentences[-1].append((token, columns[-1]))
    return [{"tokens": [t for t, _ in s], "tags": to_bio([tag for _, tag in s])} for s in sentences if s]


def _official(train: list[Row], valid: list[Row], test: list[Row]) -> Splits:
    return {"train": _different_rest(train, valid + test)[:TRAIN], "valid": valid, "test": test}


def _tenths(task: str, rows: list[Row], size: int) -> Splits:
    draws("ner", task).shuffle(rows)
    test, rest = rows[:size], _different_rest(rows[size:], rows[:size])
    return {"train": rest[size : size + TRAIN], "valid": rest[:size], "test": test}


def _different_rest(rows: list[Row], taken: list[Row]) -> list[Row]:
    gone = {same(row) for row in taken}
    return first_of_each((row for row in rows if same(row) not in gone), same)
