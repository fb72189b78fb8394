"""The benchmarks' own parts, and their short forms."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts import each other as they do when they are run."""
    monkeypatch.syspath_prepend(str(FOLDER))


def test_goals_are_compared_in_their_own_direction():
    from ratio import faster, smaller

    assert smaller("a", 1.0, 2.0, "ms", 0.5).reached and not smaller("a", 1.1, 2.0, "ms", 0.5).reached
    assert faster("a", 1.0, 2.0, "ms", 2.0).reached and not faster("a", 1.1, 2.0, "ms", 2.0).reached
    assert smaller("a", 1.0, 2.0, "ms").reached is None


def test_sides_take_turns():
    from ratio import alternate

    calls: list[str] = []
    found = alternate({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, "cpu", rounds=2, warm=1)
    assert calls == ["a", "b"] * 3 and set(found) == {"a", "b"}


def test_a_run_leaves_a_line_and_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    from performance_report import lines_of, written
    from ratio import faster, finish, smaller

    lines = tmp_path / "performance.jsonl"
    given = ["growth.py", "--store", "/home/someone/store", "--out", str(lines)]
    monkeypatch.setattr(sys, "argv", given)
    args = argparse.Namespace(out=lines)
    figures = [smaller("kept", 1.0, 2.0, "MB", 0.5), faster("slow", 3.0, 2.0, "ms", 1.0)]
    assert finish(args, "nano", "CPU", {"torch": "2"}, figures) == 1
    assert finish(args, "nano", "CPU", {"torch": "2"}, figures[:1]) == 0
    assert "MISSED" in capsys.readouterr().out
    told = [json.loads(line) for line in lines.read_text().splitlines()]
    assert told[0]["command"] == "python benchmarks/growth.py --store STORE"
    (tmp_path / "performance").mkdir()
    other = {"shape": "nano", "where": "CPU", "versions": {}, "figures": told[0]["figures"]}
    (tmp_path / "performance" / "many.json").write_text(json.dumps(other))
    found = lines_of(lines)
    assert [line["benchmark"] for line in found] == ["many_tasks_in_a_batch", "growth"]  # the last run of each counts
    assert finish(args, "nano, slow only", "CPU", {"torch": "2"}, [faster("kept", 3.0, 2.0, "ms", 0.5)]) == 0
    both = lines_of(lines)[1:]  # a later run of a part: what it measured is shown of it alone
    assert [[one["what"] for one in line["figures"]] for line in both] == [[], ["kept"]]
    page = written(found, "notes", picture=False)
    assert "**missed**" in page and "2 of 3 figures meet" in page and "/home" not in page


def test_bits_of_a_simulated_chain_follow_the_flips(tmp_path: Path):
    from bytes_per_task import measured, simulated_chain

    found = measured(simulated_chain(tmp_path / "chain", 40_000, flips=0.1, tasks=9))
    assert found["full"] == 2 and found["flips"] == pytest.approx(0.1, abs=0.01)
    assert found["bits"] == pytest.approx((2 + 7 * 0.48) / 9, abs=0.02)


def test_every_side_finds_the_same_importance(tmp_path: Path):
    from importance import CLOSE, Sides
    from tiny import tiny_path

    from tss import Learner

    learner = Learner.open(tmp_path / "store", str(tiny_path("bart")), device="cpu", config={"bottleneck": 4})
    sides = Sides(learner, 5, 7)
    batch = sides.few(3)
    assert len(batch) == 3 and len(sides.batch) == 5
    found = sides.ours(batch)
    torch.testing.assert_close(sides.one_by_one(batch), found, **CLOSE)
    torch.testing.assert_close(sides.functional(batch), found, **CLOSE)
    pytest.importorskip("opacus")
    torch.testing.assert_close(sides.opacus()(batch), found, **CLOSE)


def test_one_example_at_a_time_is_counted_for_the_whole_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import importance
    from tiny import tiny_path

    from tss import Learner

    monkeypatch.setattr(importance, "alternate", lambda calls, *_, **__: dict.fromkeys(calls, 1.0))
    learner = Learner.open(tmp_path / "store", str(tiny_path("bart")), device="cpu", config={"bottleneck": 4})
    found = {one.what: one for one in importance.compare(importance.Sides(learner, 16, 7), "cpu", 1)}
    assert found["time against one example at a time"].peer == 2.0
    assert found["time against one plain forward and backward"].peer == 1.0


def test_the_task_matrix_has_the_plain_loops_numbers():
    from task_matrix import compare
    from tiny import tiny_path

    (figure,) = compare(str(tiny_path("bart")), 4, 6)  # asserts that the cells are equal
    assert figure.ours > 0 and "6 cells" in figure.note


def test_growth_of_a_short_chain():
    from growth import figures_of, measure, picture
    from tiny import tiny_path

    rows = measure(str(tiny_path("bart")), 9, "tss", 3)
    names = [figure.what for figure in figures_of(rows, 3)]
    assert len(rows) == 9 and len(names) == 3
    assert picture(rows).startswith("<svg") and picture(rows).count("<polyline") == 3


def test_a_training_step_beside_its_peers(tmp_path: Path):
    from tiny import tiny_path
    from training_step import compare

    from tss import Learner

    learner = Learner.open(tmp_path / "store", str(tiny_path("bart")), device="cpu", config={"bottleneck": 4})
    args = argparse.Namespace(rows=4, length=8, compile=False, device="cpu", repeats=1, peer_python=None, only=None)
    figures = compare(learner, args)
    assert len(figures) == 4 and all(figure.ours > 0 and figure.peer > 0 for figure in figures)
    args.only = "adapters"
    assert [figure.what for figure in compare(learner, args)] == [figures[0].what]
    assert not any(p.requires_grad for p in learner.backbone.model.parameters())


def test_an_epoch_of_the_trainer_in_turns_with_ours(tmp_path: Path):
    """Every epoch is timed with one of ours after it, and the Trainer does train: its own copy of the head."""
    pytest.importorskip("accelerate")
    import trainer_peer
    from shapes import made_lesson
    from tiny import tiny_path

    from tss import Learner

    learner = Learner.open(tmp_path / "store", str(tiny_path("bart")), device="cpu", config={"bottleneck": 4})
    lesson = made_lesson(learner, 8, 6)
    before = [p.clone() for p in lesson.head.parameters()]
    batches, turns, made = [lesson.batch(lesson.train.rows, [i, i + 1]) for i in range(0, 8, 2)], [], []
    real = trainer_peer.Direct.__init__

    def kept(self, *given):
        real(self, *given)
        made.append((self, [p.detach().clone() for p in self.parameters()]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer_peer.Direct, "__init__", kept)
        theirs, ours = trainer_peer.epochs(learner, lesson, batches, lambda: turns.append(sum(range(10**5))), 2, False)
    (model, start) = made[0]
    assert theirs > 0 and ours > 0 and len(turns) == 2 + trainer_peer.WARM
    assert all(not torch.equal(a, b) for a, b in zip(start, model.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(before, lesson.head.parameters(), strict=True))


def test_random_weights_are_drawn_in_place(tmp_path: Path):
    from shapes import opened

    learner = opened(tmp_path, "toy", "cpu")
    model = learner.backbone.model
    assert model.lm_head.weight is model.model.shared.weight is model.model.encoder.embed_tokens.weight
    assert not any(p.is_meta or p.requires_grad for p in model.parameters())
    norms = [m for m in model.modules() if isinstance(m, torch.nn.LayerNorm)]
    assert norms and all((m.weight == 1).all() and (m.bias == 0).all() for m in norms)
    assert float(model.model.shared.weight.std()) == pytest.approx(model.config.init_std, rel=0.05)


@pytest.mark.parametrize("region", ["layer", "linear"])
def test_the_peers_regions_give_its_own_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, region: str):
    pytest.importorskip("peft")
    from many_tasks_in_a_batch import REGIONS, Sides, plant
    from shapes import opened

    plain = torch.nn.Module.compile  # what is compiled is the same with this backend, which needs no C++ compiler
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self, **given: plain(self, backend="eager", **given))
    learner = opened(tmp_path, "toy", "cpu", "supsup")
    sides = Sides(learner, plant(learner, 32), 6)
    assert len(REGIONS[region](sides.peer)) == {"layer": 4, "linear": 12}[region]
    forms = sides.forms(8, region, 100)  # those with other numbers are left out
    assert list(forms) == ["ours", "eager", "compiled"]
    torch.testing.assert_close(torch.cat(forms["compiled"]()), torch.cat(forms["eager"]()), rtol=1e-3, atol=1e-4)


def test_a_pass_of_the_peer_that_failed_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """PEFT keeps the hooks of a pass that raised: the next one would answer with the adapters of other tasks."""
    pytest.importorskip("peft")
    from many_tasks_in_a_batch import Sides, plant
    from shapes import opened

    learner = opened(tmp_path, "toy", "cpu", "supsup")
    sides = Sides(learner, plant(learner, 32), 6)
    before = torch.cat(sides.theirs(1))

    def fails() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(type(sides.peer.base_model.model.decoder), "forward", lambda *_, **__: 1 / 0)
            sides.theirs(8)

    forms = {"eager": lambda: sides.theirs(8)}
    sides._try(forms, "graph", "eager", fails)
    assert list(forms) == ["eager"] and torch.equal(before, torch.cat(sides.theirs(1)))


def test_inputs_are_counted_by_the_task_that_is_surest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import which_task
    from tiny import tiny_path
    from toy_tasks import toy

    from tss import Learner

    options = {"bottleneck": 4, "max_steps": 2, "min_steps": 1}
    learner = Learner.open(tmp_path / "store", str(tiny_path("bart")), "supsup", device="cpu", config=options)
    tasks = [toy("classification", "one"), toy("classification", "two", turned=True), toy("pair"), toy("tagging")]
    tasks.append(toy("generation"))
    for task in tasks:
        learner.learn(task)
    alone = which_task.found(learner, tasks, 3)
    assert alone["tagging"] == (1, 3, 3) and alone["classification of two texts"] == (1, 3, 3)  # nobody else
    assert alone["classification"][:2] == (2, 6) and len(alone) == 3
    rows = [learner.ready("one").lesson.kind.row(learner.backbone, e.input, e.target) for e in tasks[0].valid]
    doubts = which_task.doubt(learner, "one", rows)
    assert doubts.shape == (len(rows),) and bool(((doubts > 0) & (doubts <= 1 + 1e-6)).all())
    monkeypatch.setattr(which_task, "doubt", lambda _, name, rows: torch.full((len(rows),), float(name == "two")))
    assert which_task.found(learner, tasks, 3)["classification"] == (2, 6, 3)  # all are taken for task one


def test_the_laboratory_takes_the_demos_similar_tasks_with_more_tests():
    from demo_transfer import TESTS, similar_tasks

    from tss.data.demo import demo_tasks

    usual = {task.name: task for task in demo_tasks(3)}
    found = similar_tasks(3)
    assert [task.family for task in found].count("asc") == 5 and [task.family for task in found].count("ner") == 3
    for task in found:
        assert task.train == usual[task.name].train and TESTS - 8 <= len(task.test) <= TESTS
    assert {task.name: task for task in demo_tasks(3)} == usual  # the demo itself is as it was


def test_tuning_holds_out_whole_texts(tmp_path):
    """Every second of the texts here, with all its examples; without a number the dev examples stand for tests."""
    from tune import without_tests

    task = tmp_path / "data" / "asc" / "shop"
    task.mkdir(parents=True)
    pairs = zip("aabccd", "xyxxyx", strict=True)
    rows = [json.dumps({"text": text, "aspect": aspect, "label": "good"}) + "\n" for text, aspect in pairs]
    (task / "train.jsonl").write_text("".join(rows))
    (task / "valid.jsonl").write_text(rows[0])
    (task / "test.jsonl").write_text("never read")
    held = without_tests(tmp_path / "data", tmp_path / "held", 2) / "asc" / "shop"
    assert (held / "test.jsonl").read_text() == "".join(rows[:2] + rows[3:5])  # a and c
    assert (held / "train.jsonl").read_text() == rows[2] + rows[5]
    dev = without_tests(tmp_path / "data", tmp_path / "dev", 0) / "asc" / "shop"
    assert (dev / "test.jsonl").read_text() == rows[0] and (dev / "train.jsonl").read_text() == "".join(rows)


def test_the_nearest_task_is_told_by_what_differs_between_tasks_not_within():
    """The first number varies widely within each task and the second hardly: only the second tells them apart."""
    from which_task import nearest

    dice = torch.Generator().manual_seed(0)
    drawn = torch.randn(2, 200, 2, generator=dice) * torch.tensor([50.0, 0.1])
    tasks = [drawn[0], drawn[1] + torch.tensor([0.0, 2.0])]
    asked = [torch.tensor([[30.0, 0.1], [-30.0, -0.1]]), torch.tensor([[-3.0, 2.1], [80.0, 1.9], [0.0, 0.0]])]
    assert [found.tolist() for found in nearest(tasks, asked)] == [[0, 0], [1, 1, 0]]


def test_tasks_are_told_apart_by_features_of_the_frozen_backbone(capsys):
    from which_task import by_features

    from tss.data.demo import demo_tasks

    tasks = [task for task in demo_tasks(0) if task.name in ("topics-headlines", "replies-hotel", "summaries-chat")]
    by_features("bart-nano", tasks, "valid", most=8)
    told = capsys.readouterr().out.splitlines()
    for rule in ("by spread, as `tss which`", "by covariance"):
        assert f"{rule}, all: 24 of 24 find their task (100.0 %), 100.0 % their family" in told
