"""The model card of a backbone, written from the log of the run that made it."""

from __future__ import annotations

import json
import os.path
from collections.abc import Mapping, Sequence
from pathlib import Path

from tss.backbones.curve import loss_curve
from tss.backbones.runlog import read_log, whole_curve

_CARD = """# {name}

A BART of {parameters:.2f} million parameters, pretrained from nothing by `tss backbone pretrain`:
{encoder_layers} encoder and {decoder_layers} decoder layers of width {width} (feed-forward {ffn}, {heads} heads),
{vocabulary:,} byte-level BPE tokens, texts of up to 1,024 tokens. The weights are bfloat16. They load with plain
`BartForConditionalGeneration.from_pretrained`, as float32 unless asked otherwise, and `AutoTokenizer.from_pretrained`.

## Data

{corpus}

{training_tokens:.1f} million tokens to train on; {held_out_tokens:.0f} thousand tokens (every hundredth document)
held out from tokenizer and training.

## Training

{runs}

Text infilling (30 % of the tokens in spans of about 3), sentence order shuffled in {shuffled:.0%} of the windows,
windows of {shortest} to {longest:,} tokens, and the curriculum of docs/pretraining.md.

![Losses over tokens seen]({picture})

## Scores on unseen text

{scored_on}

| what | score |
| --- | --- |
| loss over hidden tokens, nats | {masked:.3f} |
| loss over all tokens, nats | {all:.3f} |
| positions equal when it copies {copy_tokens:.0f} tokens, writing freely ({copy_texts:.0f} texts) | {equal:.1%} |
| of these texts, copied to the end without an error | {exact:.1%} |
| of these texts, ended by itself | {stopped:.1%} |

## Scores on tasks

{tasks}

## Limits

English only, small, and trained for minutes: it knows few facts, and what it writes beyond copying and filling short
gaps is often wrong. The text it learnt from has its own views and gaps. It is made to be frozen under
adapters, not to be used alone.
"""


def model_card(
    name: str,
    lines: Sequence[Mapping],
    corpus: str,
    picture: str,
    tasks: Mapping | None = None,
    twin: Mapping | None = None,
) -> str:
    """The card in Markdown: what it is, data and licences, how it was trained, scores, limits.

    `corpus` describes the text and its licences; `picture` is the path of the loss curve as seen from the card; `tasks`
    has the scores on real tasks, {"order": [task], "cells": {"backbone method": {"asc", "ccd", "ner", "mean", …}}};
    `twin` compares with random weights of the same shape: {"mean": {name, "random"}, "gap", "scores": {task: …}}.
    """
    first = next(line for line in lines if line["event"] == "begin")
    last = [line for line in whole_curve(lines) if line["event"] in ("end", "scored")][-1]
    lengths = [length for length, _ in first["recipe"]["lengths"]]
    copied = last["copy"]
    return _CARD.format(
        name=name,
        parameters=first["parameters"] / 1e6,
        corpus=corpus.strip(),
        training_tokens=first["training_tokens"] / 1e6,
        held_out_tokens=first["held_out_tokens"] / 1e3,
        shuffled=first["recipe"]["shuffled_share"],
        shortest=min(lengths),
        longest=max(lengths),
        runs=_runs(lines),
        picture=picture,
        scored_on=f"Measured on {last.get('on', 'the documents the last run held out')}.",
        copy_tokens=copied["tokens"],
        copy_texts=copied["texts"],
        tasks=_task_scores(name, tasks, twin),
        **{key: copied[key] for key in ("equal", "exact", "stopped")},
        **{key: last["held_out"][key] for key in ("masked", "all")},
        **{key: first["shape"][key] for key in _SHAPE},
    )


_SHAPE = ("encoder_layers", "decoder_layers", "width", "ffn", "heads", "vocabulary")


def _runs(lines: Sequence[Mapping]) -> str:
    """A table of the runs that made the model: each goes on from the one before it."""
    rows = ["| run | steps | tokens seen, million | minutes | on |", "| --- | --- | --- | --- | --- |"]
    for line in lines:
        if line["event"] == "begin":
            begin = line
        elif line["event"] == "end":
            kind = _kind(begin["recipe"])
            rows.append(
                f"| {kind} | {line['step']:,.0f} | {line['tokens'] / 1e6:,.1f} | {line['seconds'] / 60:.1f} "
                f"| {begin['workers']} x {begin['device']} |"
            )
    return "\n".join(rows)


def _kind(recipe: Mapping) -> str:
    """What a run did, from its own settings."""
    if recipe.get("settle") != 0.0:
        return "from nothing"
    return (
        "continued, also copying plain text" if "copy_weight" in recipe else "continued, nothing shuffled, less hidden"
    )


def _task_scores(name: str, tasks: Mapping | None, twin: Mapping | None) -> str:
    """The rows of `tasks` if some are about this backbone, and how much better it is than random weights."""
    cells = (tasks or {}).get("cells", {})
    told = [_task_table(cells)] if any(row.split()[0] == name for row in cells) else []
    if twin:
        mean = twin["mean"]
        told.append(
            f"The {len(twin['scores'])} tasks of the demo with ONE (Adapter): {mean[name]:.1f} points on average, "
            f"against {mean['random']:.1f} with random weights of the same shape (a gap of {twin['gap']:.1f})."
        )
    return "\n\n".join(told) or "Not measured."


def _task_table(cells: Mapping) -> str:
    """Every row, so that other backbones stand beside this one."""
    lines = [
        "Real tasks learnt one after the other (macro-F1 for ASC and CCD, F1 for NER); other backbones for comparison:",
        "",
        "| backbone and method | ASC | CCD | NER | mean of all tasks | seeds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row, cell in cells.items():
        scores = " | ".join(f"{cell[key]:.1f}" for key in ("asc", "ccd", "ner"))
        lines.append(f"| {row} | {scores} | {cell['mean']:.1f} ± {cell['deviation']:.1f} | {cell['seeds']} |")
    return "\n".join(lines)


def write_card(name: str, log: Path, weights: Path, corpus: str) -> None:
    """Write `README.md` into the folder `weights`, and the picture of the losses beside `log`.

    Scores on tasks come from `tasks.json` and `<log>_random.json` beside the log, where they exist (see `model_card`).
    Raises: BackboneError if the log is not usable.
    """
    lines = read_log(log)
    picture = log.with_suffix(".svg")
    picture.write_text(loss_curve(lines, f"{name}: losses while it was pretrained"), "utf-8")
    scores = log.with_name("tasks.json")
    tasks = json.loads(scores.read_text("utf-8")) if scores.exists() else None
    against = log.with_name(f"{log.stem}_random.json")
    twin = json.loads(against.read_text("utf-8")) if against.exists() else None
    seen_from_card = Path(os.path.relpath(picture, weights)).as_posix()
    (weights / "README.md").write_text(model_card(name, lines, corpus, seen_from_card, tasks, twin), "utf-8")
