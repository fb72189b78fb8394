"""The method of docs/extend.md, taken from the page as it stands, registered, and put to the shared checks."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import shared_checks as checks
from tiny import tiny_path
from toy_tasks import toy

from tss import Learner
from tss.methods import METHODS, method_class

PAGE = Path(__file__).parents[1] / "docs" / "extend.md"


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The page's code as a module of somebody's project, under the name the page gives it."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    (tmp_path / "scales_of_the_page.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(METHODS, "scales", "scales_of_the_page:Scales")
    monkeypatch.delitem(sys.modules, "scales_of_the_page", raising=False)
    return "scales"


def test_the_page_shows_its_own_line_of_the_registry():
    assert '    "scales": "tss.methods.scales:Scales",\n' in PAGE.read_text(encoding="utf-8")


def test_the_pages_method_passes_the_shared_checks(tmp_path: Path, registered: str):
    course = checks.teach(tmp_path / "course", tiny_path("bart"), registered, "tagging")
    checks.check_learns(course)
    checks.check_frozen(course)
    checks.check_memory(course, forgets=False)
    checks.check_resume(tmp_path / "resumed", tiny_path("bart"), registered, course, "tagging")
    again = Learner.open(course.store, device="cpu")
    assert [check.status for check in again.verify()] == ["equal"] * 3
    assert again.method.label == "Scales" and len(again.predict("toy tagging", [["John", "Smith"]])[0]) == 2
    learnt = again.store.read("toy tagging").tensors["method.scales"]
    assert learnt.shape == (again.method.bank.count, 4) and float((learnt - 1).abs().max()) > 0


def test_the_pages_method_learns_texts(tmp_path: Path, registered: str):
    learner = checks.open_learner(tmp_path / "store", tiny_path("gpt2"), registered, max_steps=3, eval_steps=3)
    learner.learn(toy("generation"))
    assert method_class(registered).forgets is False
    assert isinstance(learner.predict("toy generation", ["nice screen"])[0], str)
