"""A real server in a thread, asked over real connections."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from pathlib import Path
from typing import Any

import uvicorn

from tss.serve.app import make_app
from tss.serve.connection import Connection
from tss.serve.limits import Limits
from tss.serve.run import bind
from tss.serve.tasks import Tasks


class Running:
    """`with Running(store) as server:` the model is loaded inside the block."""

    def __init__(
        self, store: Path, token: str | None = None, wait: bool = True, http_class: Any = Connection, **limits
    ):
        self.app = make_app(Tasks(store, "cpu"), Limits(**limits), token)
        self.state = self.app.state.server
        self.state.queue.warming = 0.0  # tests wait for no warm-up
        self._socket = bind("127.0.0.1", 0)
        self.port = self._socket.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        config = uvicorn.Config(self.app, http=http_class, ws="none", log_level="error", timeout_graceful_shutdown=20)
        self.uvicorn = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._wait = wait

    def _serve(self) -> None:
        asyncio.run(self.uvicorn.serve(sockets=[self._socket]))

    def __enter__(self) -> Running:
        self._thread.start()
        give_up = time.monotonic() + 60
        while not (self.uvicorn.started and (self.state.queue.ready or not self._wait)):
            if time.monotonic() > give_up or self.state.queue.failure:
                raise RuntimeError("the server did not start") from self.state.queue.failure
            time.sleep(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self.uvicorn.should_exit = True
        self._thread.join(30)
        self._socket.close()

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers by small names, body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            reply = connection.getresponse()
            return reply.status, {key.lower(): value for key, value in reply.getheaders()}, reply.read()
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        return json.loads(self.ask("GET", path)[2])

    def post(self, value: Any) -> tuple[int, Any]:
        """Predict."""
        body = json.dumps(value).encode()
        status, _, found = self.ask("POST", "/predict", body, {"Content-Type": "application/json"})
        return status, json.loads(found)
