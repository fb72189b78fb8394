"""SUM, summaries: meetings (AMI, ICSI), mail threads and discussions (ConvoSumm)."""

from __future__ import annotations

import ast
import csv
import gzip
import io
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from tss.data.recipe import SPLITS, Row, Splits, draws, key, read_bytes, read_json, read_pairs, read_text, squeeze
from tss.errors import TaskError

TASKS = ("icsi", "ami", "reddit", "stack", "nyt", "emails")
BETWEEN = " </s> "  # separates comments or mails
TEST, VALID = 100, 25  # of the 250 threads of reddit, stack and nyt; the rest is train
HUB = {"ami": "TalTechNLP/AMIsum"}
HUB_MISSING = "icsi (as text with summaries) and the four ConvoSumm sets are not on the hub"


def prepare(raw: Path, task: str) -> Splits:
    """The splits of one task from its files in `raw/<task>/`."""
    if task in ("ami", "icsi"):
        folders = {"train": "train", "valid": "dev", "test": "test"}
        return {split: _meetings(raw / task / folder) for split, folder in folders.items()}
    if task == "emails":
        return _emails(raw / task)
    rows = _threads(raw / task / "raw_input.csv", "short_title" if task == "nyt" else "questionText")
    draws("sum", task).shuffle(rows)
    return {"train": rows[TEST + VALID :], "valid": rows[TEST : TEST + VALID], "test": rows[:TEST]}


def same(row: Row) -> str:
    """What makes two rows the same example."""
    return key(row["source"])


def from_hub(task: str, read: Callable[[str], Iterable[Row]]) -> Splits:
    """AMI from the hub: the same meetings and splits, written in the hub's own form of a transcript."""
    names = {"train": "train", "valid": "validation", "test": "test"}
    return {split: [_row(row["transcript"], row["summary"]) for row in read(names[split])] for split in SPLITS}


def _row(source: str, target: str) -> Row:
    return {"source": squeeze(source), "target": squeeze(target)}


def _meetings(folder: Path) -> list[Row]:
    files = sorted(folder.glob("split_*.jsonl.gz"), key=lambda path: int(re.sub(r"\D", "", path.name)))
    if not files:
        raise TaskError(f"no raw files split_<n>.jsonl.gz of the family sum in {folder}; put the public files there")
    return [_meeting(meeting) for path in files for meeting in _gzip_lines(path)]


def _gzip_lines(path: Path) -> list[Row]:
    try:
        text = gzip.decompress(read_bytes(path)).decode()
    except (OSError, EOFError, ValueError) as error:
        raise TaskError(f"raw file is damaged: {path} ({error}); fetch it again") from error
    lines = text.split("\n")
    return [read_json(path, line, f"line {number}") for number, line in enumerate(lines, 1) if line]


def _meeting(meeting: Row) -> Row:
    turns = (f"{turn['role']} {turn['speaker']} : {' '.join(turn['utt']['word'])}" for turn in meeting["meeting"])
    return _row(" ".join(turns), " ".join(meeting["summary"]))


def _emails(folder: Path) -> Splits:
    names = {
        "train": ("train.source", "train.target"),
        "valid": ("val.source", "val.target"),
        "test": tuple(f"email.test.{side}.remove_markers_simple_separator.txt" for side in ("source", "target")),
    }
    return {
        split: [_row(s.replace("</s>", BETWEEN), t) for s, t in read_pairs(folder / source, folder / target)]
        for split, (source, target) in names.items()
    }


def _threads(path: Path, head: str) -> list[Row]:
    rows = []
    for row in csv.DictReader(io.StringIO(read_text(path), newline="")):
        comments = [c for c in ast.literal_eval(row["comments"]) if c.strip()]
        if comments:
            source = BETWEEN.join(squeeze(part) for part in [row[head], *comments])
            rows.append({"source": source, "target": squeeze(row["summary"])})
    return rows
