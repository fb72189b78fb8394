"""Scores in points (0 to 100), by the libraries of the field. Pure functions of predictions and gold targets.

Nothing to score gives 0, never an error: an empty list, empty texts, a single class, sentences without entities.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from tss.errors import TaskError, nearest

# The metrics a task may name as its main one; the first is the default.
METRICS = {
    "classification": ("macro_f1", "accuracy"),
    "tagging": ("entity_f1",),
    "generation": ("rouge1", "rouge2", "rougeL", "bleu"),
}
MAIN = {kind: names[0] for kind, names in METRICS.items()}

NO_ANSWER = ""  # a prediction that is none of the labels; always wrong, and no class of its own

Tags = Sequence[str]


def check_metric(kind: str, metric: str) -> str:
    """The metric, or the kind's default for an empty one. Raises TaskError if the kind has no such metric."""
    if not metric:
        return MAIN[kind]
    if metric not in METRICS[kind]:
        raise TaskError(f"{kind} has no metric {metric!r}{nearest(str(metric), METRICS[kind])}")
    return metric


def score(kind: str, metric: str, predicted: Sequence, gold: Sequence, labels: Sequence[str] = ()) -> dict[str, float]:
    """All scores that belong together for this kind and metric, the main metric first.

    predicted, gold: labels (classification), lists of tags (tagging) or texts (generation), one an example.
    """
    metric = check_metric(kind, metric)
    if kind == "classification":
        scores = classification_scores(predicted, gold, labels)
    elif kind == "tagging":
        scores = tagging_scores(predicted, gold)
    else:
        scores = bleu_score(predicted, gold) if metric == "bleu" else summary_scores(predicted, gold)
    return {metric: scores.pop(metric), **scores}


def classification_scores(
    predicted: Sequence[str], gold: Sequence[str], labels: Sequence[str] = ()
) -> dict[str, float]:
    """Macro-F1 and accuracy.

    Macro-F1 is the mean over the classes that occur in gold or predictions (scikit-learn's default): a class of
    `labels` that occurs in neither does not count; a class predicted but absent from gold counts as 0.
    Raises TaskError if a prediction is neither among `labels` (when they are given) nor NO_ANSWER.
    """
    _check_lengths(predicted, gold)
    for label in predicted:
        if labels and label not in labels and label != NO_ANSWER:
            raise TaskError(f"prediction {label!r} is not among the task's labels{nearest(str(label), tuple(labels))}")
    if not gold:
        return {"macro_f1": 0.0, "accuracy": 0.0}
    from sklearn.metrics import accuracy_score, f1_score

    classes = sorted({*gold, *predicted} - {NO_ANSWER})
    macro = f1_score(list(gold), list(predicted), labels=classes, average="macro", zero_division=0)
    return {"macro_f1": 100 * float(macro), "accuracy": 100 * float(accuracy_score(list(gold), list(predicted)))}


def tagging_scores(predicted: Sequence[Tags], gold: Sequence[Tags]) -> dict[str, float]:
    """Micro F1, precision and recall over entities: an entity counts if its type and both its ends are right.

    Strict IOB2: only a B- begins an entity, so an I- that continues nothing of its type is no entity.
    """
    counts = parts("tagging", MAIN["tagging"], predicted, gold)
    if not any(part["tp"] + part["fp"] + part["fn"] for part in counts):
        return {"entity_f1": 0.0, "precision": 0.0, "recall": 0.0}  # seqeval cannot score a corpus without entities
    from seqeval.metrics.v1 import precision_recall_fscore_support
    from seqeval.scheme import IOB2

    precision, recall, f1, _ = precision_recall_fscore_support(
        [list(tags) for tags in gold],
        [list(tags) for tags in predicted],
        average="micro",
        scheme=IOB2,
        zero_division=0,
    )
    return {"entity_f1": 100 * float(f1), "precision": 100 * float(precision), "recall": 100 * float(recall)}


def summary_scores(predicted: Sequence[str], gold: Sequence[str]) -> dict[str, float]:
    """ROUGE-1, -2 and -L: mean F-measure, with stemming. L is Lsum on the sentences of `split_sentences`."""
    rows = parts("generation", "rouge1", predicted, gold)
    return {name: sum(row[name] for row in rows) / max(1, len(rows)) for name in ("rouge1", "rouge2", "rougeL")}


def bleu_score(predicted: Sequence[str], gold: Sequence[str]) -> dict[str, float]:
    """Corpus BLEU-4 with one reference: sacrebleu, tokenizer 13a, upper and lower case kept."""
    _check_lengths(predicted, gold)
    if not gold:
        return {"bleu": 0.0}
    return {"bleu": min(100.0, float(_bleu().corpus_score(list(predicted), [list(gold)]).score))}


def parts(kind: str, metric: str, predicted: Sequence, gold: Sequence) -> list[dict[str, Any]]:
    """What each test example contributes, so that a bootstrap can put samples together without scoring texts again.

    classification: predicted, gold. tagging: tp, fp, fn (entities). generation: rouge1, rouge2, rougeL in points or,
    for metric `bleu`, sys_len, ref_len, correct[4], total[4] to be summed.
    """
    _check_lengths(predicted, gold)
    if kind == "classification":
        return [{"predicted": one, "gold": other} for one, other in zip(predicted, gold, strict=True)]
    rows = {"tagging": _entity_parts, "generation": _bleu_parts if metric == "bleu" else _rouge_parts}[kind]
    return rows(predicted, gold)


def _entity_parts(predicted: Sequence[Tags], gold: Sequence[Tags]) -> list[dict[str, Any]]:
    from seqeval.scheme import IOB2, Entities

    rows = []
    for position, (ours, right) in enumerate(zip(predicted, gold, strict=True), start=1):
        if len(ours) != len(right):
            raise TaskError(f"sentence {position} has {len(right)} tags but {len(ours)} were predicted")
        found, wanted = (
            {entity.to_tuple() for entity in chain(*Entities([list(tags)], IOB2).entities)} for tags in (ours, right)
        )
        rows.append({"tp": len(found & wanted), "fp": len(found - wanted), "fn": len(wanted - found)})
    return rows


def _rouge_parts(predicted: Sequence[str], gold: Sequence[str]) -> list[dict[str, Any]]:
    return [dict(_rouge(ours, right)) for ours, right in zip(predicted, gold, strict=True)]


@lru_cache(maxsize=2048)  # a benchmark asks for the mean, then for what each example contributes
def _rouge(ours: str, right: str) -> tuple[tuple[str, float], ...]:
    result = _rouge_scorer().score("\n".join(split_sentences(right)), "\n".join(split_sentences(ours)))
    return tuple((name.removesuffix("sum"), 100 * float(value.fmeasure)) for name, value in result.items())


@lru_cache(maxsize=1)
def _rouge_scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rouge1", "rouge2", "rougeLsum"], use_stemmer=True)


def _bleu_parts(predicted: Sequence[str], gold: Sequence[str]) -> list[dict[str, Any]]:
    metric = _bleu()
    rows = []
    for ours, right in zip(predicted, gold, strict=True):
        one = metric.corpus_score([ours], [[right]])
        rows.append({"sys_len": one.sys_len, "ref_len": one.ref_len, "correct": one.counts, "total": one.totals})
    return rows


def _bleu() -> Any:
    from sacrebleu.metrics import BLEU

    # force: text that is already split into tokens (dialogue replies) is meant as it is, no warning wanted
    return BLEU(tokenize="13a", lowercase=False, force=True)


# A full stop after one of these, or after an initial, does not end a sentence ("I" is more often a word).
_ABBREVIATIONS = re.compile(
    r"mr|mrs|ms|dr|prof|sr|jr|st|vs|etc|e\.g|i\.e|cf|al|no|nos|vol|figs?|eq|inc|ltd|co|corp|dept|gen|col|lt|capt|sgt|rep|"
    r"sen|gov|pres|hon|rev|approx|est|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|p|pp|eds?|a\.m|p\.m|u\.s|u\.k|u\.n|"
    r"ph\.d|[a-hj-z]"
)
_END = re.compile(r"(?:[.!?…]+[\"'”’)\]]*(?=\s)|[。！？]+[」』”’]*)\s*")


def split_sentences(text: str) -> list[str]:
    """Sentences of a text, stripped, none empty: our own rule, the same everywhere, nothing to download.

    A line end ends a sentence. So does `.`, `!` or `?` (with closing quotes or brackets) before a blank, unless the
    full stop belongs to an abbreviation or an initial, or what follows begins in lower case (in text that has capitals
    at all, and where the mark is not a token of its own). A point inside a number or an address has no blank after it.
    """
    cased = text != text.lower()
    sentences = []
    for line in text.splitlines():
        start = 0
        for mark in _END.finditer(line):
            if _ends_sentence(line[start : mark.start()], mark.group().strip(), line[mark.end() :], cased):
                sentences.append(line[start : mark.end()].strip())
                start = mark.end()
        sentences.append(line[start:].strip())
    return [sentence for sentence in sentences if sentence]


def _ends_sentence(before: str, mark: str, after: str, cased: bool) -> bool:
    if not before or before[-1].isspace() or mark[0] in "。！？":
        return True
    word = before.split()[-1].lstrip("\"'“‘([").lower()
    if mark == "." and _ABBREVIATIONS.fullmatch(word):
        return False
    return not (cased and after[:1].islower())


def _check_lengths(predicted: Sequence, gold: Sequence) -> None:
    if len(predicted) != len(gold):
        raise TaskError(f"{len(predicted)} predictions for {len(gold)} examples; there must be one for each")
