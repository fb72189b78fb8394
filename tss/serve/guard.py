"""What stands before every route: who may ask, how large a request may be, which headers each answer carries."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import ipaddress
import json
import re
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeAlias

from tss.serve.limits import Limits, Refusal

Scope: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[..., Any]
Send: TypeAlias = Callable[..., Any]

# The page is made of its own three files and talks to this server alone; a browser holds it to that.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HOST = re.compile(r"(localhost|[0-9.]+|\[[0-9a-fA-F:.]+\])(?::[0-9]+)?", re.IGNORECASE)
DRAINED = 64 << 20  # bytes of a body that is too large, read and thrown away
PAUSE = 1.0  # seconds without a byte of it after which it is not waited for
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """ASGI middleware. token: what a client must show, as a bearer or as the password of basic authentication."""

    def __init__(self, app: Any, token: str | None, limits: Limits, watch: Callable[[str, int, float], None]):
        self.app, self.limits, self._watch = app, limits, watch
        self._digest = None if token is None else hashlib.sha256(token.encode()).digest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        begin, status = time.monotonic(), 500

        async def sending(message: dict[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                given = [(key.encode(), value.encode()) for key, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", ()), *given]}
            await send(message)

        if scope["method"] == "HEAD":  # as GET; the connection leaves the body out
            scope = {**scope, "method": "GET"}
        try:
            self._admit(scope)
        except Refusal as refusal:
            if refusal.status == 413 and not any(key == b"expect" for key, _ in scope["headers"]):
                await drain(receive)
            await refuse(refusal, sending)
        else:
            await self.app(scope, receive, sending)
        finally:
            route = getattr(scope.get("route"), "path", None)  # never the raw path: it would be a label without end
            self._watch(route or "other", status, time.monotonic() - begin)

    def _admit(self, scope: Scope) -> None:
        headers = {key.lower(): value for key, value in scope["headers"]}
        if self._digest is not None:
            shown = hashlib.sha256(_credential(headers.get(b"authorization", b""))).digest()
            if not hmac.compare_digest(shown, self._digest):
                raise Refusal(401, "a token is needed: Authorization: Bearer TOKEN, or TOKEN as the password")
        elif not _local_name(headers.get(b"host", b"")):
            # A web page elsewhere could reach a loopback server under a name of its own (DNS rebinding).
            raise Refusal(421, "without a token this server answers to localhost alone; see the option --token-file")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > self.limits.body:
            raise Refusal(413, f"a request may have {self.limits.body:,} bytes; send several smaller ones")


def _credential(header: bytes) -> bytes:
    scheme, _, rest = header.strip().partition(b" ")
    if scheme.lower() == b"bearer":
        return rest.strip()
    if scheme.lower() == b"basic":
        try:
            return base64.b64decode(rest.strip(), validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""


def _local_name(host: bytes) -> bool:
    found = _HOST.fullmatch(host.decode("latin-1"))
    return found is not None and is_loopback(found[1])


async def drain(receive: Receive) -> None:
    """Let a client that sends too much come to its end, within reason: it reads an answer only after that."""
    left, more = DRAINED, True
    with contextlib.suppress(asyncio.TimeoutError):
        while more and left > 0:
            message = await asyncio.wait_for(receive(), PAUSE)
            left -= len(message.get("body", b""))
            more = message.get("more_body", False)


def plain(refusal: Refusal) -> bytes:
    """A refusal as it goes over the wire."""
    body = json.dumps({"error": refusal.message}).encode("ascii")
    headers = {"content-type": "application/json", "content-length": str(len(body)), **refusal.headers(), **HEADERS}
    if refusal.status == 503:
        headers["connection"] = "close"
    head = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
    return f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}\r\n{head}\r\n".encode("latin-1") + body


async def refuse(refusal: Refusal, send: Send) -> None:
    body = json.dumps({"error": refusal.message}).encode("ascii")
    headers = {"content-type": "application/json", "content-length": str(len(body)), **refusal.headers()}
    if refusal.status == 401:
        headers["www-authenticate"] = 'Basic realm="tss", charset="UTF-8"'
    if refusal.status == 413:
        headers["connection"] = "close"  # the rest of the body is not wanted
    listed = [(key.encode("latin-1"), value.encode("latin-1")) for key, value in headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": listed})
    await send({"type": "http.response.body", "body": body})
