"""R5: bad input through API, command line and HTTP: the documented error, quickly, no traceback, nothing changed.

The cases are in bad_inputs.json, one group a mistake: `each` lists values, whose combinations are the cases. `error`:
the classes allowed (TaskError if not said); `says`: what the message must hold; `http`: the status a server answers a
predict case with (`cases("http")` gives them).
"""

from __future__ import annotations

import http.client
import itertools
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared_checks import open_learner
from tiny import tiny_path
from toy_tasks import KINDS, toy
from typer.testing import CliRunner

from torture.form import Asked, Told
from torture.overload import Serving, serving
from tss import Learner, Task, errors

SECONDS = 1.0  # of the processor, so that a busy machine is no fault


@dataclass(frozen=True)
class Case:
    about: str
    call: str
    given: dict[str, Any]
    error: tuple[str, ...]
    says: str
    http: int | None
    through: tuple[str, ...]


def cases(through: str | None = None) -> Iterator[Case]:
    """Every case of bad_inputs.json; only those for "api", "cli" or "http" if asked."""
    for group in json.loads(Path(__file__).with_suffix(".json").read_text()):
        for values in itertools.product(*group["each"].values()):
            given = dict(zip(group["each"], map(_value, values), strict=True))
            ways = tuple(group.get("through", ("api", "cli"))) + (("http",) if "http" in group else ())
            case = Case(group["about"], group["call"], given, tuple(group.get("error", ["TaskError"])),
                        group.get("says", ""), group.get("http"), ways)  # fmt: skip
            if through is None or through in ways:
                yield case


def _value(value: Any) -> Any:
    if isinstance(value, dict) and list(value) == ["times"]:
        return value["times"][0] * value["times"][1]
    return value


class Bench:
    """A store with a task of each kind, and how each kind of case is put to it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.learner = open_learner(folder / "store", tiny_path("bart"), max_steps=1)
        for kind in KINDS:
            self.learner.learn(toy(kind))
        self.count = 0

    def write(self, files: dict[str, str]) -> Path:
        """A new task folder; `hex:` begins bytes."""
        self.count += 1
        place = self.folder / f"task {self.count}"
        place.mkdir()
        for name, text in files.items():
            blob = bytes.fromhex(text[4:]) if text.startswith("hex:") else text.encode("utf-8", "surrogatepass")
            (place / name).write_bytes(blob)
        return place

    def api(self, case: Case) -> Callable[[], Any] | None:
        given, learner = case.given, self.learner
        fresh = self.folder / f"new {self.count}"
        calls: dict[str, Callable[[], Any]] = {
            "predict": lambda: learner.predict([given["task"]], [given["input"]]),
            "predict whole": lambda: learner.predict(given["task"], given["inputs"]),
            "learn": lambda: learner.learn(Task.from_folder(self.write(given))),
            "evaluate": lambda: learner.evaluate(Task.from_folder(self.write(given))),
            "open": lambda: Learner.open(fresh, **{"device": "cpu", **given}),
            "open and learn": lambda: Learner.open(fresh, device="cpu", **given).learn(toy("pair")),
            "reopen": lambda: Learner.open(learner.store.path, device="cpu", **given),
        }
        return calls.get(case.call)

    def command(self, case: Case) -> list[str] | None:
        """The same at the command line, where it can be said there."""
        given, store = case.given, str(self.learner.store.path)
        if case.call == "command":
            places = {"STORE": store, "NOWHERE": str(self.folder / "nowhere"), "FILE": str(self.folder / "file")}
            return [places.get(one, one) for one in given["arguments"]]
        if case.call in ("learn", "evaluate"):
            return [case.call, store, str(self.write(given))]
        if case.call == "predict" and isinstance(given["task"], str):
            value = given["input"]
            if isinstance(value, str) and "\0" not in value and len(value) < 100_000:  # what a shell can pass
                return ["predict", store, "--", given["task"], value]
            if isinstance(value, dict) and set(value) == {"text", "pair"} and {*map(type, value.values())} == {str}:
                return ["predict", store, given["task"], value["text"], "--pair", value["pair"]]
        return None


def run(asked: Asked) -> Told:
    told = Told(
        "each bad input of bad_inputs.json through the API and, where it can be said there, command line and HTTP"
    )
    bench = Bench(asked.folder)
    with serving(bench.learner.store.path, None) as server:
        _all(asked, told, bench, server)
        told.check(server.process.poll() is None, f"the server ended: {server.said()}")
        told.check("Traceback" not in server.said(), f"the server told a traceback: {server.said()}")
    return told


def _all(asked: Asked, told: Told, bench: Bench, server: Serving) -> None:
    index = bench.learner.store.path / "index.json"
    before = index.read_bytes()
    counts = {"cases": 0, "api": 0, "command line": 0, "http": 0}
    slowest = 0.0
    for case in cases():
        if not asked.in_time():
            told.whole = False
            break
        counts["cases"] += 1
        shown = f"{case.about}: {str(case.given)[:120]}"
        for way, through in ((_through_api, bench), (_through_commands, bench), (_through_http, server)):
            start = time.process_time()
            done = way(told, through, case, shown)
            if done:
                counts[done] += 1
                seconds = time.process_time() - start
                slowest = max(slowest, seconds)
                told.check(seconds < SECONDS, f"{shown}: {done} took {seconds:.1f} s")
        if not told.check(index.read_bytes() == before, f"{shown}: the store changed"):
            index.write_bytes(before)
    told.numbers = {**counts, "slowest (CPU s)": round(slowest, 2), "wrong": len(told.problems)}


def _through_api(told: Told, bench: Bench, case: Case, shown: str) -> str:
    call = bench.api(case) if "api" in case.through else None
    if call is None:
        return ""
    try:
        answer = call()
        told.check(False, f"{shown}: no error, but {str(answer)[:80]}")
    except errors.TssError as error:
        names = [one.__name__ for one in type(error).__mro__]
        told.check(bool(set(names) & set(case.error)), f"{shown}: {names[0]}: {error}")
        told.check(re.search(case.says, str(error)) is not None, f"{shown}: the message lacks {case.says}: {error}")
    except Exception as error:
        told.check(False, f"{shown}: {type(error).__name__}: {error}")
    return "api"


def _through_commands(told: Told, bench: Bench, case: Case, shown: str) -> str:
    arguments = bench.command(case) if "cli" in case.through else None
    if arguments is None:
        return ""
    from tss.cli import app

    done = CliRunner().invoke(app, arguments)
    known = done.exception is None or isinstance(done.exception, SystemExit)
    told.check(known, f"{shown}: tss {arguments[0]} ended by {done.exception!r}")
    told.check(not known or done.exit_code == 2, f"{shown}: tss {arguments[0]} ended with {done.exit_code}")
    right = re.search("^error: ", done.output, re.M) or "Usage" in done.output
    told.check(not known or bool(right), f"{shown}: tss {arguments[0]} said {done.output[:80]!r}")
    told.check("Traceback" not in done.output, f"{shown}: a traceback")
    return "command line"


def _through_http(told: Told, server: Serving, case: Case, shown: str) -> str:
    if case.http is None:
        return ""
    item = {"task": case.given["task"], **_as_item(case.given["input"])}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    start = time.monotonic()
    try:
        connection.request("POST", "/predict", json.dumps(item), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        body = reply.read()
    except OSError as error:
        told.check(False, f"{shown}: no answer over HTTP: {error!r}")
        return "http"
    finally:
        connection.close()
    told.check(reply.status == case.http, f"{shown}: HTTP {reply.status}, not {case.http}: {body[:120]!r}")
    told.check(bool(_error(body)), f"{shown}: HTTP without a reason: {body[:120]!r}")
    # the server's processor time is not ours to read: wall-clock, with room for a busy machine
    told.check(time.monotonic() - start < 10 * SECONDS, f"{shown}: HTTP took {time.monotonic() - start:.1f} s")
    return "http"


def _as_item(value: Any) -> dict[str, Any]:
    """An input as a client would send it: the fields of an object, or the value as the text."""
    return value if isinstance(value, dict) and set(value) <= {"text", "pair"} and value else {"text": value}


def _error(body: bytes) -> str:
    try:
        return json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return ""
