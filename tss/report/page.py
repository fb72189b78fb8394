"""One self-contained HTML page of a run: no scripts, no fonts, nothing fetched from anywhere."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from tss.report import document as reading
from tss.report.document import Document, Documents
from tss.report.pictures import Section, pictures
from tss.report.style import STYLE
from tss.report.summary import Proof, Row, Summary, method_labels, plural, size, summarise

LARGEST_PAGE = 1_000_000


def write_page(documents: Documents, path: str | os.PathLike[str]) -> Path:
    """Write the page of a run, or of several seeds or orders of it, and return its path.

    A reader of `path` sees the old page or the new one, never a part. Folders above it are made.
    Raises TssError for a document that cannot be read, OSError if the page cannot be written.
    """
    text = page(documents)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return target


def page(documents: Documents) -> str:
    """The page as text, below 1 MB: pictures that would make it larger are left out, and it says which.

    Raises TssError for a document that cannot be read.
    """
    runs = reading.as_list(documents)
    summary = summarise(runs)
    drawn, left_out = pictures(runs[0]), list[str]()
    while len(text := _assemble(runs, summary, drawn, left_out).encode()) >= LARGEST_PAGE and drawn:
        largest = max(drawn, key=lambda section: len(section.body))
        drawn.remove(largest)
        left_out.append(largest.heading)
    return text.decode()


def _assemble(runs: list[Document], summary: Summary, drawn: list[Section], left_out: list[str]) -> str:
    sections = [
        _scores(summary),
        *_families(summary),
        *_note_on_runs(drawn, runs),
        *_kept(runs[0]),
        _facts(runs, left_out),
    ]
    links = "".join(f'<a href="#{s.anchor}">{escape(s.heading)}</a>' for s in sections)
    body = "".join(
        f'<section><h2 id="{s.anchor}">{escape(s.heading)}</h2><p>{escape(s.words)}</p>{s.body}</section>'
        for s in sections
    )
    title = escape(summary.title)
    measures = _table(f"The whole sequence{_over(summary.runs)}", "Measure", summary.methods, summary.measures)
    counts = f"{plural(len(runs[0]['tasks']), 'task')} · {plural(len(summary.methods), 'method')} · {_seeds(runs)}"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        # The page says itself that it loads nothing, and a browser holds it to that.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{title}</title><style>{STYLE}</style></head><body><main>"
        f'<header><h1>{title}</h1><p class="facts">{escape(counts)}</p>{_proof(summary.proof)}</header>'
        f'<section><h2 id="summary">At a glance</h2><p>{_GLANCE}</p>'
        f"{measures}</section>"
        f'<nav aria-label="Contents">{links}</nav>{body}</main></body></html>\n'
    )


_GLANCE = (
    "Scores are points of 100, each task on its own metric, measured after the last task was learnt. The forgetting "
    "rate is what earlier tasks lost since they were learnt; 0 is nothing, below 0 is a gain. Forward transfer is what "
    "a task gained over being learnt alone. ★ marks the best value of a row."
)


def _seeds(runs: list[Document]) -> str:
    seeds = [str(run["seed"]) for run in runs if run.get("seed") is not None]
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}" if seeds else plural(len(runs), "run")


def _over(runs: int) -> str:
    return f", mean ± population deviation of {runs} runs" if runs > 1 else ""


def _proof(proofs: Sequence[Proof]) -> str:
    if not proofs:
        return ""
    items = "".join(f"<li{'' if p.unchanged else ' class=changed'}>{escape(p.line)}</li>" for p in proofs)
    return f'<ul class="proof{"" if all(p.unchanged for p in proofs) else " bad"}">{items}</ul>'


def _table(caption: str, corner: str, methods: Sequence[str], rows: Sequence[Row]) -> str:
    head = "".join(f'<th scope="col">{escape(method)}</th>' for method in methods)
    sections = len({row.section for row in rows}) > 1
    body = []
    for section, members in groupby(rows, key=lambda row: row.section):
        if sections:
            span = len(methods) + 1
            body.append(
                f'<tr class="section"><th colspan="{span}" scope="colgroup">{escape(section or "other")}</th></tr>'
            )
        for row in members:
            note = f"<small>{escape(row.note)}</small>" if row.note else ""
            cells = "".join(
                f'<td class="{"best" if i in row.best else "num"}">{escape(cell)}</td>'
                for i, cell in enumerate(row.cells)
            )
            part = ' class="part"' if row.part else ""
            body.append(f'<tr{part}><th scope="row">{escape(row.label)}{note}</th>{cells}</tr>')
    head = f'<tr><th scope="col">{escape(corner)}</th>{head}</tr>'
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption><thead>'
        f"{head}</thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _scores(summary: Summary) -> Section:
    table = _table(f"Score after the last task{_over(summary.runs)}", "Task", summary.methods, summary.scores)
    words = "How well each task is done after the whole sequence. Scores of different metrics do not compare."
    return Section("scores", "Score per task", words, table)


def _families(summary: Summary) -> list[Section]:
    if not summary.families:
        return []
    table = _table("Means within each family of tasks", "Measure", summary.methods, summary.families)
    words = (
        "The same measures within each family. Forgetting leaves out the task that is last in the whole sequence. "
        "F′ counts what a task lost since its best moment, not since it was learnt, so it is never the smaller one."
    )
    folded = f"<details><summary>Show the table of families</summary>{table}</details>"
    return [Section("families", "By family", words, folded)]


def _note_on_runs(drawn: list[Section], runs: list[Document]) -> list[Section]:
    """The sections as they are; of several runs, the pictures show the first, and each says so."""
    if len(runs) == 1:
        return drawn
    note = f" (The picture shows the first of {len(runs)} runs, seed {runs[0].get('seed')}.)"
    return [Section(s.anchor, s.heading, s.words + note, s.body) for s in drawn]


def _kept(run: Document) -> list[Section]:
    """What is kept of each task, in bytes: gates, head and all."""
    names = [task["name"] for task in run["tasks"]]
    labels = method_labels([run])
    stored = {key: reading.numbers(run["methods"][key], "bytes", len(names)) for key in labels}
    if not any(value is not None for values in stored.values() for value in values):
        return []
    rows = [
        Row(name, tuple("–" if stored[key][i] is None else size(stored[key][i] or 0) for key in labels))
        for i, name in enumerate(names)
    ]
    table = _table("Bytes kept of each task", "Task", tuple(labels.values()), rows)
    words = "What learning one more task adds to the store. The backbone, which all tasks share, is not counted."
    return [
        Section("bytes", "What is kept", words, f"<details><summary>Show bytes per task</summary>{table}</details>")
    ]


def _facts(runs: list[Document], left_out: Sequence[str]) -> Section:
    commands = dict.fromkeys(str(run["command"]) for run in runs if run.get("command"))
    body = f"<pre>{escape(chr(10).join(commands))}</pre>" if commands else ""
    facts = {str(key): str(value) for key, value in (runs[0].get("environment") or {}).items()}
    if facts:
        body += "<dl>" + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts.items()) + "</dl>"
    if left_out:
        body += f'<p class="more">Left out to keep the page below 1 MB: {escape(", ".join(left_out))}.</p>'
    return Section("again", "Make it again", "The command behind this page, and where it ran.", body)
