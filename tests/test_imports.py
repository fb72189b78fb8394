"""The shape of the package: imports go one way, files stay short, names say what is inside, `import tss` is quick."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "tss"
FILES = sorted(PACKAGE.rglob("*.py"))
BESIDE = sorted(path for part in ("tests", "benchmarks", "torture") for path in (PACKAGE.parent / part).rglob("*.py"))

LEAVES = {"errors", "randomness"}  # anyone may import them
ENGINE = {"tasks", "backbones", "gates", "methods", "learning"}
BELOW_LEARNER = ENGINE | {"store", "data", "config", "settings", "results", "keeping", "operations", "finding"}
FACE = BELOW_LEARNER | {"learner"}
ALLOWED = {
    "errors": set(),
    "randomness": set(),
    "tasks": set(),
    "backbones": set(),
    "store": set(),
    "results": set(),
    "data": {"tasks"},
    "gates": {"backbones"},
    "methods": {"gates", "backbones", "tasks"},
    "learning": {"methods", "gates", "backbones", "tasks"},
    "config": ENGINE,
    "settings": {"config"},
    "keeping": BELOW_LEARNER - {"keeping", "operations", "finding"},
    "operations": BELOW_LEARNER - {"operations", "finding"},
    "finding": BELOW_LEARNER - {"finding", "operations"},
    "learner": BELOW_LEARNER,
    "report": FACE,
    "bench": FACE | {"report", "tss"},
    "serve": FACE | {"tss"},
    "demo": FACE | {"report", "bench"},
    "cli": FACE | {"report", "bench", "serve", "demo", "tss"},
    "__init__": {"learner", "tasks"},
    "__main__": {"cli"},
}
# `Task.from_folder` and `Task.from_dataset` stand where a user looks for them; the readers behind them are in `data`.
DOORS = {("tasks/task.py", "data")}
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "core", "misc"}
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal"}


def part_of(path: Path) -> str:
    """`tss/gates/scores.py` -> `gates`, `tss/learner.py` -> `learner`."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of each import, wherever it stands, except under `if TYPE_CHECKING:`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for other in node.orelse:
                yield from imported(other)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            names = [f"tss.{alias.name}" for alias in node.names] if module == "tss" else [module]
            yield from ((node.lineno, name) for name in names)
        else:
            yield from imported(node)


def wrong_imports(source: str, part: str, doors: frozenset[str] = frozenset()) -> list[str]:
    """The imports of a file of `part` that the architecture does not allow."""
    wrong = []
    for line, name in imported(ast.parse(source)):
        parts = name.split(".")
        if name.startswith("."):
            wrong.append(f"line {line}: relative import; write the full name")
        elif parts[0] in FORBIDDEN_MODULES:
            wrong.append(f"line {line}: {name} runs code on load")
        elif parts[0] == "tss":
            target = parts[1] if len(parts) > 1 else "tss"
            if target != part and target not in ALLOWED[part] | LEAVES | doors:
                wrong.append(f"line {line}: {part} must not import {name}")
    return wrong


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path):
    assert part_of(path) in ALLOWED, f"{path.name} is a new part: say in ALLOWED what it may import"
    doors = frozenset(target for file, target in DOORS if PACKAGE / file == path)
    assert wrong_imports(path.read_text(encoding="utf-8"), part_of(path), doors) == []


@pytest.mark.parametrize(
    ("part", "source"),
    [
        ("gates", "from tss.methods.tss import Tss"),
        ("tasks", "def f():\n    import tss.data.folder"),
        ("backbones", "from tss import learner"),
        ("methods", "try:\n    from tss.learning.loop import train\nexcept ImportError:\n    pass"),
        ("store", "import pickle"),
        ("learner", "from .store import read"),
        ("report", "from tss.bench.run import run"),
    ],
)
def test_the_check_sees_wrong_imports(part: str, source: str):
    assert len(wrong_imports(source, part)) == 1


def test_the_check_allows_types_only():
    source = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tss.learner import Learner\n"
    assert wrong_imports(source, "gates") == []


@pytest.mark.parametrize("path", [*FILES, *BESIDE], ids=lambda path: str(path.relative_to(PACKAGE.parent)))
def test_files_are_short_and_well_named(path: Path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300, "split it by noun"
    names = set(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    assert not names & FORBIDDEN_NAMES, "name it after what it is about"


def test_every_folder_with_code_is_a_package():
    missing = sorted({str(path.parent) for path in FILES if not (path.parent / "__init__.py").is_file()})
    assert missing == [], "without __init__.py the wheel leaves it out"


def run(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, encoding="utf-8", timeout=60, check=True
    ).stdout


HEAVY = ("torch", "transformers", "numpy", "sklearn", "datasets")
QUICK = f"""
import sys, time
before = time.perf_counter()
import {{module}}
seconds = time.perf_counter() - before
print(seconds, [name for name in {HEAVY!r} if name in sys.modules])
"""


@pytest.mark.parametrize("module", ["tss", "tss.errors", "tss.tasks.task", "tss.cli"])
def test_import_is_quick_and_without_torch(module: str):
    # The best of three: a busy machine must not fail the test, a slow import must.
    runs = [run("-c", QUICK.format(module=module)).split(maxsplit=1) for _ in range(3)]
    assert {heavy.strip() for _, heavy in runs} == {"[]"}
    assert min(float(seconds) for seconds, _ in runs) < 0.3


def test_the_public_names():
    import tss
    from tss.tasks.task import Task

    assert dir(tss) == ["Learner", "Task", "__version__"]
    assert tss.Task is Task
    with pytest.raises(AttributeError, match="no attribute 'learner_'"):
        tss.learner_  # noqa: B018
