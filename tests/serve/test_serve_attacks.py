"""The server before people who mean no good, or whose network is bad: each of these once went wrong."""

from __future__ import annotations

import gzip
import json
import logging
import re
import shutil
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
from planted import plant, planted
from running_server import Running
from tiny import tiny_path

from tss import Learner
from tss.serve.connection import Connection

GOOD = json.dumps({"task": "mood", "text": "nice day"}).encode()
JSON = {"Content-Type": "application/json"}
HEAD = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def talk(server: Running, sent: bytes, then: bytes = b"") -> socket.socket:
    client = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    client.sendall(sent)
    if then:
        assert heard(client)
        client.sendall(then)
    return client


def heard(client: socket.socket) -> bytes:
    """One whole answer."""
    found = b""
    while b"\r\n\r\n" not in found:
        found += client.recv(8192)
    length = int(re.search(rb"content-length: (\d+)", found)[1])
    while len(found) < found.index(b"\r\n\r\n") + 4 + length:
        found += client.recv(8192)
    return found


def first_line(server: Running, sent: bytes) -> bytes:
    with talk(server, sent) as client:
        return heard(client).split(b"\r\n")[0]


@pytest.mark.parametrize(
    "host", ["localhost:evil.example", "[::1]evil.example", "localhost@evil.example", "127.0.0.1.a"]
)
def test_names_that_only_begin_like_localhost_are_refused(server: Running, host: str):
    assert server.ask("GET", "/health", headers={"Host": host})[0] == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:1", "[::1]:8000", "[::1]"])
def test_names_of_this_machine_are_answered(server: Running, host: str):
    assert server.ask("GET", "/health", headers={"Host": host})[0] == 200


def test_nothing_redirects_to_a_host_that_the_client_made_up(server: Running):
    for path in ("/docs/", "/tasks/", "/predict/"):
        status, headers, _ = server.ask("GET", path)
        assert status == 404 and "location" not in headers


def test_head_is_get_without_the_body(server: Running):
    for path in ("/", "/health", "/tasks", "/metrics"):
        status, headers, body = server.ask("HEAD", path)
        assert status == 200 and int(headers["content-length"]) > 0 and body == b""


def test_a_compressed_body_is_refused(server: Running):
    status, _, told = server.ask("POST", "/predict", gzip.compress(GOOD), {**JSON, "Content-Encoding": "gzip"})
    assert status == 415 and b"Content-Encoding" in told


def test_a_client_that_asks_first_is_told_not_to_send_too_much(server: Running):
    line = first_line(server, HEAD + b"Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n")
    assert b" 413 " in line


def test_a_client_that_hangs_up_in_its_body_leaves_no_trace(server: Running, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.ERROR):
        with talk(server, HEAD + b"Content-Length: 50\r\n\r\n{"):
            pass
        assert server.post(json.loads(GOOD))[0] == 200
        time.sleep(0.1)
    assert caplog.records == []


def test_a_client_that_has_said_all_still_hears_the_answer(server: Running):
    with talk(server, HEAD + b"Content-Length: %d\r\n\r\n" % len(GOOD) + GOOD) as client:
        client.shutdown(socket.SHUT_WR)
        assert heard(client).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("whole", "dripping"),
    [
        ("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET /health HTTP/1.1\r\nHost: localhost\r\n"),
        ("GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999\r\n\r\n", "X: y\r\n"),
    ],
    ids=["second request", "body that nobody reads"],
)
def test_requests_that_never_end_lose_their_connection(planted_store: Path, whole: str, dripping: str):
    class Impatient(Connection):
        silence = 0.5

    with (
        Running(planted_store, wait=False, http_class=Impatient, seconds=0.25) as server,
        talk(server, whole.encode(), dripping.encode()) as client,
    ):
        begin = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() - begin < 10:
                client.sendall(b"X: y\r\n")
                time.sleep(0.1)
        assert time.monotonic() - begin < 5


def test_one_connection_too_many_is_told_and_the_others_go_on(planted_store: Path):
    ask = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with (
        Running(planted_store, wait=False, connections=2) as server,
        talk(server, ask) as one,
        talk(server, ask) as two,
    ):
        assert heard(one).startswith(b"HTTP/1.1 200 ") and heard(two).startswith(b"HTTP/1.1 200 ")
        assert first_line(server, ask).startswith(b"HTTP/1.1 503 ")
        one.sendall(ask)
        assert heard(one).startswith(b"HTTP/1.1 200 ")


def test_while_the_queue_is_full_refusing_is_cheap_and_keeps_the_connection(
    planted_store: Path, monkeypatch: pytest.MonkeyPatch
):
    from tss.serve import queue

    plain, go = queue.answer_batch, threading.Event()
    monkeypatch.setattr(queue, "answer_batch", lambda questions: (go.wait(20), plain(questions))[1])
    whole = HEAD + b"Content-Length: %d\r\n\r\n" % len(GOOD) + GOOD
    with Running(planted_store, queue=1) as server, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(server.post, json.loads(GOOD))
        while not len(server.state.queue):
            time.sleep(0.01)
        with talk(server, whole) as client:
            for _ in range(3):
                told = heard(client)
                assert told.startswith(b"HTTP/1.1 429 ") and b"retry-after: 1\r\n" in told and b"nosniff" in told
                client.sendall(whole)
            assert heard(client).startswith(b"HTTP/1.1 429 ")
            assert server.get("/health")["status"] == "alive" and server.get("/load")["refused"] == 4
            go.set()
            assert waiting.result()[0] == 200
            client.sendall(whole)
            assert heard(client).startswith(b"HTTP/1.1 200 ")


def test_a_store_that_is_gone_or_another_is_not_answered_from(own_store: Path, tmp_path: Path):
    aside = tmp_path / "aside"
    with Running(own_store) as server:
        first = server.post(json.loads(GOOD))
        own_store.rename(aside)
        assert server.post(json.loads(GOOD))[0] == 503 and server.ask("GET", "/ready")[0] == 503
        status, _, told = server.ask("GET", "/metrics")
        assert status == 200 and b"tss_tasks NaN" in told  # an alarm must still be heard
        planted(own_store, tiny_path("bart"), {"mood": ("classification", 2, False, {})}, adapter_std=0.4)
        status, told = server.post(json.loads(GOOD))
        assert status == 503 and "replaced" in told["error"] and server.ask("GET", "/ready")[0] == 503
        shutil.rmtree(own_store)
        aside.rename(own_store)
        assert server.post(json.loads(GOOD)) == first


def test_names_and_labels_with_markup_or_line_ends_break_no_answer(own_store: Path):
    name = "<script>alert('😀')</script>"
    writer = Learner.open(own_store, device="cpu")
    with writer.store.writing(wait=5):
        plant(writer, name, "classification", 2)
    with Running(own_store) as server:
        status, told = server.post({"task": name, "text": "a\0b 😀 \u202e"})
        assert status == 200 and told["task"] == name
        for path in ("/docs", "/metrics", "/"):
            assert b"alert(" not in server.ask("GET", path)[2]
        status, headers, told = server.ask("POST", "/predict", b'{"task": "a\\r\\nX-Evil: 1", "text": "x"}', JSON)
        assert status in (404, 422) and "x-evil" not in headers


def test_a_closed_connection_listens_a_moment_longer():
    from tss.serve.connection import LINGER, WHOLE, Lingering

    transport, loop = Mock(), Mock()
    transport.can_write_eof.return_value, transport.is_closing.return_value = True, False
    lingering = Lingering(transport, loop)
    lingering.close()
    lingering.close()
    transport.write_eof.assert_called_once_with()
    transport.close.assert_not_called()  # closing now would reset the connection while the client still sends
    (seconds, let_go), _ = loop.call_later.call_args
    assert seconds == LINGER and loop.call_later.call_count == 1 and lingering.is_closing()
    transport.get_write_buffer_size.return_value = 0
    let_go()
    transport.close.assert_called_once_with()
    assert loop.call_later.call_count == 1
    transport.get_write_buffer_size.return_value = 9  # the client has not read all, and may never do
    let_go()
    loop.call_later.assert_called_with(WHOLE, transport.abort)
