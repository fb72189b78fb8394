from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from run_documents import TASKS, run_document

from tss.report.page import LARGEST_PAGE, page, write_page

VOID = {"meta", "br"}


class Reader(HTMLParser):
    """Checks that tags close in order and collects what a browser would show or load."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text += data + " "

    def values(self, name: str) -> list[str | None]:
        return [value for key, value in self.attributes if key == name]


def test_the_page_shows_everything_and_loads_nothing():
    document = run_document()
    text = page(document)
    read = Reader(text)
    for name, *_ in TASKS:
        assert name in read.text
    for shown in ("TSS", "SupSup", "ONE (Adapter)", "66 comparisons of 12 tasks", "tss demo --seed 0", "bart-nano"):
        assert shown in read.text
    anchors = [value for value in read.values("id") if value]
    assert {"summary", "scores", "matrix", "transfer", "sequence", "overlap", "cost", "curves"} <= set(anchors)
    assert all(link.startswith("#") and link[1:] in anchors for link in read.values("href") if link)
    assert not {"script", "link", "img", "iframe", "object"} & set(read.tags) and not read.values("src")
    assert not re.search(r"https?://|@import|url\(|<script", text)
    assert len(text.encode()) < LARGEST_PAGE


def test_tables_have_captions_and_scopes_and_pictures_have_names():
    text = page(run_document())
    assert text.count("<table") == text.count("<caption>")
    assert all(re.findall(r'<svg [^>]*role="img" aria-label="[^"]+"', figure) for figure in text.split("<figure")[1:])
    assert not re.search(r"<th(?![^>]*scope=)[ >]", text)


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "\"'><img src=x onerror=alert(1)>", "a & b\x00"])
def test_hostile_texts_are_only_text(name):
    document = run_document(3)
    document["title"] = document["command"] = name
    document["environment"] = {name: name}
    document["tasks"][0] |= {"name": name, "group": name, "family": name, "kind": name, "metric": name}
    document["methods"]["tss"]["label"] = name
    read = Reader(page(document))
    assert not {"script", "img"} & set(read.tags)
    assert not {key for key, _ in read.attributes if key.startswith("on")}
    assert name.replace("\x00", "") in read.text.replace("\x00", "").replace("\ufffd", "")


@pytest.mark.parametrize("methods", [("tss",), ("one-adapter",), ("tss", "one-adapter", "ncl")])
@pytest.mark.parametrize("count", [1, 2])
def test_short_runs_and_single_methods(count, methods):
    read = Reader(page(run_document(count, methods=methods)))
    assert TASKS[0][0] in read.text and "Score per task" in read.text


def test_only_scores_are_needed():
    document = {"tasks": [{"name": "a"}, {"name": "b"}], "methods": {"x": {"matrix": [[50.0], [40.0, None]]}}}
    read = Reader(page(document))
    assert "40.0▾" in read.text and "Learning curves" not in read.text


def test_missing_and_broken_cells_are_gaps():
    document = run_document(4, methods=("tss", "one-adapter", "ncl"))
    tss = document["methods"]["tss"]
    tss["matrix"][2][1] = float("nan")
    tss["matrix"][3] = [None] * 4
    tss["overlap"][1][0] = None
    tss["curves"] = [[], [[1, float("nan"), None]], [[1, 0.5, 50.0]]]
    tss["bytes"], tss["flips"] = [10], None
    document["methods"]["ncl"]["matrix"] = document["methods"]["ncl"]["matrix"][:2]
    text = page(document)
    Reader(text)
    assert "nan" not in re.sub(r"[a-z]*nan[a-z]+|[a-z]+nan", "", text.lower())


def test_forgetting_is_marked_and_a_changed_byte_is_seen():
    document = run_document(4, methods=("tss", "ncl"))
    assert "▾" in re.findall(r"NCL \(Adapter\): scores.*?</table>", page(document))[0]
    assert "▾" not in re.findall(r"TSS: scores.*?</table>", page(document))[0]
    assert '<ul class="proof">' in page(document)
    document["proof"]["tss"]["changed_bytes"] = 3
    assert '<ul class="proof bad">' in page(document) and "3 bytes changed" in page(document)


def test_several_runs_say_which_one_is_drawn():
    read = Reader(page([run_document(3, seed=s) for s in (5, 6)]))
    assert "seeds 5, 6" in read.text and "first of 2 runs, seed 5" in read.text and "±" in read.text


def test_a_large_run_stays_below_one_megabyte():
    document = run_document(12, methods=("tss", "one-adapter", *(f"m{i}" for i in range(18))))
    count = 40
    document["tasks"] = [document["tasks"][i % 12] | {"name": f"task number {i}"} for i in range(count)]
    for method in document["methods"].values():
        method["matrix"] = [[50.0 + i if i <= k else None for i in range(count)] for k in range(count)]
        method["overlap"] = [[0.5] * count] * count
        method["curves"] = [[[step, 1.0, 50.0] for step in range(400)]] * count
    text = page(document)
    assert len(text.encode()) < LARGEST_PAGE
    Reader(text)
    assert "task number 39" in text


def test_a_page_is_replaced_whole(tmp_path, monkeypatch):
    target = write_page(run_document(2), tmp_path / "deep" / "report.html")
    before = target.read_text(encoding="utf-8")
    assert before == page(run_document(2)) and target.stat().st_mode & 0o777 == 0o644

    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", broken)
    with pytest.raises(OSError, match="disk full"):
        write_page(run_document(3), target)
    assert target.read_text(encoding="utf-8") == before
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]
