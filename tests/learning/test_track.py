"""Trackers get losses and scores, through accelerate; a tracker that is not there is told before anything begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from toy_tasks import toy
from typer.testing import CliRunner

from tss.cli import app
from tss.errors import ConfigError
from tss.learning import track
from tss.learning.progress import Progress
from tss.learning.track import Track, check_trackers, tracked


def run_of_two_tasks(names: list[str], folder: Path) -> None:
    with tracked(names, folder, "tss.own/a b", {"max_steps": 20, "method": "tss", "odd": None}) as one:
        assert isinstance(one, Track)
        for task in ("first", "second"):
            for step in range(1, 21):
                one.watch(Progress(task, step, 20, float(step), 50.0 + step if step == 20 else None, None))
            one.watch(Progress(task, 20, 20, 0.0, None, 1.0, "remembering"))
            one.scores(task, {"macro_f1": 70.0, "accuracy": 80.0})


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: dict[str, list[tuple[int, float]]] = {}
    for file in folder.rglob("events.out.*"):
        events = EventAccumulator(str(file)).Reload()
        for name in events.Tags()["scalars"]:
            found[name] = [(event.step, event.value) for event in events.Scalars(name)]
    return found


def test_tensorboard_has_the_numbers(tmp_path: Path):
    pytest.importorskip("tensorboard")
    run_of_two_tasks(["tensorboard"], tmp_path / "track")
    found = scalars(tmp_path / "track")
    assert found["loss"] == [(10, 5.5), (20, 15.5), (30, 5.5), (40, 15.5)]  # means of ten; steps of all tasks
    assert found["dev"] == [(20, 70.0), (40, 70.0)]
    assert found["test/second/macro_f1"] == [(40, 70.0)] and found["test/first/accuracy"] == [(20, 80.0)]


def test_mlflow_has_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the light package has no data base
    run_of_two_tasks(["mlflow"], tmp_path / "track")
    client = mlflow.MlflowClient()
    (experiment,) = (one for one in client.search_experiments() if one.name == "tss")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.params["max_steps"] == "20" and run.data.metrics["test/second/accuracy"] == 80.0
    losses = client.get_metric_history(run.info.run_id, "loss")
    assert [(one.step, one.value) for one in losses] == [(10, 5.5), (20, 15.5), (30, 5.5), (40, 15.5)]


def test_a_tracker_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ConfigError, match="did you mean 'tensorboard'"):
        check_trackers(["tensorbord"])
    monkeypatch.setattr(track, "find_spec", lambda name: None if name == "wandb" else object())
    with pytest.raises(ConfigError, match="needs the package wandb"):
        check_trackers(["tensorboard", "wandb"])
    told = CliRunner().invoke(app, ["learn", str(tmp_path / "store"), str(tmp_path), "--track", "wandb"])
    assert told.exit_code == 2 and "pip install" in told.stderr and not (tmp_path / "store").exists()


def test_learn_tracks_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("tensorboard")
    from tiny import tiny_path

    from tss.data.folder import write_folder

    write_folder(toy("classification", "odd / name"), tmp_path / "task")
    given: list[Any] = ["learn", tmp_path / "store", tmp_path / "task", "--backbone", tiny_path("bart")]
    given += ["--device", "cpu", "--set", "max_steps=4", "--set", "eval_steps=2", "--track", "tensorboard"]
    told = CliRunner().invoke(app, [str(word) for word in given])
    assert told.exit_code == 0, told.output
    found = scalars(tmp_path / "store-track")
    assert found["dev"][-1][0] == 4 and any(name.startswith("test/odd") for name in found)
