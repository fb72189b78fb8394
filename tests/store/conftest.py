"""The store's tests write thousands of small files and sync each: in memory where the system offers it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """As pytest's own, but in memory if possible and gone after the test."""
    memory = "/dev/shm"
    path = Path(tempfile.mkdtemp(prefix="tss-", dir=memory if os.access(memory, os.W_OK) else None))
    yield path
    shutil.rmtree(path)
