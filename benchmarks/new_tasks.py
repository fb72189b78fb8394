"""Nine tasks that are not among the forty: the benchmark's texts with other questions asked of them.

    python benchmarks/new_tasks.py DATA NEW            # from what `tss data prepare` wrote: folders, and NEW/order.txt
    tss bench run --data DATA --out RUNS --sequences NEW/order.txt --orders 0-2 --backbone bart-nano \\
        --methods tss,tss+,supsup,one-adapter
    python benchmarks/new_tasks.py --runs RUNS         # a table: tasks x methods, mean over the orders

No method's settings were chosen on them. Similar pairs: aspects of laptops and of restaurants are tagged in reviews,
names of any type in news and in tweets, and what a hotel's or a restaurant's system says becomes the act it means.
The other three have no relative: which product a review is about, which site it is from, which domain a reply is of.

NEW/questions.txt has five more, all answered by yes and no, of which only two ask the same (is it praise?): tasks whose
labels say that they are alike although they are not. NEW/opposites.txt has those two and their opposites (is it a
complaint?): the same labels with the opposite meaning.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

SIZES = {"train": 600, "valid": 100, "test": 300}
TEXTS = {"train": 600, "valid": 100, "test": 100}  # of generation, whose tests take longest
FEW = {"train": 200, "valid": 100, "test": 300}  # of the questions
PRODUCTS = ("canong3", "nokia6610", "creative", "norton", "diaper", "router")
DOMAINS = ("attraction", "hotel", "restaurant", "taxi", "train")
WORD = re.compile(r"\w+|[^\w\s]")
Rows = list[dict]
Read = Callable[[str, str], Rows]  # (task of the benchmark, split) -> its rows


def reader(data: Path) -> Read:
    def read(task: str, split: str) -> Rows:
        lines = (data / task / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    return read


def which(read: Read, split: str, family: str, names: Iterable[str], field: str) -> Rows:
    """Texts of several tasks; the label is the task. A text that two of them have is left out."""
    found = {name: {row[field] for row in read(f"{family}/{name}", split)} for name in names}
    every = [text for texts in found.values() for text in texts]
    return [
        {"text": text, "label": name}
        for name, texts in found.items()
        for text in sorted(texts)
        if every.count(text) == 1
    ]


def aspects(read: Read, split: str, name: str) -> Rows:
    """The words of every sentence with its aspects tagged, all aspects of a sentence in one row."""
    found: dict[str, set[str]] = {}
    for row in read(f"asc/{name}", split):
        found.setdefault(row["text"], set()).add(row["aspect"])
    rows = []
    for text, terms in found.items():
        words = WORD.findall(text)
        low, tags = [word.lower() for word in words], ["O"] * len(words)
        for term in sorted(terms):
            wanted = WORD.findall(term.lower())
            for start in range(len(words) - len(wanted) + 1):
                if wanted and low[start : start + len(wanted)] == wanted:
                    tags[start : start + len(wanted)] = ["B-ASPECT"] + ["I-ASPECT"] * (len(wanted) - 1)
        if words:
            rows.append({"tokens": words, "tags": tags})
    return rows


def names(read: Read, split: str, name: str) -> Rows:
    """Entities of any type are one type."""
    merge = {"B": "B-NAME", "I": "I-NAME", "O": "O"}
    return [
        {"tokens": row["tokens"], "tags": [merge[tag[0]] for tag in row["tags"]]} for row in read(f"ner/{name}", split)
    ]


def acts(read: Read, split: str, name: str) -> Rows:
    """From what is said to what is meant."""
    return [{"source": row["target"], "target": row["source"]} for row in read(f"drg/{name}", split)]


TASKS: dict[str, tuple[str, Callable[[Read, str], Rows]]] = {
    "product": ("classification", lambda read, split: which(read, split, "asc", PRODUCTS, "text")),
    "laptop aspects": ("tagging", lambda read, split: aspects(read, split, "laptop")),
    "hotel acts": ("generation", lambda read, split: acts(read, split, "hotel")),
    "site": ("classification", lambda read, split: which(read, split, "ccd", ("yelp", "amazon"), "text")),
    "news names": ("tagging", lambda read, split: names(read, split, "conll2003")),
    "restaurant aspects": ("tagging", lambda read, split: aspects(read, split, "restaurant")),
    "domain": ("classification", lambda read, split: which(read, split, "drg", DOMAINS, "target")),
    "restaurant acts": ("generation", lambda read, split: acts(read, split, "restaurant")),
    "tweet names": ("tagging", lambda read, split: names(read, split, "btc")),
}


def is_it(read: Read, split: str, yes: str, no: str = "", of: str = "", field: str = "text") -> Rows:
    """Texts of a task whose label is `of`, or all texts of `yes`, against as many others of it, or those of `no`."""
    rows = read(yes, split)
    those = [row[field] for row in rows if not of or row["label"] == of]
    rest = [row[field] for row in (read(no, split) if no else rows) if no or row["label"] != of]
    random.Random(f"{yes} {split}").shuffle(rest)
    both = zip(those, rest, strict=False)
    return [{"text": text, "label": label} for pair in both for text, label in zip(pair, ("yes", "no"), strict=True)]


QUESTIONS: dict[str, tuple[str, Callable[[Read, str], Rows]]] = {
    "praise of places": ("classification", lambda read, split: is_it(read, split, "ccd/yelp", of="positive")),
    "sport": ("classification", lambda read, split: is_it(read, split, "ccd/agnews", of="Sports")),
    "praise of goods": ("classification", lambda read, split: is_it(read, split, "ccd/amazon", of="positive")),
    "hotel": ("classification", lambda read, split: is_it(read, split, "drg/hotel", "drg/restaurant", field="target")),
    "music": ("classification", lambda read, split: is_it(read, split, "ccd/yahoo", of="Entertainment & Music")),
}

PRAISE = ("praise of places", "praise of goods")
OPPOSITES: dict[str, tuple[str, Callable[[Read, str], Rows]]] = {
    **{name: QUESTIONS[name] for name in PRAISE},
    "complaint about places": ("classification", lambda read, split: is_it(read, split, "ccd/yelp", of="negative")),
    "complaint about goods": ("classification", lambda read, split: is_it(read, split, "ccd/amazon", of="negative")),
}


def write(data: Path, out: Path) -> None:
    _write(data, out, TASKS, "order.txt", SIZES)
    _write(data, out, QUESTIONS, "questions.txt", FEW)
    _write(data, out, OPPOSITES, "opposites.txt", FEW)


def _write(data: Path, out: Path, tasks: dict[str, Any], order: str, sizes: dict[str, int]) -> None:
    read = reader(data)
    for name, (kind, made) in tasks.items():
        folder = out / name.replace(" ", "-")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "task.json").write_text(json.dumps({"name": name, "kind": kind}) + "\n", encoding="utf-8")
        for split, size in (TEXTS if kind == "generation" else sizes).items():
            rows = made(read, split)
            random.Random(f"{name} {split}").shuffle(rows)
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows[:size])
            (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")
    (out / order).write_text("".join(f"{name.replace(' ', '-')}\n" for name in tasks), encoding="utf-8")


def table(runs: Path, dev: bool = False) -> list[str]:
    """Mean main scores over orders and seeds, tasks x methods, in Markdown; the last line is the mean of the tasks.

    dev: the best dev scores of the trainings instead of the tests'.
    """
    from tss.bench.collect import read_runs

    found: dict[str, dict[str, list[float]]] = {}
    for run in read_runs(runs).runs:
        for line in run.lines:
            scores = found.setdefault(run.header["label"], {}).setdefault(line["task"], [])
            scores.append(max(at[2] for at in line["curve"]) if dev else next(iter(line["scores"].values())))
    means = {method: {task: fmean(scores) for task, scores in tasks.items()} for method, tasks in found.items()}
    learnt = [task for task in {**TASKS, **QUESTIONS, **OPPOSITES} if any(task in one for one in means.values())]
    rows = [[task, *(f"{one[task]:.1f}" if task in one else "–" for one in means.values())] for task in learnt]
    rows.append(["mean", *(f"{fmean(one.values()):.1f}" for one in means.values())])
    head = [["task", *means], ["---"] * (1 + len(means))]
    return ["| " + " | ".join(row) + " |" for row in [*head, *rows]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--runs", type=Path, help="print what these runs, a folder or a packed file, say")
    parser.add_argument("--dev", action="store_true", help="best dev scores instead of tests")
    args = parser.parse_args()
    if args.runs is not None:
        print("\n".join(table(args.runs, args.dev)))
    elif args.data and args.out:
        write(args.data, args.out)
    else:
        parser.error("give DATA and NEW, or --runs")


if __name__ == "__main__":
    main()
