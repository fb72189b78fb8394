"""The small ASC tasks cut into folds, and what their answers say."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from tiny import tiny_path

from tss import Learner
from tss.bench.collect import Run, Runs
from tss.data.sequences import sequence
from tss.tasks.task import Task

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[ModuleType, Path]:
    monkeypatch.syspath_prepend(str(FOLDER))
    import asc_folds

    for task in sequence("asc"):
        folder = tmp_path / "data" / task
        folder.mkdir(parents=True)
        for split, count in (("train", 60), ("valid", 12), ("test", 5)):
            rows = [row(f"{task} {split} {i // 2}", i) for i in range(count)]  # two rows of each text
            (folder / f"{split}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    asc_folds.write(tmp_path / "data", tmp_path / "folds")
    return asc_folds, tmp_path / "folds"


def row(text: str, i: int) -> dict[str, str]:
    return {"text": text, "aspect": f"part {i}", "label": ("positive", "negative")[i % 2]}


def test_each_row_is_held_out_once_and_no_text_on_both_sides(made: tuple[ModuleType, Path]):
    module, folds = made
    held: list[str] = []
    for k in range(module.FOLDS):
        task = Task.from_folder(folds / f"fold{k}" / "ipod")
        texts = [{example.input[0] for example in split} for split in (task.train, task.valid, task.test)]
        assert all(texts) and not texts[0] & texts[1] and not texts[2] & (texts[0] | texts[1])
        assert len(task.train) > 5 * len(task.valid) and task.labels == ("positive", "negative")
        held += [" ".join(example.input) for example in task.test]
    assert len(held) == len(set(held)) == 72 and not any("ipod test" in one for one in held)


def test_the_tasks_of_a_fold_are_those_of_asc(made: tuple[ModuleType, Path]):
    module, folds = made
    lines = (folds / "fold2.txt").read_text().split()
    assert [line.split("/")[-1] for line in lines] == [task.split("/")[1] for task in sequence("asc", 2)]
    assert "asc/laptop" in lines and "fold2/ipod" in lines and len(module.SMALL) == 17


def runs(module: ModuleType, folds: Path, label: str, wrong: int, of: int) -> list[Run]:
    """Runs of a method that answers every row right but for `wrong` in each task of each of the first `of` folds."""
    out = []
    for k in range(of):
        tasks, lines = [], []
        for task in module.SMALL:
            folder = folds / f"fold{k}" / task.split("/")[1]
            gold = [("positive", "negative").index(one["label"]) for one in module.read(folder / "test.jsonl")]
            said = [1 - g if i < wrong else g for i, g in enumerate(gold)]
            tasks.append({"name": task, "ref": str(folder)})
            lines.append({"examples": {"labels": ["positive", "negative"], "predicted": said, "gold": gold}})
        out.append(Run({"label": label, "tasks": tasks}, lines))
    return out


def test_the_table_compares_by_the_same_texts(made: tuple[ModuleType, Path]):
    module, folds = made
    ours, other, cut = (runs(module, folds, *one) for one in (("TSS+", 1, 5), ("SupSup", 3, 5), ("ONE", 0, 4)))
    lines = module.collect(Runs({}, [*ours, *other, *cut]), folds)
    assert len(lines) == 17 * 14 and max(lines[0]["texts"]) + 1 == len(lines[0]["gold"]) // 2
    found = module.answers(lines)
    score = module.scores(found["TSS+"])
    assert score["right"][0] == pytest.approx(100 * (1 - 5 / 72)) and len(score["right"]) == 1 + module.DRAWS
    told = module.table(found)
    assert told[2].startswith("| TSS+ | ") and told[2].endswith("| – |")
    assert told[3].startswith("| SupSup | ") and "+13.89 (" in told[3] and told[3].endswith("| 17 of 17 |")
    assert told[4].startswith("Not whole: ONE") and told[5] == "1224 rows of 17 tasks, 5 of 5 folds."
    again, bound = (runs(module, folds, *one) for one in (("TSS+, revisited", 1, 5), ("MTL (Adapter)", 3, 5)))
    lines += module.collect(Runs({}, [*again, *bound]), folds)
    (told,) = (line for line in module.table(module.answers(lines)) if "all data at once" in line)
    assert told.startswith("TSS+, revisited, above MTL (Adapter)") and "right +13.89 (" in told


def test_stores_are_asked_again_once_revisited(made: tuple[ModuleType, Path]):
    """The answers of two tasks of a line, as `tss revisit` leaves them; a store without lines adds nothing."""
    module, folds = made
    names = ("asc/ipod", "asc/router")
    for method in ("tss+", "supsup"):
        learner = Learner.open(
            folds / "stores" / method, backbone=str(tiny_path("bart")), method=method, config={"max_steps": 30}
        )
        for name in names:
            learner.learn(Task.from_folder(folds / "fold1" / name.split("/")[1]))
    tasks = [{"name": name, "ref": str(folds / "fold1" / name.split("/")[1])} for name in names]
    header = {"label": "TSS+", "cell": "tss+", "tasks": tasks}
    plain = {"examples": {"labels": ["positive", "negative"], "predicted": [0], "gold": [0]}}
    found = module.collect(Runs({}, [Run(header, [plain, plain])]), folds, folds / "stores")
    assert [(one["method"], one["task"]) for one in found] == [
        (method, name) for method in ("TSS+", "TSS+, revisited") for name in names
    ]
    learner = Learner.open(folds / "stores" / "tss+")
    assert learner.store.index().names() == names and len(learner.store.index().tasks) == 2  # as it was
    learner.revisit()
    task = Task.from_folder(folds / "fold1" / "ipod")
    said = learner.predict("asc/ipod", [example.input for example in task.test])
    assert [found[2]["labels"][i] for i in found[2]["predicted"]] == said
    alone = {**header, "label": "SupSup", "cell": "supsup"}
    assert len(module.collect(Runs({}, [Run(alone, [plain, plain])]), folds, folds / "stores")) == 2


def test_texts_are_drawn_whole(made: tuple[ModuleType, Path]):
    module, _ = made
    weights = module.drawn(["a", "b", "a", "c"], "asc/ipod")
    assert np.all(weights[0] == 1) and np.all(weights[:, 0] == weights[:, 2])
    assert set(weights[1:, [0, 1, 3]].sum(axis=1)) == {3.0} and len(np.unique(weights[1:], axis=0)) > 5
