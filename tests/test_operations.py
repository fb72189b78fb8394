"""Tasks carried from store to store, rolled back, removed and collected, by the learner and the command line."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree

import pytest
from shared_checks import answers, open_learner
from tiny import tiny_backbone, tiny_path
from toy_tasks import inputs, toy
from typer.testing import CliRunner

from tss import Learner
from tss.cli import app
from tss.errors import DamagedError, StoreError, UnknownTaskError
from tss.store import disk, portable

KINDS = ("pair", "tagging", "generation")
OLD = Path(__file__).parent / "store" / "format_1"


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three tasks kept as differences from one another, and a second version of the first."""
    path = tmp_path_factory.mktemp("operations") / "store"
    learner = open_learner(path, tiny_path("bart"), max_steps=4, score_lr=1e-4)
    for kind in KINDS:
        learner.learn(toy(kind))
    learner.learn(toy("pair", turned=True), new_version=True)
    assert [entry.depth for entry in learner.store.index().tasks] == [0, 1, 2, 3]
    return path


@pytest.fixture
def learner(learnt: Path, tmp_path: Path) -> Learner:
    return Learner.open(copytree(learnt, tmp_path / "store"), device="cpu")


def run(*arguments: object) -> dict:
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def refused(*arguments: object) -> str:
    done = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 2
    return done.output


def test_a_task_carried_to_another_store_answers_alike(learner: Learner, tmp_path: Path):
    """Also into a store whose tasks were trained with other options, and one that does not exist yet."""
    other = open_learner(tmp_path / "other", tiny_path("bart"), max_steps=2, score_lr=1e-3)
    other.learn(toy("classification"))
    for place, kind in enumerate(KINDS):
        task, file = toy(kind), tmp_path / f"{place}.safetensors"
        told = run("export", learner.store.path, task.name, file)
        assert told["bytes"] == file.stat().st_size
        info = other.import_(file)
        assert (info.name, info.kind) == (task.name, task.kind)
        assert answers(other, task) == answers(learner, task)
        run("import", tmp_path / "fresh", file)
    fresh = Learner.open(tmp_path / "fresh", device="cpu")
    assert {check.status for check in [*fresh.verify(), *other.verify()]} == {"equal"}
    assert fresh.learn(toy("classification")).version == 1
    assert answers(fresh, toy("tagging")) == answers(learner, toy("tagging"))


def test_names_and_versions_of_imports(learner: Learner, tmp_path: Path):
    file = tmp_path / "one"
    learner.export("toy pair", file, version=1)
    for call in (lambda: learner.import_(file), lambda: learner.import_(file, name="toy tagging")):
        with pytest.raises(StoreError, match="already"):
            call()
    assert learner.import_(file, name="../x").name == "../x"
    assert learner.import_(file, new_version=True).version == 3
    wanted = learner.predict("../x", inputs(toy("pair")), details=True)
    assert learner.predict("toy pair", inputs(toy("pair")), details=True) == wanted
    with pytest.raises(StoreError, match="exists already"):
        learner.export("toy pair", file)
    assert "no version 9" in refused("export", learner.store.path, "toy pair", tmp_path / "two", "--version", 9)


def test_an_import_that_does_not_fit_is_refused(learner: Learner, tmp_path: Path):
    file = tmp_path / "one"
    learner.export("toy tagging", file)
    there = tiny_backbone(tmp_path, "bart")
    weights = there / "model.safetensors"
    from safetensors.torch import load_file, save_file

    changed = load_file(weights)
    changed[next(iter(changed))].view(-1)[0] += 1
    save_file(changed, weights, metadata={"format": "pt"})
    for place, (folder, method, options, named) in enumerate(
        [
            (there, "tss", {}, "backbone_hash"),
            (tiny_path("bart"), "supsup", {}, "method"),
            (tiny_path("bart"), "tss", {"adapter_seed": 3}, "adapter_hash"),
            (tiny_path("bart"), "tss", {"bottleneck": 8}, "bottleneck"),
        ]
    ):
        other = open_learner(tmp_path / f"store {place}", folder, method, max_steps=1, **options)
        for _ in range(2):  # an empty store, and one with a task
            with pytest.raises(StoreError, match=f"does not fit(.|\n)*{named}"):
                other.import_(file)
            if not other.tasks():
                other.learn(toy("pair"))
        assert [info.name for info in other.tasks()] == ["toy pair"]


def test_tasks_that_share_weights_cannot_be_carried(tmp_path: Path):
    learner = open_learner(tmp_path / "store", tiny_path("bart"), "ncl-adapter", max_steps=1)
    learner.learn(toy("pair"))
    with pytest.raises(StoreError, match="copy the whole folder"):
        learner.export("toy pair", tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_every_changed_byte_of_an_export_is_noticed(learner: Learner, tmp_path: Path):
    file = tmp_path / "one"
    learner.export("toy pair", file)
    good = file.read_bytes()
    assert portable.unpack(good).version == 2
    for place in range(len(good)):
        with pytest.raises(ValueError):
            portable.unpack(good[:place] + bytes([good[place] ^ (1 << place % 8)]) + good[place + 1 :])
    for length in range(0, len(good), 29):
        with pytest.raises(ValueError):
            portable.unpack(good[:length])
    file.write_bytes(good[:-1])
    with pytest.raises(DamagedError, match="cannot be imported"):
        learner.import_(file)
    for odd in ("/dev/null", "/dev/zero", tmp_path, tmp_path / "none", "a\0b"):
        with pytest.raises(StoreError):
            learner.import_(odd)


@pytest.mark.parametrize(
    ("value", "written", "otherwise"),
    [
        (1e-05, b"1e-05", b"1E-05"),
        (0.1 + 0.2, b"0.30000000000000004", b"0.30000000000000005"),
        ("\xee", b"u00ee", b"u00eE"),
    ],
)
def test_another_spelling_of_the_same_value_is_noticed(learner: Learner, value, written: bytes, otherwise: bytes):
    found = learner.store.read("toy pair")
    record = type(found)(found.name, found.meta, found.gates, found.tensors, found.probes, {"time": value})
    good = portable.pack(portable.Carried(record, 1, learner.store.index().identity))
    assert portable.unpack(good).record.summary == {"time": value} and good.count(written) == 1
    with pytest.raises(ValueError, match="not written as they were kept"):
        portable.unpack(good.replace(written, otherwise))


def _spoilt(learner: Learner, how: str) -> portable.Carried:
    entry = learner.store.index().entry("toy pair")
    found = learner.store.read("toy pair")
    meta, tensors, probes = dict(found.meta), dict(found.tensors), dict(found.probes)
    gates = found.gates
    if how == "head":
        tensors["head.outer.weight"] = tensors["head.outer.weight"][:, :3]
    elif how == "other head":
        tensors["head.outer.weight"] = -tensors["head.outer.weight"]
    elif how == "gates":
        gates = gates[:-5]
    elif how == "no gates":
        gates = None
    elif how == "kind":
        meta["kind"] = "../../etc/passwd"
    elif how == "labels":
        meta["labels"] = 7
    elif how == "no meta":
        meta = {}
    elif how == "probe":
        probes["input.ids"] = probes["input.ids"] + 10_000
    elif how == "no probes":
        probes = {}
    record = type(found)(found.name, meta, gates, tensors, probes, {"scores": "x"})
    return portable.Carried(record, entry.version, learner.store.index().identity)


@pytest.mark.parametrize(
    "how", ["head", "other head", "gates", "no gates", "kind", "labels", "no meta", "probe", "no probes"]
)
def test_an_intact_file_of_the_wrong_content_is_refused(learner: Learner, tmp_path: Path, how: str):
    """Whoever makes a file can make its checksum too."""
    portable.write(tmp_path / "file", _spoilt(learner, how))
    with pytest.raises(StoreError):
        learner.import_(tmp_path / "file", name="new")
    assert "new" not in [info.name for info in learner.tasks()]


@pytest.mark.parametrize("how", ["head", "gates", "kind", "labels", "no meta"])
def test_a_stored_task_of_the_wrong_content_is_refused_alone(learner: Learner, how: str):
    record = _spoilt(learner, how).record
    with learner.store.writing():
        learner.store.add(type(record)("bad", record.meta, record.gates, record.tensors, record.probes, {}))
    with pytest.raises(DamagedError, match="'bad' cannot answer"):
        learner.predict("bad", ["x"])
    found = {check.name: check.status for check in learner.verify()}
    assert found.pop("bad") == "damaged" and set(found.values()) == {"equal"}
    assert learner.tasks()[-1].name == "bad"


def test_rollback_remove_and_gc(learner: Learner):
    first, store = answers(learner, toy("tagging")), learner.store.path
    second = learner.predict("toy pair", inputs(toy("pair")), details=True)
    assert run("rollback", store, "toy pair")["task"]["version"] == 1
    assert learner.predict("toy pair", inputs(toy("pair")), details=True) != second
    assert "no version before" in refused("rollback", store, "toy pair")
    assert run("rollback", store, "toy pair", "--to", 2)["task"]["version"] == 2
    assert learner.predict("toy pair", inputs(toy("pair")), details=True) == second
    assert run("remove", store, "toy pair")["versions"] == 2
    assert "removed" in refused("predict", store, "toy pair", "x")
    with pytest.raises(UnknownTaskError):
        learner.predict("toy pair", ["x"])
    found = run("gc", store)
    assert found["tasks"] == [["toy pair", 1], ["toy pair", 2]] and found["files"] == 2
    assert answers(learner, toy("tagging")) == first
    assert {check.status for check in learner.verify()} == {"equal"}
    assert learner.learn(toy("pair")).version == 1
    assert {check.status for check in learner.verify()} == {"equal"}


def test_a_task_can_be_learnt_after_the_last_one_was_removed(learner: Learner):
    learner.remove("toy pair")
    assert learner.learn(toy("classification")).version == 1
    assert learner.gc().tasks == (("toy pair", 1), ("toy pair", 2))
    assert {check.status for check in learner.verify()} == {"equal"}


def test_a_store_of_format_1_answers_as_then(tmp_path: Path):
    copytree(OLD, tmp_path / "old")
    learner = Learner.open(tmp_path / "old" / "store", str(tmp_path / "old" / "backbone"), device="cpu")
    assert {check.status for check in learner.verify()} <= {"equal", "close"}
    assert learner.learn(toy("classification")).version == 1
    assert learner.rollback("toy pair").version == 1
    assert {check.status for check in learner.verify()} <= {"equal", "close"}


def test_tasks_learnt_together_appear_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The index names all of them or none at any moment."""
    learner = open_learner(tmp_path / "store", tiny_path("bart"), "mtl-adapter", max_steps=2)
    seen: list[int] = []
    real = disk.write_file

    def watched(root: Path, name: str, blob: bytes) -> None:
        real(root, name, blob)
        seen.append(len(Learner.open(tmp_path / "store", device="cpu").tasks()))

    monkeypatch.setattr(disk, "write_file", watched)
    learner.learn_together([toy(kind) for kind in KINDS])
    assert set(seen) == {0, 3}
