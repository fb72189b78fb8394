"""Serving until somebody stops it: the address, the token, and an end that finishes what was accepted."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from tss.errors import ConfigError
from tss.serve.guard import is_loopback
from tss.serve.limits import Limits

SHORTEST_TOKEN = 16
LEVELS = ("error", "warning", "info", "debug")


def check_address(host: str, token: str | None) -> None:
    """Raises ConfigError if an address that others can reach has no token, or the token is too short to be one."""
    if token is None:
        if not is_loopback(host):
            raise ConfigError(
                f"{host} can be reached from other machines, so a token is needed: put one of at least "
                f"{SHORTEST_TOKEN} characters into a file and give --token-file, or set TSS_TOKEN"
            )
    elif len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(f"a token is at least {SHORTEST_TOKEN} printable ASCII characters without blanks")


def read_token(file: Path | None, given: str | None) -> str | None:
    """The token in a file (its blanks and line end cut off), else the one given. Raises ConfigError."""
    if file is None:
        return given or None
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"cannot read the token from {file}: {problem}") from None


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises ConfigError naming the address if it cannot be had."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError) as problem:
        raise ConfigError(f"cannot listen on {host} port {port}: {problem}; choose another --port") from None


def serve(
    store: str | os.PathLike[str],
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    device: str | None = None,
    limits: Limits | None = None,
    started: Callable[[str], None] | None = None,
    log_level: str = "error",
) -> None:
    """Answer until SIGINT or SIGTERM, then finish what was accepted. `started` is called with the address.

    log_level: what goes to stderr, one of `LEVELS`; from "info" on a line for each request that was looked at.

    Raises ConfigError, StoreError, BackboneError.
    """
    check_address(host, token)
    if log_level not in LEVELS:
        raise ConfigError(f"there is no log level {log_level!r}; there are {', '.join(LEVELS)}")
    from tss.serve.app import make_app
    from tss.serve.tasks import Tasks

    limits = limits or Limits()
    app = make_app(Tasks(store, device), limits, token)
    with bind(host, port) as sock:
        server = _server(app, limits, log_level)
        with _heard(server.handle_exit):
            if started is not None:
                found = sock.getsockname()
                shown = f"[{found[0]}]" if ":" in found[0] else found[0]
                started(f"http://{shown}:{found[1]}")
            asyncio.run(_until_stopped(server, sock, app.state.server.queue))
    failure = app.state.server.queue.failure
    if failure is not None:
        raise failure


@contextlib.contextmanager
def _heard(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Signals that end the server count from the moment its address is told, not only once all is up."""
    signs = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = {sign: signal.signal(sign, handler) for sign in signs}
    try:
        yield
    finally:
        for sign, old in before.items():
            signal.signal(sign, old)


def _server(app: Any, limits: Limits, log_level: str) -> Any:
    import uvicorn

    from tss.serve.connection import Connection

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            """To end when told so is success: the signal is not raised again afterwards, so the exit status is 0."""
            self.force_exit |= self.should_exit and sig == signal.SIGINT
            self.should_exit = True

    logs = copy.deepcopy(uvicorn.config.LOGGING_CONFIG)
    logs["handlers"]["access"]["stream"] = "ext://sys.stderr"
    return Server(
        uvicorn.Config(
            app,
            http=Connection,
            ws="none",
            access_log=log_level in ("info", "debug"),
            log_level=log_level,
            log_config=logs,
            server_header=False,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=int(limits.seconds) + 5,
        )
    )


async def _until_stopped(server: Any, sock: socket.socket, queue: Any) -> None:
    """Serve; a model that cannot be loaded ends the server, for there is nothing it could answer."""

    async def watch() -> None:
        while queue.failure is None:
            await asyncio.sleep(0.2)
        server.should_exit = True

    watching = asyncio.create_task(watch())
    await server.serve(sockets=[sock])
    watching.cancel()
