"""Many small trainings at once: that a lane learns as if it were alone, and what the rules start from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import small_lanes
    import small_tasks

    monkeypatch.setattr(small_lanes, "BATCH", 4)
    return small_tasks


def lanes_of(lab, count):
    from tss.tasks.batches import Row

    rows = [[Row([0, 5 + i, 6 + j, 2], [j % 2]) for j in range(6)] for i in range(count)]
    return [lab.Lane(f"task {i}", each[:4], each[4:], 2) for i, each in enumerate(rows)]


def test_lanes_know_nothing_of_each_other(lab):
    bench = lab.Bench("cpu", "bart-nano")
    *lanes, third = lanes_of(lab, 3)
    fresh = bench.fresh([lane.name for lane in lanes])
    both = bench.train(lanes, fresh, 3)
    assert not torch.equal(both.scores, fresh.scores)
    again = bench.train([lanes[0], third], fresh, 3)
    torch.testing.assert_close(again.scores[0], both.scores[0])
    assert not torch.allclose(again.head[1], both.head[1], atol=1e-6)
    one, other = bench.answers(lanes, both), bench.answers(lanes[:1], both.of(0, 1))
    torch.testing.assert_close(one[0], other[0], rtol=1e-4, atol=1e-4)
    assert bool(torch.isinf(one[0][:, 2]).all())  # a label that the task does not have


def test_what_rules_start_from(lab):
    size, lane = 4, lab.Lane("task", [None] * 100, [], 2)

    def state(value):
        return lab.State(torch.full((1, size), value), torch.full((1, 3, 2), value), torch.zeros(1, 3))

    fresh = state(0.5)
    for rule, scores, head in (
        (lab.Rule("fresh"), 0.5, 0.5),
        (lab.Rule("last", 3.0), -1.5, -1.0),
        (lab.Rule("line", settle=0.0), -1.0, -1.0),
        (lab.Rule("line", settle=0.5), 0.0, 0.0),  # a quarter of the rows: half of the way from 1 to -1
        (lab.Rule("line", settle=1.0), 0.5, 0.5),
        (lab.Rule("votes", 10.0), 0.0, 0.0),
        (lab.Rule("recent", 2.0, 0.25), 0.5, 0.5),
        (lab.Rule("weighed", 1.0), -1.0, -1.0),  # 400 rows before, 100 of its own: twice as firm
    ):
        line = lab.Line(rule)
        assert line.start(None, lane, fresh) is fresh
        line.add(state(1.0), 300)
        line.add(state(-1.0), 100)
        found = line.start(None, lane, fresh)
        assert found.scores[0].tolist() == pytest.approx([scores] * size), rule
        assert found.head[0, 0].tolist() == pytest.approx([head] * 2), rule


def test_rows_of_one_text_are_in_one_fold(lab):
    from tss.tasks.task import Task

    rows = [((f"text {i // 2}", f"aspect {i}"), "positive") for i in range(20)]
    task = Task.from_lists("asc/x", "classification", rows[:16], rows[16:])
    folds = lab.folds_of(task, lab.Bench("cpu", "bart-nano").backbone)
    assert [len(fold) for fold in folds] == [4] * 5


def test_kept_lines_print(lab):
    import json

    for file in sorted((FOLDER.parent / "results" / "small").glob("*.jsonl")):
        found = lab.table([json.loads(text) for text in file.read_text().splitlines()])
        assert found and all("loss" in line and " / " in line for line in found)
