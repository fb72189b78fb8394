"""Does TSS+ transfer where tasks are similar? The 17 small ASC tasks cross-validated, with nine times the tests.

    python benchmarks/asc_folds.py write DATA FOLDS   # from what `tss data prepare` wrote: folders, FOLDS/fold0.txt …
    tss bench run --data DATA --out RUNS --sequences FOLDS/fold0.txt,FOLDS/fold1.txt,… --orders 0 \\
        --methods tss+,supsup,one-adapter,tss
    python benchmarks/asc_folds.py collect RUNS… FOLDS --out results/folds/bart-mini.jsonl.xz
    python benchmarks/asc_folds.py lines results/folds/bart-mini.jsonl.xz   # a table

In the benchmark these tasks have tests of 15 to 85 rows, with which three points of macro-F1 are noise. Here the rows
of train and valid (the benchmark's tests stay unread) are cut into five folds by text; fold k is the test of its own
sequence, a tenth of the other texts is valid, the rest train. Laptop and restaurant are learnt as they are. Fold k has
the tasks in order k of ASC. A task's score is its macro-F1 over all its rows, each answered in the fold that held it
out. Intervals: texts drawn anew 1,000 times within each task, the same ones for all methods. Stores that are still in
RUNS and whose tasks change by `tss revisit` are also asked as they answer then, as a method of its own.
"""

from __future__ import annotations

import argparse
import json
import lzma
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tss.bench.collect import Runs, read_runs
from tss.bench.examples import Sums
from tss.data.sequences import sequence, task_settings
from tss.randomness import shuffler

FOLDS, DRAWS = 5, 1000
AGAIN, BOUND = "TSS+, revisited", "MTL (Adapter)"
LARGE = ("asc/laptop", "asc/restaurant")
SMALL = tuple(task for task in sorted(sequence("asc")) if task not in LARGE)
Row = dict[str, str]
Line = dict[str, Any]
Answers = dict[str, tuple[list[str], Sums]]  # by task: the text of each row, and what its answers count


def folds(rows: Iterable[Row], task: str) -> list[dict[str, list[Row]]]:
    """The splits of each fold; rows of one text stay together."""
    texts: dict[str, list[Row]] = {}
    for row in rows:
        texts.setdefault(row["text"], []).append(row)
    order = sorted(texts)
    shuffler("asc folds", task).shuffle(order)
    out = []
    for k in range(FOLDS):
        rest = [text for i, text in enumerate(order) if i % FOLDS != k]
        parts = {"test": order[k::FOLDS], "valid": rest[::10], "train": [t for i, t in enumerate(rest) if i % 10]}
        out.append({split: [row for text in chosen for row in texts[text]] for split, chosen in parts.items()})
    return out


def write(data: Path, out: Path) -> None:
    for task in SMALL:
        every = [row for split in ("train", "valid") for row in read(data / task / f"{split}.jsonl")]
        labels = task_settings(task).labels
        for k, splits in enumerate(folds(every, task)):
            folder = out / f"fold{k}" / task.split("/")[1]
            folder.mkdir(parents=True, exist_ok=True)
            described = {"name": task, "kind": "classification", "labels": labels, "family": "asc"}
            (folder / "task.json").write_text(json.dumps(described) + "\n", encoding="utf-8")
            for split, rows in splits.items():
                text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
                (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")
    for k in range(FOLDS):
        lines = [task if task in LARGE else f"fold{k}/{task.split('/')[1]}" for task in sequence("asc", k)]
        (out / f"fold{k}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def read(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def collect(runs: Runs, out: Path, stores: Path | None = None) -> list[Line]:
    """What each method answered to the rows of each fold when it had just learnt the task; texts become numbers.

    stores: where those of the runs are, for what they answer once revisited.
    """
    found = []
    for run in runs.runs:
        told = [(about["name"], Path(about["ref"]).parent.name) for about in run.header["tasks"][: len(run.lines)]]
        for (task, fold), line in zip(told, run.lines, strict=True):
            if task in SMALL:
                found.append({**_about(out, run.header["label"], task, fold), **line["examples"]})
        if stores is not None and (store := stores / run.header["cell"]).exists():
            found += revisited(store, out, run.header["label"], [one for one in told if one[0] in SMALL])
    return sorted(found, key=lambda one: (one["method"], one["task"], one["fold"]))


def revisited(store: Path, out: Path, label: str, told: Iterable[tuple[str, str]]) -> list[Line]:
    """What a store's tasks answer after `tss revisit`, done in a copy; nothing where that changes nothing."""
    from tss import Learner, Task
    from tss.bench.examples import test

    with tempfile.TemporaryDirectory() as folder:
        learner = Learner.open(shutil.copytree(store, Path(folder, "store")))
        changed = {info.name for info in learner.revisit()}
        return [
            {
                **_about(out, f"{label}, revisited", task, fold),
                **test(learner, Task.from_folder(_folder(out, task, fold)))[1],
            }
            for task, fold in told
            if changed
        ]


def _folder(out: Path, task: str, fold: str) -> Path:
    return out / fold / task.split("/")[1]


def _about(out: Path, method: str, task: str, fold: str) -> Line:
    rows = read(_folder(out, task, fold) / "test.jsonl")
    texts = list(dict.fromkeys(row["text"] for row in rows))
    return {"method": method, "task": task, "fold": fold, "texts": [texts.index(row["text"]) for row in rows]}


def answers(lines: Iterable[Line]) -> dict[str, Answers]:
    """By method and task, all folds put together."""
    found: dict[str, dict[str, list[tuple[list[str], Sums]]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        texts = [f"{line['fold']} {number}" for number in line["texts"]]
        found[line["method"]][line["task"]].append((texts, Sums.of(line)))
    return {method: {task: _joined(parts) for task, parts in tasks.items()} for method, tasks in found.items()}


def _joined(parts: list[tuple[list[str], Sums]]) -> tuple[list[str], Sums]:
    texts = [text for some, _ in parts for text in some]
    return texts, Sums(parts[0][1].kind, np.concatenate([sums.each for _, sums in parts]))


def drawn(texts: list[str], task: str) -> np.ndarray:
    """How often each row is counted, first once each, then with texts drawn anew. [1 + DRAWS, rows]"""
    place = {text: i for i, text in enumerate(sorted(set(texts)))}
    random = np.random.default_rng(list(task.encode()))
    times = random.multinomial(len(place), np.full(len(place), 1 / len(place)), size=DRAWS)
    each = times[:, [place[text] for text in texts]]
    return np.concatenate([np.ones((1, len(texts))), each])


def scores(found: Answers) -> dict[str, np.ndarray]:
    """Mean macro-F1 of the tasks, and the share of right answers of all rows together. [1 + DRAWS] each"""
    weights = {task: drawn(texts, task) for task, (texts, _) in found.items()}
    each = {task: sums.scores(weights[task]) for task, (_, sums) in found.items()}
    rows = {task: weight.sum(axis=1) for task, weight in weights.items()}
    right = sum(each[task]["accuracy"] * rows[task] for task in found) / sum(rows.values())
    return {"macro-F1": np.mean([one["macro_f1"] for one in each.values()], axis=0), "right": right}


def table(found: Mapping[str, Answers]) -> list[str]:
    """A row a method, with what TSS+ has more and its interval, for those whose folds are all there."""
    rows = {method: sum(len(texts) for texts, _ in tasks.values()) for method, tasks in found.items()}
    whole = [method for method in found if rows[method] == max(rows.values())]
    whole.sort(key=lambda method: method != "TSS+")
    scored = {method: scores(found[method]) for method in whole}
    head = ["method", "mean macro-F1", "TSS+ above it", "right answers", "TSS+ above it", "tasks higher"]
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    for method, score in scored.items():
        cells = [method]
        for key, value in score.items():
            cells += [f"{value[0]:.2f}", _apart(scored["TSS+"][key] - value) if method != "TSS+" else "–"]
        lines.append("| " + " | ".join([*cells, _higher(found["TSS+"], found[method])]) + " |")
    if {AGAIN, BOUND} <= set(scored):
        told = [f"{key} {_apart(value - scored[BOUND][key])}" for key, value in scored[AGAIN].items()]
        lines += ["", f"{AGAIN}, above {BOUND}, which has all data at once: {'; '.join(told)}."]
    left = [f"{method} ({rows[method]} rows)" for method in found if method not in whole]
    lines += [f"Not whole: {', '.join(left)}."] if left else []
    held = {text.split()[0] for texts, _ in found[whole[0]].values() for text in texts}
    return [*lines, f"{max(rows.values())} rows of {len(SMALL)} tasks, {len(held)} of {FOLDS} folds."]


def lines_in(file: Path) -> list[Line]:
    with lzma.open(file, "rt", encoding="utf-8") as packed:
        return [json.loads(line) for line in packed]


def _apart(differences: np.ndarray) -> str:
    low, high = np.quantile(differences[1:], [0.025, 0.975])
    return f"{differences[0]:+.2f} ({low:+.2f} to {high:+.2f})"


def _higher(ours: Answers, theirs: Answers) -> str:
    if ours is theirs:
        return "–"
    each = [(float(ours[t][1].scores()["macro_f1"][0]), float(theirs[t][1].scores()["macro_f1"][0])) for t in ours]
    return f"{sum(a > b for a, b in each)} of {len(each)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="what", required=True)
    for what, places in {"write": ("data", "folds"), "collect": ("runs", "folds"), "lines": ("file",)}.items():
        part = parts.add_parser(what)
        for place in places:
            part.add_argument(place, type=Path, nargs="+" if place == "runs" else None)
        if what == "collect":
            part.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    if args.what == "write":
        write(args.data, args.folds)
    elif args.what == "collect":
        with lzma.open(args.out, "wt", encoding="utf-8") as file:
            for runs in args.runs:
                lines = collect(read_runs(runs), args.folds, runs / "stores")
                file.writelines(json.dumps(line) + "\n" for line in lines)
    else:
        print("\n".join(table(answers(lines_in(args.file)))))


if __name__ == "__main__":
    main()
