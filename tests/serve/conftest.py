"""A server on a store of planted tasks, for the whole run, and one of its own for tests that change things."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from planted import planted
from running_server import Running
from tiny import tiny_path

pytest.importorskip("fastapi", reason="serving needs the extra `serve`")


@pytest.fixture(scope="session")
def planted_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "store"
    planted(path, tiny_path("bart"))
    return path


@pytest.fixture(scope="module")
def server(planted_store: Path) -> Iterator[Running]:
    """Read only."""
    with Running(planted_store) as running:
        yield running


@pytest.fixture
def own_store(planted_store: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(planted_store, tmp_path / "store"))
