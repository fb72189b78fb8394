"""The page in a real browser: somebody clicks through it. Screenshots are kept in the test's folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_server import Running

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("no chromium here: as root, apt-get install chromium", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api", reason="the page's tests need playwright")

LOOKS = {
    "light": {"color_scheme": "light", "viewport": {"width": 1200, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1200, "height": 900}},
    "narrow": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
}
CONTRAST = """Math.min(...[...document.querySelectorAll('.heat tbody td')].filter(c => c.textContent).map(cell => {
  const light = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const own = getComputedStyle(cell), under = getComputedStyle(cell.closest('.scroll'));
  const [a, b] = [light(own.color), light((cell.className.match(/h\\d/) ? own : under).backgroundColor)];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}))"""  # the least of all cells of the heat maps, as WCAG reckons it
TEXT = "John Smith went to Paris and met Anna at the bank on Monday"


@pytest.fixture(scope="module")
def browser() -> Iterator:
    with playwright.sync_playwright() as driver:
        # a container's root has no sandbox, and its /dev/shm may be small
        arguments = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        with driver.chromium.launch(executable_path=CHROMIUM, args=arguments) as found:
            yield found


@pytest.fixture(params=list(LOOKS))
def page(request: pytest.FixtureRequest, browser, server: Running) -> Iterator:
    context = browser.new_context(**LOOKS[request.param])
    found = context.new_page()
    found.look = request.param
    found.problems, found.hosts = [], set()
    found.on("console", lambda told: found.problems.append(told.text) if told.type == "error" else None)
    found.on("pageerror", lambda error: found.problems.append(str(error)))
    found.on("request", lambda sent: found.hosts.add(sent.url.split("/")[2]))
    found.goto(server.address)
    found.get_by_role("checkbox", name="mood").wait_for()
    found.locator("#state.good").wait_for()
    yield found
    context.close()


def cells(page) -> list[list[str]]:
    """The rows of the task matrix."""
    return page.evaluate("[...document.querySelectorAll('#matrix tbody tr')].map(r => [...r.cells].slice(1)"
                         ".map(c => c.textContent))")  # fmt: skip


def test_a_visitor_picks_tasks_and_reads_answers(page, server: Running, tmp_path: Path):
    assert page.get_by_role("status").inner_text().startswith("ready")
    for name in ("topic", "people", "places", "summary"):
        page.get_by_role("checkbox", name=name).check()
    page.get_by_label("Text", exact=True).fill(TEXT)
    page.keyboard.press("Control+Enter")
    answers = page.get_by_role("list", name="Answers").get_by_role("listitem")
    answers.nth(3).wait_for()
    assert "% sure" in answers.nth(0).inner_text() and answers.nth(0).locator("b").inner_text().startswith("topic ")
    shown = answers.nth(1).locator(".tagged").inner_text()
    assert all(word in shown for word in TEXT.split())
    marks = page.locator("#answers mark")
    assert marks.count() >= 1 and "%" in marks.first.inner_text()
    assert answers.nth(3).locator("blockquote").inner_text()
    assert page.locator("#tasks tbody tr").count() == 8 and "equal gates" in page.locator("#tasks").inner_text()
    assert page.locator("#heat tbody td").count() == 64 and cells(page)[7] == ["50"] * 8
    page.wait_for_function("document.querySelector('#numbers').innerText.includes('answers a second')")
    page.screenshot(path=tmp_path / f"{page.look}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it must not scroll sideways"
    assert page.problems == [] and page.hosts == {server.address.removeprefix("http://")}


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_mistakes_are_told(page):
    page.get_by_label("Text", exact=True).fill("nice day")
    page.get_by_role("button", name="Ask", exact=True).click()
    assert page.get_by_role("alert").inner_text() == "Choose at least one task."
    page.get_by_role("checkbox", name="aspect").check()
    page.get_by_role("button", name="Ask", exact=True).click()
    page.get_by_text("expected two fields").wait_for()
    page.get_by_role("checkbox", name="mood").check()  # the one that can answer does
    page.get_by_role("button", name="Ask", exact=True).click()
    page.locator("#answers .bad").wait_for()
    assert page.locator("#answers b").count() == 1
    page.get_by_label("Second field").fill("the day")  # for the one that takes it; the others answer without
    page.get_by_role("checkbox", name="people").check()
    page.get_by_role("button", name="Ask", exact=True).click()
    page.locator("#answers li").nth(2).wait_for()
    assert page.locator("#answers b").count() == 2 and page.locator("#answers .bad").count() == 0
    assert "the day" not in page.locator("#answers .tagged").inner_text()


@pytest.mark.parametrize("page", ["narrow"], indirect=True)
def test_the_page_works_from_the_keyboard_and_for_screen_readers(page):
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the text field"
    page.get_by_label("Find a task").fill("peo")
    assert page.get_by_role("checkbox").count() == 1
    page.get_by_role("checkbox", name="people").press("Space")
    assert page.locator("#picked").inner_text() == "1 chosen"
    unnamed = page.evaluate(
        "[...document.querySelectorAll('input,textarea,button')].filter(e => !(e.labels && e.labels.length)"
        " && !e.getAttribute('aria-label') && !e.textContent.trim()).length"
    )
    assert unnamed == 0 and page.evaluate("document.documentElement.lang") == "en"
    assert page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(h => h.tagName)[0]") == "H1"


def task(number: int, name: str, scores: dict[str, float], state: str = "ok") -> dict:
    return {"id": number, "name": name, "scores": scores, "state": state}


def test_the_task_matrix_tells_what_is_known(page):
    again = task(9, "again", {"macro_f1": 71.26, "accuracy": 3.0})  # the version in use is the newest of all
    listed = [again, task(2, "b", {}), task(3, "c", {"rouge_1": 9.0}, "damaged"), task(4, "d", {"f1": 100.0})]

    def shown(tasks: list[dict], forgets: bool | None) -> tuple[list[list[str]], str]:
        page.evaluate("([tasks, forgets]) => showMatrix(tasks, forgets)", [tasks, forgets])
        return cells(page), page.locator("#matrix-note").inner_text()

    found, note = shown(listed, False)
    assert found == [["–", "", "", ""], ["–", "9", "", ""], ["–", "–", "100", ""], ["–", "–", "100", "71"]]
    assert "equal by hash, not tested again" in note
    table = page.get_by_role("table", name="Task matrix")
    assert table.get_by_role("columnheader", name="again").count() == 1
    assert table.get_by_role("rowheader").nth(3).inner_text().split() == ["4", "again"]
    assert table.locator("tr").nth(4).locator("td").nth(3).get_attribute("title") == "again after again: 71.3 macro-f1"
    for forgets, words in ((True, "they are unknown (–)"), (None, "learnt together")):
        found, note = shown(listed, forgets)
        assert found[3] == ["–", "–", "–", "71"] and words in note and "hash" not in note
    long = "a task with a long name"
    found, note = shown([task(i, f"{long} {i}", {"f1": 1.7 * i}) for i in range(60)], False)
    assert note.startswith("The newest 48 of 60 tasks.") and len(found) == 48 and found[0] == ["20", *[""] * 47]
    assert found[47][:2] == ["20", "22"] and table.get_by_title(f"{long} 12", exact=True).count() == 2
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it must not scroll sideways"
    assert page.evaluate(CONTRAST) >= 4.5


def test_names_are_text_and_never_markup(browser, own_store: Path):
    from planted import plant

    from tss import Learner

    writer = Learner.open(own_store, device="cpu")
    with Running(own_store) as server:
        found = browser.new_page()
        found.goto(server.address)
        found.get_by_role("checkbox", name="mood").wait_for()
        with writer.store.writing(wait=5):
            plant(writer, "<img src=x onerror=alert(1)>", "classification", 2)
        found.get_by_role("checkbox", name="<img").wait_for()  # it appears without a reload
        assert found.locator("main img").count() == 0
        found.close()


def test_an_empty_store_and_a_server_that_is_gone_are_told(browser, tmp_path: Path):
    from tss.store import Store

    Store.open(tmp_path / "store", create=True)
    found = browser.new_page()
    with Running(tmp_path / "store", wait=False) as server:
        found.goto(server.address)
        found.get_by_text("waiting for the first task").wait_for()
        assert "No tasks yet" in found.locator("#tasks").inner_text()
        assert "No tasks yet" in found.locator("#matrix").inner_text() and not found.get_by_text("Bold").is_visible()
        assert "Two tasks" in found.locator("#heat").inner_text()
        found.screenshot(path=tmp_path / "empty.png", full_page=True)
    found.get_by_text("The server cannot be reached.").wait_for()
    found.close()
