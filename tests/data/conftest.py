from __future__ import annotations

import pytest
from made_folders import CLASSIFY, GOOD, make


@pytest.fixture
def folder(tmp_path):
    """A folder with a good task, to be broken in one place."""
    return make(tmp_path / "mood", CLASSIFY, {"train.jsonl": GOOD, "valid.jsonl": GOOD, "test.jsonl": GOOD})
