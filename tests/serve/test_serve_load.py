"""Much asked at once: what is promised and kept, getting warm before, clients that do not read, an end in full load."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from planted import mixed_questions
from running_server import Running
from typer.testing import CliRunner

from tss.serve import queue as queues
from tss.serve.asked import Asked
from tss.serve.connection import Lingering
from tss.serve.costs import TIMES
from tss.serve.job import Job
from tss.serve.limits import Limits, Refusal
from tss.serve.queue import Queue
from tss.serve.run import serve
from tss.serve.tasks import Tasks

SLOW = 0.1  # seconds that an input takes alone


@pytest.fixture
def busy() -> Queue:
    """A queue that is not started, at work, and knows that texts take `SLOW` alone and half of it for each more."""
    found = Queue(None, Limits(), lambda jobs, seconds: None)  # type: ignore[arg-type]
    found.ready, found._count = True, 1
    for rows in (1, 2, 1, 2):
        found._costs.learn(("generation", 6), rows, SLOW / 2 * (1 + rows))
    found._costs.asked(("generation", 6))
    found._costs.learn(("generation", 6), 1, SLOW)
    assert found._costs.target() == pytest.approx(TIMES * SLOW)
    return found


def text() -> Job:
    return Job(Asked("a", "a text", None), "input 1", "generation")


def overloaded(queue: Queue) -> None:
    """As if too much had been asked for longer than a burst."""
    queue._pressed = time.monotonic() - 2 * queues.BURST, time.monotonic()


def test_what_fits_into_the_target_is_accepted_and_no_more(busy: Queue):
    overloaded(busy)
    busy.submit([text()])
    busy.submit([text()])  # a batch of two takes 0.15 s
    with pytest.raises(Refusal, match="waiting") as found:
        busy.submit([text()])
    assert found.value.status == 429 and len(busy) == 3


def test_nobody_is_accepted_who_would_make_another_miss_the_target(busy: Queue):
    overloaded(busy)
    busy._held = {("generation", 6): [time.monotonic() - 0.5 * SLOW]}  # it has waited, and will share the batch
    with pytest.raises(Refusal) as found:
        busy.submit([text()])  # alone it would be in time
    assert found.value.status == 429
    busy._held = {("generation", 6): [time.monotonic()]}
    busy._shut = False  # as after the end of a batch
    busy.submit([text()])


def test_a_burst_may_take_longer_than_what_lasts(busy: Queue, monkeypatch: pytest.MonkeyPatch):
    now = [100.0]
    monkeypatch.setattr(queues.time, "monotonic", lambda: now[0])

    def accepted() -> int:
        busy._held, busy._shut, busy._count = {}, False, 1
        with pytest.raises(Refusal):
            while True:
                busy.submit([replace(text(), accepted=now[0])])
        return len(busy)

    burst = accepted()
    assert burst > 1
    now[0] += queues.BURST + 0.1
    assert accepted() < burst  # it goes on
    now[0] += queues.CALM + 0.1
    assert accepted() == burst


def test_a_server_is_warm_before_it_is_ready(planted_store: Path, monkeypatch: pytest.MonkeyPatch):
    plain, rows = queues.answer_batch, []
    monkeypatch.setattr(queues, "answer_batch", lambda asked: (rows.append(len(asked)), plain(asked))[1])
    server = Running(planted_store, batch=4)
    server.state.queue.warming = 5.0
    with server:
        assert rows == [1] * 6 + [2] * 3 + [4] * 3  # of each kind one task
        assert server.state.queue._costs.work(server.state.queue._costs.guess(text().signs), 1) > 0
        assert server.get("/load")["requests"] == 0 and server.post({"task": "mood", "text": "nice day"})[0] == 200


def test_samples_that_fail_keep_nobody_from_being_answered(planted_store: Path, monkeypatch: pytest.MonkeyPatch):
    plain, calls = queues.answer_batch, []

    def once(asked):
        calls.append(asked)
        if len(calls) == 1:
            raise RuntimeError("a kernel failed")
        return plain(asked)

    monkeypatch.setattr(queues, "answer_batch", once)
    server = Running(planted_store)
    server.state.queue.warming = 5.0
    with server:
        assert server.post({"task": "mood", "text": "nice day"})[0] == 200 and len(calls) == 2


def test_answers_are_not_held_back_by_the_network(server: Running):
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(8192)
        for one in server.uvicorn.server_state.connections:
            assert one.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_client_that_is_gone_before_the_last_word_is_no_error():
    transport = Mock()
    transport.is_closing.return_value = False
    transport.write_eof.side_effect = OSError(errno.ENOTCONN, "Transport endpoint is not connected")
    Lingering(transport, loop := Mock()).close()
    transport.close.assert_called_once_with()
    loop.call_later.assert_not_called()


def test_clients_that_do_not_read_lose_their_connection_and_slow_ones_do_not(
    planted_store: Path, monkeypatch: pytest.MonkeyPatch
):
    with Running(planted_store, seconds=0.75) as server:
        # More than the network holds, and not so much that encoding it leaves no time to answer others.
        much = [{"name": "x" * 1000}] * 8_000
        monkeypatch.setattr(server.state.tasks, "listed", lambda: much)
        clients = []
        for _ in range(3):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            client.connect(("127.0.0.1", server.port))
            client.sendall(b"GET /tasks HTTP/1.1\r\nHost: localhost\r\n\r\n")
            clients.append(client)
        begin, found = time.monotonic(), 0
        assert server.post({"task": "mood", "text": "nice day"})[0] == 200 and server.get("/health")
        while found < 8_000_000:  # the last of them reads, with rests
            found += len(clients[-1].recv(1 << 20))
            time.sleep(0.0005)
        while len(server.uvicorn.server_state.connections) > 1 and time.monotonic() - begin < 10:
            time.sleep(0.05)
        assert len(server.uvicorn.server_state.connections) == 1  # that one
        for client in clients:
            client.close()


def _started(log: Path, process: subprocess.Popen) -> str:
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up and process.poll() is None:
        found = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
        try:
            if found and urllib.request.urlopen(f"{found[0]}/ready").status == 200:
                return found[0]
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(log.read_text())


def test_sigterm_in_full_load_answers_all_that_was_accepted(planted_store: Path, tmp_path: Path):
    names, inputs = mixed_questions()
    items = [{"task": n, "text": v} for n, v in zip(names, inputs, strict=True) if isinstance(v, str)]
    body, log = json.dumps((items * 10)[:100]).encode(), tmp_path / "log"
    command = [sys.executable, "-m", "tss", "serve", str(planted_store), "--port", "0", "--device", "cpu"]
    command += ["--latency-ms", "60000", "--queue", "4000", "--log-level", "info"]
    with log.open("w") as said, subprocess.Popen(command, stderr=said, env={**os.environ, "TSS_TOKEN": ""}) as process:
        try:
            address = _started(log, process)
            assert log.read_text().startswith(f"serving {planted_store} at {address} ")

            def ask(_: int) -> list:
                sent = urllib.request.Request(f"{address}/predict", body, {"Content-Type": "application/json"})
                return json.load(urllib.request.urlopen(sent, timeout=60))["answers"]

            with ThreadPoolExecutor(8) as pool:
                answers = pool.map(ask, range(8))
                begin = time.monotonic()
                while json.load(urllib.request.urlopen(f"{address}/load"))["waiting"] < 500:
                    assert time.monotonic() - begin < 10
                    time.sleep(0.01)
                process.send_signal(signal.SIGTERM)
                begin = time.monotonic()
                assert [len(found) for found in answers] == [100] * 8
            assert process.wait(30) == 0 and time.monotonic() - begin < 30
        finally:
            process.kill()
    told = log.read_text()
    assert told.count('"POST /predict HTTP/1.1" 200') == 8 and "Traceback" not in told
    with pytest.raises(OSError):
        urllib.request.urlopen(f"{address}/health")


@pytest.mark.parametrize("moment", ["address", "loading"])
def test_sigterm_before_the_model_is_loaded_ends_it_cleanly(
    moment: str, planted_store: Path, monkeypatch: pytest.MonkeyPatch
):
    def stop(now: str) -> None:
        if now == moment:
            os.kill(os.getpid(), signal.SIGTERM)

    plain, loaded, running = Tasks.load, [], set(threading.enumerate())
    monkeypatch.setattr(Tasks, "load", lambda tasks: (stop("loading"), plain(tasks), loaded.append(tasks))[1])
    before = signal.signal(signal.SIGTERM, lambda *_: pytest.fail("nobody heard the signal, or it was raised again"))
    try:
        serve(planted_store, port=0, device="cpu", started=lambda _: stop("address"))  # it returns: exit status 0
    finally:
        signal.signal(signal.SIGTERM, before)
    assert moment == "address" or len(loaded) == 1
    assert not [one for one in set(threading.enumerate()) - running if one.name == "tss-model"]  # none is left behind


def test_a_log_level_that_there_is_not(planted_store: Path):
    from tss.cli import app

    found = CliRunner().invoke(app, ["serve", str(planted_store), "--log-level", "loud"])
    assert found.exit_code == 2 and "'loud'" in found.output and "warning" in found.output
