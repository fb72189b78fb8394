"""The guard of the fault suite: code out of a file is seen, whatever it says it is; reading a store is not."""

from __future__ import annotations

import importlib.util
import json
import marshal
import os
import pickle  # to make and run a hostile file; the package itself must not import it
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], list[str]]:
    """Do something in a process of its own under the guard of the store `tmp_path / "store"`; what the guard saw."""
    for folder in (ROOT, ROOT / "tests" / "store"):
        monkeypatch.syspath_prepend(str(folder))
    from torture.form import in_child
    from torture.hostile import _guard

    def do(work: Callable[[], object]) -> list[str]:
        def child() -> None:
            seen = _guard(tmp_path / "store")
            work()
            (tmp_path / "seen.json").write_text(json.dumps(seen))

        assert in_child(child) == 0
        return json.loads((tmp_path / "seen.json").read_text())

    return do


def run_text(file: Path) -> None:
    exec(file.read_text())


def run_code(file: Path) -> None:
    exec(marshal.loads(file.read_bytes()))


def run_module(file: Path) -> None:
    spec = importlib.util.spec_from_file_location("hostile_module", file)
    assert spec and spec.loader
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def run_pickle(file: Path) -> None:
    pickle.loads(file.read_bytes())


def run_shell(file: Path) -> None:
    os.system(file.read_text())


class Touches:
    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize(
    ("run", "event"),
    [
        (run_text, "exec"),
        (run_code, "exec"),
        (run_module, "exec"),
        (run_pickle, "pickle.find_class"),
        (run_shell, "os.system"),
    ],
)
def test_code_from_a_file_of_the_store_is_seen(tmp_path: Path, guarded, run: Callable[[Path], None], event: str):
    canary, file = tmp_path / "canary", tmp_path / "store" / "file.py"
    source = f"open({str(canary)!r}, 'w').close()"
    content = {
        run_code: lambda: marshal.dumps(compile(source, json.__file__, "exec")),  # says it is the standard library
        run_pickle: lambda: pickle.dumps(Touches(canary)),
        run_shell: lambda: f"touch {canary}".encode(),
    }
    file.parent.mkdir()
    file.write_bytes(content.get(run, source.encode)())
    seen = guarded(lambda: run(file))
    assert canary.exists(), "the code did not run, so this shows nothing"
    assert any(one.startswith(event + " ") for one in seen), seen


def test_reading_a_store_is_not_seen(tmp_path: Path, guarded):
    from store_samples import assert_same, family

    from tss.store import Store

    _, records = family(tmp_path / "store")

    def read() -> None:
        store = Store.open(tmp_path / "store")
        assert store.damage() == {}
        for name, one in records.items():
            assert_same(store.read(name), one)

    assert guarded(read) == []


def test_a_file_outside_the_store_is_seen(tmp_path: Path, guarded):
    assert guarded(lambda: os.open("/etc", os.O_RDONLY)) == ["open /etc"]
