"""The model card of a backbone, written from the log of the run that made it, and the picture of its losses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tss.errors import BackboneError

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 640, 300, 48, 36, 14


def read_log(path: Path) -> list[dict]:
    """The lines of a run's log. Raises: BackboneError if there is none or it holds no finished run."""
    try:
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    except (OSError, json.JSONDecodeError) as error:
        raise BackboneError(f"cannot read the log {path}: {error}") from error
    if not any(line["event"] == "end" for line in lines):
        raise BackboneError(f"the log {path} holds no finished run; finish it before writing its card")
    return lines


def whole_curve(lines: Sequence[Mapping]) -> list[dict]:
    """`lines` with steps, tokens and seconds counted on through every run of the log (a model may be trained further)."""
    offset = {"step": 0.0, "tokens": 0.0, "seconds": 0.0}
    counted = []
    for line in lines:
        counted.append({**line, **{key: line[key] + offset[key] for key in offset if key in line}})
        if line["event"] == "end":
            offset = {key: counted[-1][key] for key in offset}
    return counted


def loss_curve(lines: Sequence[Mapping], title: str) -> str:
    """An SVG of the training loss and the losses on unseen text, over tokens seen."""
    curve = whole_curve(lines)
    series = {
        "training": ("#9aa5b1", [(x["tokens"], x["loss"]) for x in curve if x["event"] == "step"]),
        "unseen, all tokens": ("#1f6feb", [(x["tokens"], x["all"]) for x in curve if x["event"] == "held-out"]),
        "unseen, hidden tokens": ("#d1495b", [(x["tokens"], x["masked"]) for x in curve if x["event"] == "held-out"]),
    }
    most = max(x for _, points in series.values() for x, _ in points)
    highest = 6.0  # above it lies only the blind start, where the loss says little
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="11">',
        f"<title>{title}</title>",
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
    ]
    parts += [_grid(value, highest) for value in range(int(highest) + 1)]
    for row, (name, (colour, points)) in enumerate(series.items()):
        kept = [_place(x / most, min(y, highest) / highest) for x, y in points]
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{" ".join(kept)}"/>')
        parts.append(f'<text x="{_WIDTH - 170}" y="{_TOP + 18 + 15 * row}" fill="{colour}">{name}</text>')
    middle, foot = (_LEFT + _WIDTH) // 2, _HEIGHT - 8
    parts.append(f'<text x="{middle}" y="{foot}" text-anchor="middle">tokens seen, 0 to {most / 1e6:.0f} million</text>')
    parts.append(f'<text x="{_LEFT}" y="{_TOP - 2}">loss in nats a token</text></svg>')
    return "\n".join(parts) + "\n"


def _place(across: float, up: float) -> str:
    x = _LEFT + across * (_WIDTH - _LEFT - 10)
    y = _HEIGHT - _BOTTOM - up * (_HEIGHT - _BOTTOM - _TOP)
    return f"{x:.1f},{y:.1f}"


def _grid(value: int, highest: float) -> str:
    y = _place(0, value / highest).split(",")[1]
    return (
        f'<path d="M{_LEFT} {y}H{_WIDTH - 10}" stroke="#e5e8eb"/>'
        f'<text x="{_LEFT - 6}" y="{float(y) + 4:.1f}" text-anchor="end">{value}</text>'
    )


def model_card(
    name: str, lines: Sequence[Mapping], corpus_notes: str, picture: str, tasks: Mapping[str, Mapping] | None = None
) -> str:
    """The card in Markdown: what it is, data and licences, how it was trained, scores, limits.

    `corpus_notes` describes the text and its licences; `picture` is the path of the loss curve as seen from the card; `tasks` maps a
    table's name to {row: score} for scores on real tasks, if there are any.
    """
    first = next(line for line in lines if line["event"] == "begin")
    last = [line for line in whole_curve(lines) if line["event"] == "end"][-1]
    shape, copied = first["shape"], last["copy"]
    parts = [
        f"# {name}",
        f"A BART of {first['parameters'] / 1e6:.2f} million parameters, pretrained from nothing by `tss backbone pretrain`: "
        f"{shape['encoder_layers']} encoder and {shape['decoder_layers']} decoder layers of width {shape['width']} (feed-forward "
        f"{shape['ffn']}, {shape['heads']} heads), {shape['vocabulary']:,} byte-level BPE tokens, texts of up to 1,024 tokens. "
        "Weights are bfloat16 and load with plain `BartForConditionalGeneration.from_pretrained` and "
        "`AutoTokenizer.from_pretrained`.",
        "## Data",
        corpus_notes.strip(),
        f"{first['training_tokens'] / 1e6:.1f} million tokens to train on; {first['held_out_tokens'] / 1e3:.0f} thousand tokens "
        "(every hundredth document) held out from tokenizer and training.",
        "## Training",
        _training(lines, last),
        f"![Losses over tokens seen]({picture})",
        "## Scores on unseen text",
        _scores(last["held_out"], copied),
        "## Scores on tasks",
        _task_tables(tasks),
        "## Limits",
        "English only, small, and trained for minutes: it knows few facts, and what it writes beyond copying and filling short "
        "gaps is often wrong. The text it learnt from (encyclopedia, old books, film reviews, scripted dialogues, news of 2004 and "
        "2005) has its own views and gaps. It is made to be frozen under adapters, not to be used alone.",
    ]
    return "\n\n".join(parts) + "\n"


def _training(lines: Sequence[Mapping], last: Mapping) -> str:
    begins = [line for line in lines if line["event"] == "begin"]
    runs = [line for line in lines if line["event"] == "end"]
    text = (
        f"{last['step']:,.0f} steps, {last['tokens'] / 1e6:.0f} million tokens seen, {last['seconds'] / 60:.1f} minutes on "
        f"{begins[0]['workers']} x {begins[0]['device']}. Text infilling (30 % of the tokens in spans of about 3), sentence order shuffled in "
        f"{begins[0]['recipe']['shuffled_share']:.0%} of the windows, windows of 128 to 1,024 tokens, the curriculum of docs/pretraining.md."
    )
    if len(runs) > 1:
        text += (
            f" Trained in {len(runs)} runs, one on from the other ("
            + ", ".join(f"{run['step']:,.0f} steps" for run in runs)
            + "); the later ones shuffle no sentences and hide nothing in more of the windows."
        )
    return text


def _scores(held_out: Mapping, copied: Mapping) -> str:
    return "\n".join(
        [
            "| what | score |",
            "| --- | --- |",
            f"| loss over hidden tokens, nats | {held_out['masked']:.3f} |",
            f"| loss over all tokens, nats | {held_out['all']:.3f} |",
            f"| positions equal when it copies {copied['tokens']:.0f} tokens freely ({copied['texts']:.0f} texts) | {copied['equal']:.1%} |",
            f"| of these texts, copied without an error to the end | {copied['exact']:.1%} |",
            f"| of these texts, ended by itself | {copied['stopped']:.1%} |",
        ]
    )


def _task_tables(tasks: Mapping[str, Mapping] | None) -> str:
    if not tasks:
        return "Not measured yet."
    tables = []
    for title, rows in tasks.items():
        lines = [f"{title}:", "", "| what | score |", "| --- | --- |"]
        lines += [f"| {row} | {score if isinstance(score, str) else format(score, '.1f')} |" for row, score in rows.items()]
        tables.append("\n".join(lines))
    return "\n\n".join(tables)


def write_card(name: str, log: Path, weights: Path, corpus_notes: str) -> None:
    """Write `weights/README.md` and the picture `<log>.svg` from `log`; task scores from `tasks.json` beside it, if it exists.

    `tasks.json` is {backbone name: {table title: {row: score}}}. Raises: BackboneError if the log is not usable.
    """
    lines = read_log(log)
    picture = log.with_suffix(".svg")
    picture.write_text(loss_curve(lines, f"{name}: losses while it was pretrained"), "utf-8")
    scores = log.with_name("tasks.json")
    tasks = json.loads(scores.read_text("utf-8")).get(name) if scores.exists() else None
    import os.path

    seen_from_card = Path(os.path.relpath(picture, weights)).as_posix()
    (weights / "README.md").write_text(model_card(name, lines, corpus_notes, seen_from_card, tasks), "utf-8")
