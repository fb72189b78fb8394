"""Folders with a small task, to be broken in one place."""

from __future__ import annotations

import json
from pathlib import Path

GOOD = b'{"text": "good day", "label": "good"}\n{"text": "bad day", "label": "bad"}\n'
CLASSIFY = {"name": "mood", "kind": "classification"}


def make(path: Path, described: object, files: dict[str, bytes]) -> Path:
    path.mkdir()
    if described is not None:
        (path / "task.json").write_text(described if isinstance(described, str) else json.dumps(described))
    for name, content in files.items():
        (path / name).write_bytes(content)
    return path
