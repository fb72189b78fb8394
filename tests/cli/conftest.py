from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from stand_in import StandIn


@pytest.fixture
def learner(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn()
    module = ModuleType("tss.learner")
    module.Learner = stand_in  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tss.learner", module)
    return stand_in


@pytest.fixture
def store(tmp_path: Path) -> str:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "index.json").write_text("{}")
    return str(tmp_path / "store")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small task as a user would write it."""
    path = tmp_path / "reviews"
    path.mkdir()
    (path / "task.json").write_text(json.dumps({"name": "reviews", "kind": "classification"}))
    for split in ("train", "valid", "test"):
        rows = [{"text": f"a {word} one for {split} {i}", "label": word} for word in ("good", "bad") for i in range(4)]
        (path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
