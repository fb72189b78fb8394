"""No file of the package loads code: nothing in `tss` imports pickle or a relative of it, or calls torch.load."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "tss"
FORBIDDEN = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "jsonpickle"}
LOADERS = {"torch.load", "torch.save", "np.load", "numpy.load", "pd.read_pickle", "pandas.read_pickle"}


def breaches(source: str) -> list[str]:
    """Imports and calls in a module that can run code from a file."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = [f"{node.value.id}.{node.attr}"]
        bad = [name for name in names if name.split(".")[0] in FORBIDDEN or name in LOADERS]
        found += [f"line {node.lineno}: {name}" for name in bad]
    return found


def test_the_package_never_unpickles():
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 5
    assert {str(file): found for file in files if (found := breaches(file.read_text("utf-8")))} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "import dill as d",
        "import torch\ntorch.load('x')",
        "from torch import load",
    ],
)
def test_breaches_are_seen(source):
    assert breaches(source)
