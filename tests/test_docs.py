"""The documentation's Python is run as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tss.methods import METHODS, page_of

ROOT = Path(__file__).parents[1]
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if "```python" in page.read_text("utf-8")
]
LINKED = [
    page for place in ("*.md", "docs/**/*.md", "results/*.md", "weights/**/*.md") for page in sorted(ROOT.glob(place))
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_in_the_documentation_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"folder": tmp_path / "store"}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S):
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^) ]+)\)", page.read_text(encoding="utf-8")):
        if not link.startswith("http"):
            name, _, heading = link.partition("#")
            target = page.parent / name if name else page
            assert target.exists(), f"{page.name} links to {link}, which is not there"
            assert not heading or heading in headings(target), f"{page.name} links to {link}: no such heading"


def headings(page: Path) -> set[str]:
    """As a link names them: lower case, hyphens for spaces, without other marks."""
    found = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in found}


def test_every_method_is_in_the_index_with_its_page() -> None:
    lines = (ROOT / "docs" / "methods" / "README.md").read_text(encoding="utf-8").splitlines()
    for name in METHODS:
        assert any(f"`{name}`" in line and f"]({page_of(name)}.md)" in line for line in lines), name


def test_readme_says_what_the_results_say() -> None:
    script = ROOT / "benchmarks" / "readme_numbers.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
