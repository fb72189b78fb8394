"""What each test example contributes, in columns: small in a file, and enough to score any sample of the examples.

classification  {"labels": [name], "predicted": [number], "gold": [number]}; predicted = len(labels): no answer
tagging         {"tp": [count], "fp": [count], "fn": [count]}
summaries       {"rouge1": [points], "rouge2": [points], "rougeL": [points]}
replies (BLEU)  {"sys_len": [count], "ref_len": [count], "correct": [[4 counts]], "total": [[4 counts]]}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from tss.errors import TssError
from tss.report.measures import Interval
from tss.tasks import metrics
from tss.tasks.task import Task

if TYPE_CHECKING:
    from tss.learner import Learner

Columns = dict[str, list]
ROUNDS = 1000  # samples of a bootstrap


def test(learner: Learner, task: Task) -> tuple[dict[str, float], Columns]:
    """Test a stored task: its scores in points, main metric first, and the columns of its test examples."""
    examples = task.test or task.valid or task.train
    ready = learner.ready(task.name)
    kind, backbone = ready.lesson.kind, ready.lesson.backbone
    backbone.model.eval()
    # In the same batches as when it was just learnt: then equal answers mean that nothing changed.
    found = ready.lesson.answers([kind.input_row(backbone, example.input) for example in examples], ready.added)
    predicted = [answer.value for answer in found]
    gold = [example.target for example in examples]
    return kind.score(predicted, gold), columns(task, predicted, gold)


def tested(task: Task, scores: dict[str, float], answers: Sequence[Any]) -> tuple[dict[str, float], Columns]:
    """The same from the answers that a task gave when it was learnt."""
    return scores, columns(task, answers, [example.target for example in task.test or task.valid or task.train])


def columns(task: Task, predicted: Sequence[Any], gold: Sequence[Any]) -> Columns:
    """`metrics.parts` of the examples as columns."""
    from tss.tasks.kind import kind_of  # here, as tables are made without a model

    rows = metrics.parts(task.kind, task.metric, kind_of(task.kind).whole(predicted, gold), gold)
    if task.kind == "classification":
        number = {label: i for i, label in enumerate((*task.labels, metrics.NO_ANSWER))}
        return {"labels": list(task.labels), **{key: [number[row[key]] for row in rows] for key in rows[0]}}
    return {key: [_small(row[key]) for row in rows] for key in rows[0]}


def _small(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


@dataclass(frozen=True)
class Sums:
    """Examples as numbers to be added up, and how sums become points.

    each: [examples, numbers]. kind: which of the four forms above.
    """

    kind: str
    each: np.ndarray

    @classmethod
    def of(cls, found: Columns) -> Sums:
        """Raises TssError for columns of another form."""
        if "predicted" in found:
            count = len(found["labels"])
            cells = np.asarray(found["gold"]) * (count + 1) + np.asarray(found["predicted"])
            return cls("classification", np.eye(count * (count + 1), dtype=np.float32)[cells])
        for kind, keys in _KEYS.items():
            if keys[0] in found:
                stacked = np.column_stack([np.asarray(found[key], dtype=np.float64) for key in keys])
                return cls(kind, stacked)
        raise TssError(f"columns {sorted(found)} are of no known form; they were written by another release")

    def scores(self, weights: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Points by metric, main metric first. weights: [samples, examples], how often each was drawn -> [samples]"""
        drawn = np.ones((1, len(self.each))) if weights is None else weights
        return _SCORES[self.kind](drawn @ self.each, drawn.sum(axis=1))


_KEYS = {
    "tagging": ("tp", "fp", "fn"),
    "summary": ("rouge1", "rouge2", "rougeL"),
    "reply": ("sys_len", "ref_len", "correct", "total"),
}


def _classification(sums: np.ndarray, counts: np.ndarray) -> dict[str, np.ndarray]:
    classes = int(sums.shape[1] ** 0.5)
    table = sums.reshape(-1, classes, classes + 1)  # [samples, gold, predicted or none]
    hits = np.diagonal(table, axis1=1, axis2=2)
    seen = table[:, :, :classes].sum(axis=1) + table.sum(axis=2)
    f1 = np.divide(2 * hits, seen, out=np.zeros_like(hits, dtype=np.float64), where=seen > 0)
    occurs = (seen > 0).sum(axis=1)
    return {"macro_f1": 100 * f1.sum(axis=1) / occurs, "accuracy": 100 * hits.sum(axis=1) / counts}


def _tagging(sums: np.ndarray, counts: np.ndarray) -> dict[str, np.ndarray]:
    hits, wrong, missed = sums.T
    return {
        "entity_f1": 100 * 2 * hits / np.maximum(2 * hits + wrong + missed, 1),
        "precision": 100 * hits / np.maximum(hits + wrong, 1),
        "recall": 100 * hits / np.maximum(hits + missed, 1),
    }


def _summary(sums: np.ndarray, counts: np.ndarray) -> dict[str, np.ndarray]:
    return {key: sums[:, i] / counts for i, key in enumerate(_KEYS["summary"])}


def _reply(sums: np.ndarray, counts: np.ndarray) -> dict[str, np.ndarray]:
    from sacrebleu.metrics import BLEU

    def score(row: list[int]) -> float:
        made = BLEU.compute_bleu(row[2:6], row[6:10], row[0], row[1], smooth_method="exp", effective_order=False)
        return min(100.0, float(made.score))

    return {"bleu": np.array([score(row) for row in np.rint(sums).astype(int).tolist()])}


_SCORES = {"classification": _classification, "tagging": _tagging, "summary": _summary, "reply": _reply}


def resampled(task: str, found: Columns) -> np.ndarray:
    """The main score of all examples, then of each time that they are drawn anew: [1 + ROUNDS].

    The draws follow from the task's name and its number of examples, so that all systems and runs see the same ones.
    """
    run = Sums.of(found)
    return np.concatenate([_main(run, None), _main(run, _drawn(task, len(run.each)).astype(np.float32))])


@lru_cache(maxsize=64)  # the benchmark's 40 tasks, 23 MB; to draw takes longer than to score
def _drawn(task: str, count: int) -> np.ndarray:
    """How often each example is drawn: [ROUNDS, examples]."""
    random = np.random.default_rng(crc32(task.encode()))
    return random.multinomial(count, np.full(count, 1 / count), size=ROUNDS).astype(np.uint8)


def interval(differences: np.ndarray) -> Interval:
    """From a difference and its draws, as `resampled` orders them."""
    low, high = np.quantile(differences[1:], [0.025, 0.975])
    return Interval(float(differences[0]), float(low), float(high))


def _main(run: Sums, weights: np.ndarray | None) -> np.ndarray:
    return next(iter(run.scores(weights).values()))
