"""The server as its users meet it: answers, batches, new and damaged tasks, the token, overload, the end."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from planted import TASKS, mixed_questions, plant
from running_server import Running

from tss import Learner
from tss.errors import ConfigError
from tss.serve.limits import Limits
from tss.serve.run import bind, check_address, read_token

TOKEN = "a-token-of-many-letters"
ROUTES = ("/", "/heat.js", "/page.js", "/page.css", "/docs", "/openapi.json", "/metrics", "/health", "/ready", "/tasks",
          "/load", "/overlap", "/nothing")  # fmt: skip


def asked() -> tuple[list[str], list, list[dict]]:
    names, inputs = mixed_questions()
    items = [
        {"task": n, "text": v[0], "pair": v[1]} if isinstance(v, tuple) else {"task": n, "text": v}
        for n, v in zip(names, inputs, strict=True)
    ]
    return names, inputs, items


def test_answers_are_those_of_predict(server: Running, planted_store: Path):
    names, inputs, items = asked()
    offline = Learner.open(planted_store, device="cpu").predict(names, inputs, details=True)
    status, found = server.post(items)
    assert status == 200
    assert [one["answer"] for one in found["answers"]] == [one["answer"] for one in offline]
    assert [one["task"] for one in found["answers"]] == names
    status, alone = server.post(items[0])
    assert status == 200 and alone["answer"] == offline[0]["answer"] and alone["version"] == 1
    assert server.post({"items": items[:2]})[1]["answers"][1]["answer"] == offline[1]["answer"]


def test_requests_of_many_tasks_share_batches(planted_store: Path):
    _, _, items = asked()
    with Running(planted_store, linger=0.3) as server:
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(server.post, items))
        assert all(status == 200 for status, _ in found)
        text = server.ask("GET", "/metrics")[2].decode()
        batches = float(re.search(r"tss_batch_rows_count (\S+)", text)[1])
        tasks = float(re.search(r"tss_batch_tasks_sum (\S+)", text)[1])
        assert batches < len(items) and tasks > batches  # fewer passes than inputs, several tasks in one
        assert f'tss_requests_total{{route="/predict",status="200"}} {len(items)}.0' in text


def test_looks(server: Running):
    assert server.get("/health")["status"] == "alive"
    assert server.get("/ready") == {"status": "ready", "tasks": len(TASKS), "damaged": {}}
    listed = server.get("/tasks")["tasks"]
    assert server.get("/tasks")["forgets"] is False and [one["id"] for one in listed] == [*range(1, len(TASKS) + 1)]
    assert [one["name"] for one in listed] == list(TASKS)
    assert {one["state"] for one in listed} == {"ok"} and listed[0]["scores"] == {"macro_f1": 50.0}
    overlap = server.get("/overlap")
    assert overlap["tasks"] == list(TASKS) and all(overlap["equal"][i][i] == 1.0 for i in range(len(TASKS)))
    assert 0.4 < overlap["equal"][0][1] < 0.6
    assert len(server.get("/load")["answers_each_second"]) == 60
    assert set(server.get("/openapi.json")["paths"]) >= {"/predict", "/tasks", "/health", "/ready", "/metrics"}


def test_pages_ask_nobody_else(server: Running):
    for path in ("/", "/heat.js", "/page.js", "/page.css", "/docs"):
        status, headers, body = server.ask("GET", path)
        assert status == 200 and "default-src 'none'" in headers["content-security-policy"]
        assert not re.search(rb"(src|href|url|fetch)\W{1,3}(https?:)?//", body), path


def test_new_versions_and_withdrawn_tasks_are_followed(own_store: Path):
    writer = Learner.open(own_store, device="cpu")
    item = {"task": "topic", "text": "the screen is great"}
    with Running(own_store) as server:
        assert server.post({**item, "task": "later"})[0] == 404
        first = server.post(item)[1]
        with writer.store.writing(wait=5):
            plant(writer, "later", "classification", 4)
            plant(writer, "topic", "classification", 7, salt="again", new_version=True)
        assert server.post({**item, "task": "later"})[1]["answer"].startswith("later ")
        second = server.post(item)[1]
        assert second["version"] == 2 and second["confidence"] != first["confidence"]
        with writer.store.writing(wait=5):
            writer.store.rollback("topic")
        assert server.post(item)[1] == first
        with writer.store.writing(wait=5):
            writer.store.remove("later")
        assert server.post({**item, "task": "later"})[0] == 404
        assert len(server.get("/tasks")["tasks"]) == len(TASKS)


def test_a_damaged_task_is_refused_and_the_others_go_on(own_store: Path):
    bad, good = {"task": "topic", "text": "nice day"}, {"task": "mood", "text": "nice day"}
    with Running(own_store) as server:
        first = server.post(bad)[1]
        entry = server.state.tasks.index().entry("topic")
        whole = (own_store / entry.file).read_bytes()
        (own_store / entry.file).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        status, told = server.post(bad)
        assert status == 503 and "topic" in told["error"]
        assert server.post(good)[0] == 200
        status, both = server.post([good, bad])
        assert status == 200 and "answer" in both["answers"][0]
        assert both["answers"][1]["status"] == 503 and "answer" not in both["answers"][1]
        assert list(server.get("/ready")["damaged"]) == ["topic"]
        assert {one["name"] for one in server.get("/tasks")["tasks"] if one["state"] == "damaged"} == {"topic"}
        assert b"tss_tasks_damaged 1.0" in server.ask("GET", "/metrics")[2]
        (own_store / entry.file).write_bytes(whole)
        server.state.tasks._damaged.clear()  # else it looks again after two seconds
        assert server.post(bad) == (200, first)


def test_a_task_that_fails_spoils_no_other(planted_store: Path, monkeypatch: pytest.MonkeyPatch):
    from tss.serve import queue

    plain = queue.answer_batch

    def failing(questions):
        if any(one.ready.record.name == "topic" for one in questions):
            raise RuntimeError("a kernel failed")
        return plain(questions)

    monkeypatch.setattr(queue, "answer_batch", failing)
    with Running(planted_store, linger=0.2) as server:
        status, found = server.post([{"task": name, "text": "nice day"} for name in ("mood", "topic", "people")])
        assert status == 200 and [one.get("status", 200) for one in found["answers"]] == [200, 503, 200]


def test_every_route_needs_the_token(planted_store: Path):
    with Running(planted_store, token=TOKEN, wait=False) as server:
        basic = base64.b64encode(f"anyone:{TOKEN}".encode()).decode()
        for path in ROUTES:
            for wrong in (
                {},
                {"Authorization": "Bearer wrong"},
                {"Authorization": "Basic !!!"},
                {"Authorization": TOKEN},
            ):
                status, headers, _ = server.ask("GET", path, headers=wrong)
                assert status == 401 and headers["www-authenticate"].startswith("Basic"), path
            for right in (f"Bearer {TOKEN}", f"Basic {basic}"):
                assert server.ask("GET", path, headers={"Authorization": right, "Host": "elsewhere"})[0] != 401
        assert server.ask("POST", "/predict", b"{}")[0] == 401


def test_addresses_and_tokens(tmp_path: Path):
    for host in ("127.0.0.1", "localhost", "::1", "127.8.8.8"):
        check_address(host, None)
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.org"):
        with pytest.raises(ConfigError, match="token"):
            check_address(host, None)
        check_address(host, TOKEN)
    for bad in ("short", "with blanks in the token", "ünicode-ünicode-ünicode", "line\nline-line-line-line"):
        with pytest.raises(ConfigError, match="at least 16"):
            check_address("127.0.0.1", bad)
    (tmp_path / "token").write_text(TOKEN + "\n")
    assert read_token(tmp_path / "token", None) == TOKEN and read_token(None, "") is None
    with pytest.raises(ConfigError, match="cannot read"):
        read_token(tmp_path / "nothing", None)
    with bind("127.0.0.1", 0) as taken, pytest.raises(ConfigError, match="cannot listen"):
        bind("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(ConfigError, match="above 0"):
        Limits(batch=0)


def test_overload_is_refused_and_what_was_accepted_is_answered(planted_store: Path, monkeypatch: pytest.MonkeyPatch):
    from tss.serve import queue

    plain = queue.answer_batch
    monkeypatch.setattr(queue, "answer_batch", lambda questions: (time.sleep(0.1), plain(questions))[1])
    with Running(planted_store, queue=4, batch=2, linger=0.01) as server:
        server.post({"task": "mood", "text": "warm"})

        def hit(_: int) -> tuple[int, dict]:
            body = json.dumps({"task": "mood", "text": "nice day"}).encode()
            status, headers, _ = server.ask("POST", "/predict", body, {"Content-Type": "application/json"})
            return status, headers

        with ThreadPoolExecutor(24) as pool:
            found = list(pool.map(hit, range(48)))
        assert {status for status, _ in found} == {200, 429}
        assert all(int(headers["retry-after"]) >= 1 for status, headers in found if status == 429)
        assert server.get("/load")["waiting"] == 0 and server.post({"task": "mood", "text": "after"})[0] == 200


def test_inputs_that_waited_too_long_are_told_so(planted_store: Path, monkeypatch: pytest.MonkeyPatch):
    from tss.serve import queue

    plain = queue.answer_batch
    monkeypatch.setattr(queue, "answer_batch", lambda questions: (time.sleep(0.5), plain(questions))[1])
    with Running(planted_store, seconds=0.3, batch=1, linger=0.001) as server, ThreadPoolExecutor(4) as pool:
        found = list(pool.map(server.post, [{"task": "mood", "text": f"n {i}"} for i in range(4)]))
    assert {status for status, _ in found} <= {200, 429, 503} and 503 in {status for status, _ in found}


def test_the_end_finishes_what_was_accepted(planted_store: Path, monkeypatch: pytest.MonkeyPatch):
    from tss.serve import queue

    plain, begun = queue.answer_batch, threading.Event()

    def slow(questions):
        begun.set()
        time.sleep(0.5)
        return plain(questions)

    monkeypatch.setattr(queue, "answer_batch", slow)
    with Running(planted_store) as server, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(server.post, {"task": "mood", "text": "nice day"})
        assert begun.wait(10)
        server.stop()
        assert waiting.result()[0] == 200


def test_an_empty_store_waits_for_its_first_task(tmp_path: Path):
    from tss.store import Store

    Store.open(tmp_path / "store", create=True)
    with Running(tmp_path / "store", wait=False) as server:
        assert server.ask("GET", "/ready")[0] == 503 and server.get("/tasks") == {"tasks": [], "forgets": None}
        assert server.post({"task": "mood", "text": "x"})[0] == 404


def test_the_command_refuses_an_open_address(planted_store: Path):
    command = [sys.executable, "-m", "tss", "serve", str(planted_store), "--host", "0.0.0.0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "TSS_TOKEN": ""})
    assert done.returncode == 2 and "token" in done.stderr and "Traceback" not in done.stderr
