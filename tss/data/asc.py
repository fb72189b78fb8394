"""ASC, aspect sentiment: 19 domains of product and restaurant reviews (JSON files of LifelongSentClass)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from tss.data.recipe import Row, Splits, draws, read_json, renamed, squeeze

TASKS = (
    "speaker", "router", "computer", "nokia6610", "nikon4300", "creative", "canong3", "apexad", "canond500", "canon100",
    "diaper", "hitachi", "ipod", "linksys", "micromp3", "nokia6600", "norton", "restaurant", "laptop",
)  # fmt: skip
POLARITIES = {
    "+": "positive",
    "-": "negative",
    "positive": "positive",
    "negative": "negative",
    "neutral": "neutral",
}
HUB = {
    "restaurant": "tomaarsen/setfit-absa-semeval-restaurants",
    "laptop": "tomaarsen/setfit-absa-semeval-laptops",
}
HUB_MISSING = "the 17 domains of Hu and Liu, Ding et al. and Liu et al. are not on the hub in this form"


def prepare(raw: Path, task: str) -> Splits:
    """The splits of one domain from `raw/<task>/{train,dev,test}.json`."""
    files = {"train": "train.json", "valid": "dev.json", "test": "test.json"}
    return _without_leaks({split: _read(raw / task / name) for split, name in files.items()})


def same(row: Row) -> tuple[str, str]:
    """What makes two rows the same example."""
    return row["aspect"], row["text"]


def from_hub(task: str, read: Callable[[str], Iterable[Row]]) -> Splits:
    """SemEval-2014 from the hub: the same rows, but which 150 of train are valid is drawn anew."""
    pools = {}
    for split in ("train", "test"):
        pools[split] = [
            _row(row["span"], row["text"], row["label"]) for row in read(split) if row["label"] in POLARITIES
        ]
    draws("asc", task).shuffle(pools["train"])
    return _without_leaks({"train": pools["train"][150:], "valid": pools["train"][:150], "test": pools["test"]})


def _row(aspect: str, text: str, label: str) -> Row:
    return {"aspect": squeeze(aspect), "text": squeeze(text), "label": label}


def _read(path: Path) -> list[Row]:
    entries = read_json(path).values()
    return [_row(e["term"], e["sentence"], renamed(POLARITIES, e["polarity"], path)) for e in entries]


def _without_leaks(splits: Splits) -> Splits:
    held_out = {same(row) for row in splits["valid"] + splits["test"]}
    return splits | {"train": [row for row in splits["train"] if same(row) not in held_out]}
