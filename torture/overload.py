"""R9: ten times what a server can answer, bad requests and huge bodies among it, one task damaged on the way.

"Unloaded" is one client that asks one text at a time, back to back, on its own: the same tasks and texts, no other
request. "Capacity" is the most that was answered in a second while the load was doubled until less than half of it was
answered. The load comes from a process of its own (torture/load.py) that waits for nobody; latency counts from the
moment a request was due. Where there are two cores, the server has one and the generator the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from planted import TASKS, TEXTS, planted

from torture.form import Asked, Told
from torture.load import Plan
from tss import Learner
from tss.store import Store

CLIENTS, TIMES = 16, 10
VICTIM = "topic"
WARM, UNLOADED, CAPACITY = 3.0, 8.0, 5.0  # seconds
ALLOWED = {200, 400, 404, 405, 408, 413, 415, 422, 429, 503}
HUGE = 2 << 20
SHARES = {"good": 0.93, "victim": 0.01, "bad": 0.05, "huge": 0.01}


def _post(body: bytes, method: str = "POST", kind: str = "application/json") -> str:
    head = f"{method} /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
    return head + f"Content-Length: {len(body)}\r\n\r\n" + body.decode("latin-1")


def _requests(store: Path) -> list[tuple[str, str, Any]]:
    """Every task with every text and its offline answer; bad ones; a huge one."""
    asked = [(name, text) for name in TASKS for text in TEXTS]
    inputs = [(text, "the sound") if TASKS[name][2] else text for name, text in asked]
    offline = Learner.open(store, device="cpu").predict([name for name, _ in asked], inputs)
    out: list[tuple[str, str, Any]] = []
    for (name, text), value, answer in zip(asked, inputs, offline, strict=True):
        item = {"task": name, "text": text} | ({"pair": value[1]} if isinstance(value, tuple) else {})
        out.append(("victim" if name == VICTIM else "good", _post(json.dumps(item).encode()), answer))
    good = {"task": "mood", "text": "nice day"}
    bad = [b"", b"{", b"[" * 10_000, b"\xff\xfe", b"{}", b"[]", json.dumps({**good, "task": "nobody"}).encode()]
    bad += [json.dumps({**good, "text": text}).encode() for text in (None, 3, ["a", None], "x" * 20_001)]
    out += [("bad", _post(body), None) for body in bad]
    out += [("bad", _post(b"{}", "PUT"), None), ("bad", _post(b"{}", kind="text/plain"), None)]
    return [*out, ("huge", _post(b'{"text": "' + b"x" * HUGE), None)]


class Serving:
    """`tss serve` on one core."""

    def __init__(self, store: Path, core: int | None):
        command = [sys.executable, "-m", "tss", "serve", str(store), "--port", "0", "--device", "cpu"]
        pin = None if core is None else (lambda: os.sched_setaffinity(0, {core}))
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TSS_TOKEN": ""}
        self.log = (store.parent / "server.log").open("w+")
        self.process = subprocess.Popen(command, stderr=self.log, env=environment, preexec_fn=pin)
        self.port = 0

    def until_ready(self, seconds: float = 60.0) -> None:
        give_up = time.monotonic() + seconds
        while time.monotonic() < give_up and self.process.poll() is None:
            self.log.seek(0)
            found = re.search(r"http://127\.0\.0\.1:(\d+)", self.log.read())
            self.port = int(found[1]) if found else 0
            with contextlib.suppress(OSError):
                if self.port and urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready").status == 200:
                    return
            time.sleep(0.1)
        raise RuntimeError(f"the server did not start: {self.said()}")

    def said(self) -> str:
        self.log.seek(0)
        return self.log.read()[-2000:]

    def memory(self) -> int:
        """Bytes resident, or 0 where the system does not tell."""
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{self.process.pid}/status").read_text()
            return 1024 * int(re.search(r"VmRSS:\s+(\d+)", status)[1])  # type: ignore[index]
        return 0


@contextlib.contextmanager
def serving(store: Path, core: int | None) -> Iterator[Serving]:
    one = Serving(store, core)
    try:
        one.until_ready()
        yield one
    finally:
        one.process.kill()
        one.process.wait()
        one.log.close()


def _load(plan: Plan) -> subprocess.Popen:
    process = subprocess.Popen([sys.executable, "-m", "torture.load"], stdin=-1, stdout=-1, text=True)
    assert process.stdin is not None
    process.stdin.write(json.dumps(asdict(plan)))
    process.stdin.close()
    process.stdin = None
    return process


def _outcome(process: subprocess.Popen) -> list[list[Any]]:
    return json.loads(process.communicate()[0])


def p99(seconds: list[float]) -> float:
    return sorted(seconds)[int(0.99 * len(seconds))] if seconds else float("inf")


def run(asked: Asked) -> Told:
    told = Told(f"{TIMES} x capacity for {asked.seconds:.0f} s, {SHARES['bad']:.0%} bad, {SHARES['huge']:.0%} huge")
    store = asked.folder / "store"
    planted(store, "bart-nano")
    requests = _requests(store)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    mine, its = (cores[0], cores[1]) if len(cores) > 1 else (None, None)
    with serving(store, its) as server:
        plan = Plan(server.port, requests, {"good": 1.0}, WARM, clients=CLIENTS, seed=asked.seed, core=mine)
        _outcome(_load(plan))
        alone = _outcome(_load(Plan(**{**asdict(plan), "clients": 1, "seconds": UNLOADED})))
        unloaded = p99([one[2] for one in alone if one[3] == 200])
        capacity = _capacity(plan, len(alone) / UNLOADED)
        seconds = min(asked.seconds, asked.until - time.monotonic())
        told.whole = seconds >= asked.seconds
        found, grown = _overload(server, store, Plan(**{**asdict(plan), "rate": TIMES * capacity, "shares": SHARES,
                                                        "seconds": seconds}))  # fmt: skip
        told.numbers = {"capacity (1/s)": round(capacity), "unloaded p99 (ms)": round(1e3 * unloaded, 1)}
        _look(told, found, unloaded, grown, seconds)
        told.check(server.process.poll() is None, f"the server ended: {server.said()}")
        server.process.send_signal(signal.SIGTERM)
        told.check(server.process.wait(60) in (0, -signal.SIGTERM), "SIGTERM did not end it cleanly")
        told.check("Traceback" not in server.said(), f"a traceback: {server.said()}")
    return told


def _capacity(plan: Plan, rate: float) -> float:
    """Answers a second at the best of doubled rates, the last of them more than twice too much."""
    best = 0.0
    while True:
        found = _outcome(_load(Plan(**{**asdict(plan), "rate": rate, "seconds": CAPACITY})))
        answered = sum(one[3] == 200 for one in found) / CAPACITY
        best = max(best, answered)
        if rate > 2 * best:
            return best
        rate *= 2


def _overload(server: Serving, store: Path, plan: Plan) -> tuple[list[list[Any]], float]:
    """What came back, and by how much the server's memory grew after the first fifth of the time."""
    generator = _load(plan)
    time.sleep(plan.seconds / 5 + 1)  # the generator's start included
    before = server.memory()
    time.sleep(plan.seconds * 0.3)
    file = store / Store.open(store).index().entry(VICTIM).file
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    time.sleep(plan.seconds * 0.4)
    grown = server.memory() / before - 1 if before else 0.0
    return _outcome(generator), grown


def _look(told: Told, found: list[list[Any]], unloaded: float, grown: float, seconds: float) -> None:
    statuses = Counter(one[3] for one in found)
    took = [one[2] for one in found if one[3] == 200]
    ratio = p99(took) / unloaded
    late = {sort: Counter(one[3] for one in found if one[0] == sort) for sort in SHARES}
    told.check(set(statuses) <= ALLOWED, f"statuses {dict(statuses)}; by sort {late}")
    told.check(statuses[429] > 0 and bool(took), "nothing was refused, or nothing answered")
    wrong = sum(not one[4] for one in found)
    told.check(wrong == 0, f"{wrong} answers differ from the offline ones")
    told.check(ratio <= 3.0, f"p99 of what was accepted is {ratio:.2f} times the unloaded one")
    told.check(grown < 0.02, f"memory grew by {grown:.1%}")
    told.check(late["victim"][503] > 0, "the damaged task never answered 503")
    told.check(not late["bad"][200] and not late["huge"][200], f"bad requests were answered: {late}")
    told.numbers |= {
        "asked (1/s)": round(len(found) / seconds),
        "answered (1/s)": round(len(took) / seconds),
        "p99 of accepted (ms)": round(1e3 * p99(took), 1),
        "times unloaded": round(ratio, 2),
        "p99 of the generator's own lateness (ms)": round(1e3 * p99([one[5] for one in found]), 1),
        "p99 of refusals (ms)": round(1e3 * p99([one[2] for one in found if one[3] == 429]), 1),
        "memory growth (%)": round(100 * grown, 2),
        "wrong answers": wrong,
        "statuses": dict(sorted(statuses.items())),
    }
