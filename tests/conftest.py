"""What every test may rely on: no network, one torch thread, fixed seeds, and the shared data where it is at hand."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

# Before anything imports torch or transformers; processes started by tests inherit it.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def seeds() -> None:
    """Each test starts from the same seeds, whichever tests ran before it."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared data: TSS_SHARED, or `shared` beside the checkout."""
    folder = Path(os.environ.get("TSS_SHARED") or ROOT.parent / "shared")
    if not folder.is_dir():
        pytest.skip(f"no shared data at {folder}; set TSS_SHARED to its folder to run this test")
    return folder
