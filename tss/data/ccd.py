"""CCD, text classes: Yahoo, AG News, Amazon, DBpedia and Yelp, a few hundred texts a class from several sources."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

from tss.data.recipe import (
    Row,
    Splits,
    clean,
    draws,
    first_of_each,
    key,
    read_json,
    read_lines,
    read_text,
    renamed,
)
from tss.errors import TaskError

TASKS = ("yahoo", "agnews", "amazon", "dbpedia", "yelp")
# texts a class, for train and valid together, and for test
SIZES = {"yahoo": (500, 484), "agnews": (496, 439), "amazon": (499, 499), "dbpedia": (495, 482), "yelp": (500, 492)}
POLARITY = {"very negative": "negative", "negative": "negative", "positive": "positive", "very positive": "positive"}
AGNEWS = {name: name for name in ("World", "Sports", "Business")} | {"Science or Technology": "Sci/Tech"}
DBPEDIA = (
    "Artist", "Company", "OfficeHolder", "Building", "Village", "Plant", "EducationalInstitution", "Animal", "Album",
    "WrittenWork", "NaturalPlace", "MeanOfTransportation", "Athlete", "Film",
)  # numbers 1 to 14 of the second source  # fmt: skip
DBPEDIA_NAMES = {name.lower(): name for name in DBPEDIA} | {"thlete": "Athlete"}
YAHOO = {
    "society and culture": "Society & Culture",
    "science": "Science & Mathematics",
    "health": "Health",
    "education and reference": "Education & Reference",
    "computers and internet": "Computers & Internet",
    "sports": "Sports",
    "business": "Business & Finance",
    "entertainment and Music": "Entertainment & Music",
    "family and relationships": "Family & Relationships",
    "politics and government": "Politics & Government",
}  # in the order of the numbers 0 to 9 of the second source
YAHOO_NUMBERS = {str(number): name for number, name in enumerate(YAHOO.values())}
LFPT5_FILES = tuple(
    f"{folder}/{split}.txt" for folder in ("0_42", "1_142", "2_242") for split in ("train", "valid", "test")
)
HUB = {
    "yahoo": "community-datasets/yahoo_answers_topics",
    "agnews": "fancyzhx/ag_news",
    "amazon": "fancyzhx/amazon_polarity",
    "dbpedia": "fancyzhx/dbpedia_14",
    "yelp": "fancyzhx/yelp_polarity",
}
HUB_MISSING = ""
HUB_TEXT = {
    "yahoo": ("question_title", "question_content", "best_answer"),
    "agnews": ("text",),
    "amazon": ("title", "content"),
    "dbpedia": ("title", "content"),
    "yelp": ("text",),
}


def prepare(raw: Path, task: str) -> Splits:
    """The splits of one task from its files in `raw/<task>/`."""
    generator = draws("ccd", task)
    train, test = READERS[task](raw / task, generator)
    return _finish(task, train, test, generator)


def same(row: Row) -> str:
    """What makes two rows the same example."""
    return key(row["text"])


def from_hub(task: str, read: Callable[[str], Iterable[Row]]) -> Splits:
    """One task from the official sets on the hub, drawn by the same recipe; the rows are others than from raw."""
    label = {"yahoo": "topic"}.get(task, "label")
    names = {"1": "negative", "2": "positive"} if task == "yelp" else {}
    pools = []
    for split, size in zip(("train", "test"), SIZES[task], strict=True):
        rows, seen = [], Counter[str]()
        for row in read(split):
            seen[row[label]] += 1
            if seen[row[label]] <= 2 * size:  # enough for a draw; the whole sets have up to 3.6 million texts
                text = clean(" ".join(row[field] for field in HUB_TEXT[task]))
                rows.append({"text": text, "label": names.get(row[label], row[label])})
        pools.append(rows)
    train, test = _pools(*pools)
    return _finish(task, train, test, draws("ccd", task))


def _finish(task: str, train: list[Row], test: list[Row] | None, generator: Random) -> Splits:
    """Draw n a class from each pool, shuffle both draws, and take the first tenth of train as valid.

    Without a test pool, test is drawn from what the training draw leaves.
    """
    drawn, left = _draw(train, SIZES[task][0], generator)
    tested, _ = _draw(left if test is None else test, SIZES[task][1], generator)
    generator.shuffle(drawn)
    generator.shuffle(tested)
    tenth = -(-len(drawn) // 10)
    return {"train": drawn[tenth:], "valid": drawn[:tenth], "test": tested}


def _draw(pool: list[Row], size: int, generator: Random) -> tuple[list[Row], list[Row]]:
    """The first `size` of each class after a shuffle, classes in alphabetical order, and what is left."""
    drawn, left = [], []
    for rows in _by_class(pool).values():
        generator.shuffle(rows)
        drawn += rows[:size]
        left += rows[size:]
    return drawn, left


def _by_class(rows: list[Row]) -> dict[str, list[Row]]:
    classes: dict[str, list[Row]] = {label: [] for label in sorted({row["label"] for row in rows})}
    for row in rows:
        classes[row["label"]].append(row)
    return classes


def _pools(train: list[Row], test: list[Row]) -> tuple[list[Row], list[Row]]:
    """Both without repeats, and train without what is in test."""
    test = first_of_each(test, same)
    gone = {same(row) for row in test}
    return first_of_each((row for row in train if same(row) not in gone), same), test


def _titled(path: Path, names: dict[str, str]) -> list[tuple[str, str, str]]:
    """(title, text, label) of each entry of an O-LoRA file; the title is empty in yelp."""
    entries = []
    for number, entry in enumerate(read_json(path)):
        match = re.fullmatch(r"(?:Title: (.*?)\n)?Text: (.*)\n", entry["sentence"], re.DOTALL)
        if not match:
            raise TaskError(f"{path}, entry {number}: expected 'Title: ...\\nText: ...\\n' in 'sentence'")
        entries.append((match[1] or "", match[2], renamed(names, entry["label"], path)))
    return entries


def _olora_rows(path: Path, names: dict[str, str]) -> list[Row]:
    return [{"text": clean(f"{title} {text}"), "label": label} for title, text, label in _titled(path, names)]


def _lfpt5(folder: Path, names: dict[str, str]) -> list[tuple[str, str]]:
    """(text, label) of each line of the nine files of LFPT5."""
    pairs = []
    for path in (folder / name for name in LFPT5_FILES):
        for line in read_lines(path):
            text, _, label = line.rpartition("\t")
            pairs.append((text, renamed(names, label, path)))
    return pairs


def _agnews(folder: Path, _: Random) -> tuple[list[Row], list[Row]]:
    return _pools(_olora_rows(folder / "train.json", AGNEWS), _olora_rows(folder / "test.json", AGNEWS))


def _amazon(folder: Path, _: Random) -> tuple[list[Row], list[Row]]:
    return _pools(_olora_rows(folder / "train.json", POLARITY), _olora_rows(folder / "test.json", POLARITY))


def _yelp(folder: Path, _: Random) -> tuple[list[Row], None]:
    """One pool serves both draws: the test file could not be had."""
    return first_of_each(_olora_rows(folder / "train.json", POLARITY), same), None


def _dbpedia(folder: Path, _: Random) -> tuple[list[Row], list[Row]]:
    """Train is all of LFPT5, then DHIM until a class is full, without abstracts that test has under any title."""
    spaced = {re.sub("(?<=.)([A-Z])", r" \1", name).replace(" Of ", " of "): name for name in DBPEDIA}
    titled = _titled(folder / "test.json", spaced)
    test = first_of_each(({"text": clean(f"{t} {text}"), "label": label} for t, text, label in titled), same)
    gone = {same(row) for row in test} | {key(clean(text)) for _, text, _ in titled}
    train: list[Row] = []
    abstracts = set()
    for text, label in _lfpt5(folder, DBPEDIA_NAMES):
        abstract = key(clean(text.partition("  ")[2]))
        row = {"text": clean(text), "label": label}
        if same(row) not in gone and abstract not in gone:
            abstracts.add(abstract)
            train.append(row)
    classes = _by_class(first_of_each(train, same))
    gone |= abstracts | {same(row) for row in train}
    for number, text in csv.reader(io.StringIO(read_text(folder / "val.csv"), newline="")):
        row = {"text": clean(text), "label": DBPEDIA[int(number) - 1]}
        if same(row) not in gone and len(classes[row["label"]]) < SIZES["dbpedia"][0]:
            gone.add(same(row))
            classes[row["label"]].append(row)
    return [row for rows in classes.values() for row in rows], test


def _yahoo(folder: Path, generator: Random) -> tuple[list[Row], list[Row]]:
    """Train is LFPT5 filled up to 500 a class from the test source; test is what that leaves."""
    train = first_of_each(({"text": clean(t), "label": label} for t, label in _lfpt5(folder, YAHOO)), same)
    path = folder / "test.csv"
    lines = (line.partition("\t") for line in read_lines(path))
    second = ({"text": clean(text), "label": renamed(YAHOO_NUMBERS, number, path)} for number, _, text in lines)
    gone = {same(row) for row in train}
    rest = first_of_each((row for row in second if same(row) not in gone), same)
    classes, test = _by_class(train), []
    for label, rows in _by_class(rest).items():
        generator.shuffle(rows)
        missing = max(0, SIZES["yahoo"][0] - len(classes[label]))
        classes[label] += rows[:missing]
        test += rows[missing:]
    return [row for rows in classes.values() for row in rows], test


READERS: dict[str, Callable[[Path, Random], tuple[list[Row], list[Row] | None]]] = {
    "yahoo": _yahoo,
    "agnews": _agnews,
    "amazon": _amazon,
    "dbpedia": _dbpedia,
    "yelp": _yelp,
}
