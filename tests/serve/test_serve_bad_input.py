"""Bad requests: each has its status, says why in JSON, and leaves the server as it was. Never a 500."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest
from running_server import Running

JSON = {"Content-Type": "application/json"}
GOOD = {"task": "mood", "text": "nice day"}


def one(**changed: Any) -> bytes:
    return json.dumps({**GOOD, **changed}).encode()


# name -> expected status, body
BODIES: dict[str, tuple[int, bytes]] = {
    "empty": (400, b""),
    "blank": (400, b"   "),
    "words": (400, b"hello"),
    "half an object": (400, b'{"task": "mood"'),
    "single quotes": (400, b"{'task': 'mood', 'text': 'x'}"),
    "trailing comma": (400, b'{"task": "mood", "text": "x",}'),
    "two documents": (400, b'{"task":"mood","text":"x"}{"task":"mood","text":"x"}'),
    "NaN": (400, b'{"task": "mood", "text": NaN}'),
    "infinity": (400, b'{"task": "mood", "text": -Infinity}'),
    "a bare NaN": (400, b"NaN"),
    "not UTF-8": (400, b'{"task": "mood", "text": "\xff\xfe"}'),
    "UTF-16": (400, '{"task": "mood"}'.encode("utf-16")),
    "byte order mark": (400, b"\xef\xbb\xbf" + one()),
    "raw nul in a string": (400, b'{"task": "mood", "text": "a\x00b"}'),
    "raw nul bytes": (400, b"\x00" * 100),
    "raw line end in a string": (400, b'{"task": "mood", "text": "a\nb"}'),
    "binary": (400, bytes(range(256))),
    "deep lists": (400, b"[" * 100_000),
    "deep lists, closed": (400, b"[" * 100_000 + b"]" * 100_000),
    "deep objects": (400, b'{"task":' * 50_000 + b"1" + b"}" * 50_000),
    "a number without end": (400, b'{"task": "mood", "text": ' + b"9" * 100_000 + b"}"),
    "null": (422, b"null"),
    "true": (422, b"true"),
    "a number": (422, b"3"),
    "a huge float": (422, b"1e999"),
    "a text": (422, b'"mood"'),
    "an empty object": (422, b"{}"),
    "an empty list": (422, b"[]"),
    "no items": (422, b'{"items": []}'),
    "items no list": (422, b'{"items": {"task": "mood", "text": "x"}}'),
    "items and more": (422, b'{"items": [], "task": "mood"}'),
    "list of numbers": (422, b"[1, 2]"),
    "list of nulls": (422, b"[null]"),
    "list in a list": (422, b'[[{"task": "mood", "text": "x"}]]'),
    "nested a little": (422, b"[" * 50 + b"]" * 50),
    "no task": (422, b'{"text": "x"}'),
    "no text": (422, b'{"task": "mood"}'),
    "unknown key": (422, one(temperature=1)),
    "long unknown key": (422, json.dumps({**GOOD, "k" * 50_000: 1}).encode()),
    "task a number": (422, one(task=3)),
    "task null": (422, one(task=None)),
    "task a list": (422, one(task=["mood"])),
    "task an object": (422, one(task={"name": "mood"})),
    "text a number": (422, one(text=5)),
    "text null": (422, one(text=None)),
    "text true": (422, one(text=True)),
    "text an object": (422, one(text={"a": 1})),
    "text a list of numbers": (422, one(text=[1, 2])),
    "text mixed words": (422, one(text=["a", None])),
    "pair a number": (422, one(task="aspect", pair=7)),
    "pair a list": (422, one(task="aspect", pair=["a"])),
    "pair missing": (422, one(task="aspect")),
    "pair too many": (422, one(pair="sound")),
    "pair with words": (422, one(task="people", text=["a"], pair="b")),
    "words for a classifier": (422, one(text=["nice", "day"])),
    "no words": (422, one(task="people", text=[])),
    "a blank sentence": (422, one(task="people", text="   ")),
    "an empty word": (422, one(task="people", text=["a", ""])),
    "half a surrogate": (422, b'{"task": "mood", "text": "a\\ud800b"}'),
    "text too long": (422, one(text="a" * 20_001)),
    "pair too long": (422, one(task="aspect", pair="a" * 20_001)),
    "too many words": (422, one(task="people", text=["a"] * 10_001)),
    "too many empty words": (422, one(task="people", text=[""] * 30_000)),
    "too many items": (422, json.dumps([GOOD] * 257).encode()),
    "unknown task": (404, one(task="mod")),
    "task in other letters": (404, one(task="MOOD")),
    "a path as a task": (404, one(task="../../etc/passwd")),
    "a half surrogate as a task": (422, b'{"task": "\\ud800", "text": "x"}'),
    "an empty task": (422, one(task="")),
    "a nul in the task": (422, one(task="mo\0od")),
    "a long task": (422, one(task="m" * 5000)),
    "second unknown": (404, json.dumps([GOOD, {**GOOD, "task": "nobody"}]).encode()),
    "second bad": (422, json.dumps([GOOD, {**GOOD, "text": 1}]).encode()),
    "second refused by its task": (422, json.dumps([GOOD, {**GOOD, "task": "aspect"}]).encode()),
    "too large": (413, b" " * (1 << 20) + one()),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_a_bad_body_has_its_status(server: Running, name: str):
    expected, body = BODIES[name]
    begin = time.monotonic()
    status, headers, found = server.ask("POST", "/predict", body, JSON)
    assert (status, headers["content-type"]) == (expected, "application/json")
    told = json.loads(found)
    assert set(told) == {"error"} and 0 < len(told["error"]) < 1000
    assert time.monotonic() - begin < 5


UNUSUAL = {
    "an empty text": one(text=""),
    "nul characters": one(text="a\0b"),
    "control characters": one(text="\x01\x02\x1b[31m"),
    "right to left": one(text="\u202eabc שלום"),
    "emoji": one(text="😀" * 200),
    "combining marks": one(text="e" + "\u0301" * 500),
    "markup": one(text="<script>alert(1)</script>"),
    "special tokens": one(text="</s><pad><mask>"),
    "longest text": one(text="a " * 10_000),
    "a key twice": b'{"task": "nobody", "task": "mood", "text": "x"}',
    "as many items as allowed": json.dumps([GOOD] * 256).encode(),
    "a list of words": one(task="people", text=["John", "Smith"]),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_requests_are_answered(server: Running, name: str):
    status, _, found = server.ask("POST", "/predict", UNUSUAL[name], JSON)
    assert status == 200 and "answer" in found.decode(), found


@pytest.mark.parametrize(
    ("method", "path", "headers", "expected"),
    [
        ("GET", "/predict", {}, 405),
        ("PUT", "/predict", JSON, 405),
        ("DELETE", "/tasks", {}, 405),
        ("POST", "/tasks", JSON, 405),
        ("GET", "/nothing", {}, 404),
        ("GET", "/../../etc/passwd", {}, 404),
        ("GET", "/page/page.js", {}, 404),
        ("GET", "/page.js%00", {}, 404),
        ("POST", "/predict", {}, 415),
        ("POST", "/predict", {"Content-Type": "text/plain"}, 415),
        ("POST", "/predict", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ("POST", "/predict", {**JSON, "Content-Length": "-5"}, 400),
        ("POST", "/predict", {**JSON, "Content-Length": "999999999999"}, 413),
        ("POST", "/predict", {**JSON, "Content-Length": "many"}, 400),
        ("GET", "/health", {"Host": "evil.example"}, 421),
        ("POST", "/predict", {**JSON, "Host": "evil.example:8000"}, 421),
    ],
)
def test_bad_requests_have_their_status(server: Running, method: str, path: str, headers: dict, expected: int):
    body = None if method == "GET" else b"{}"
    status, found, _ = server.ask(method, path, body, headers)
    assert status == expected
    if expected != 400:  # those are refused by the HTTP parser itself
        assert found["content-type"] == "application/json"


def test_chunks_beyond_the_limit_are_not_kept(planted_store):
    with Running(planted_store, body=10_000) as server, socket.create_connection(("127.0.0.1", server.port)) as client:
        client.settimeout(20)
        head = "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        client.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(200):
            client.sendall(b"400\r\n" + b" " * 1024 + b"\r\n")
        client.sendall(b"0\r\n\r\n")
        assert b" 413 " in client.recv(4096).split(b"\r\n")[0]


def test_a_body_that_never_ends_is_given_up(planted_store):
    with Running(planted_store, seconds=0.5) as server, socket.create_connection(("127.0.0.1", server.port)) as client:
        client.settimeout(20)
        head = (
            b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n"
        )
        client.sendall(head + b"{")
        assert b" 408 " in client.recv(4096).split(b"\r\n")[0]


def test_a_silent_connection_is_closed(planted_store):
    from tss.serve.connection import Connection

    class Impatient(Connection):
        silence = 0.3

    with (
        Running(planted_store, http_class=Impatient, wait=False) as server,
        socket.create_connection(("127.0.0.1", server.port)) as client,
    ):
        client.settimeout(20)
        client.sendall(b"GET /health HT")
        assert client.recv(100) == b""


def test_all_the_bad_input_changed_nothing(server: Running):
    status, found = server.post(GOOD)
    assert status == 200 and found["answer"].startswith("mood ")
    assert server.get("/ready")["status"] == "ready" and server.get("/load")["waiting"] == 0
