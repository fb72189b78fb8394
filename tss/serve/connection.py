"""One client's connection: closed if a request or its answer does not come to its end, and turned away cheaply when all
is full.

A half-open connection must not keep a place for ever, whichever request of the connection it is, however slowly the
bytes drip, and whether or not the client reads what it asked for. And refusing must cost next to nothing, or refusing
alone would keep the model from answering.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import socket
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

LINGER = 1.0  # seconds that a closed connection still takes in what is thrown away
SILENCE = 15.0  # seconds to the end of a request's headers
WHOLE = 60.0  # seconds to the end of its body, or for a client to read on, unless the server says otherwise
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,9})[ \t]*\r\n", re.IGNORECASE)


class Lingering:
    """A transport that, told to close, says its last word first and listens a moment longer.

    A socket that is closed while the client still sends is reset, and a reset throws away the answer on its way.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, whole: float = WHOLE):
        self._transport, self._loop, self._whole, self._closing = transport, loop, whole, False

    def close(self) -> None:
        if self.is_closing():
            return
        self._closing = True
        if not self._transport.can_write_eof():
            self._transport.close()
            return
        self._transport.resume_reading()
        try:
            self._transport.write_eof()
        except OSError:  # the client is gone already
            self._transport.close()
            return
        self._loop.call_later(LINGER, self._let_go)

    def _let_go(self) -> None:
        """Closing waits for the client to read the rest, which it may never do."""
        self._transport.close()
        if self._transport.get_write_buffer_size():
            self._loop.call_later(self._whole, self._transport.abort)

    def is_closing(self) -> bool:
        return self._closing or self._transport.is_closing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def _send_at_once(transport: asyncio.Transport) -> None:
    """An answer leaves as head and body; held back until the head is acknowledged, the body would come 40 ms late.

    The event loop sees to it only for sockets that name their protocol, which those made from an address do not.
    """
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):  # the client may be gone already
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class Connection(H11Protocol):
    """The app's lifespan state may hold `whole` (seconds), `connections` (how many) and `turn_away`: what to answer at
    once, or None; given True, the connection is one too many."""

    silence = SILENCE

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        _send_at_once(transport)
        self._whole = self.app_state.get("whole", WHOLE)
        super().connection_made(Lingering(transport, self.loop, self._whole))  # type: ignore[arg-type]
        self._too_many = len(self.connections) > self.app_state.get("connections", math.inf)
        self._deadline: asyncio.TimerHandle | None = None
        self._awaited: Any = None  # the part of a request that the deadline is for
        self._unread: asyncio.TimerHandle | None = None
        self._await(h11.IDLE)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():  # it has had its answer
            return
        if self._too_many:
            self.transport.write(self.app_state["turn_away"](True))
            self.transport.close()
            return
        if self._turned_away(data):
            return
        super().data_received(data)
        state = self.conn.their_state
        begun = state is h11.IDLE and self.conn.trailing_data[0]
        self._await(state if begun or state is h11.SEND_BODY else None)

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """A client that has said all it wants still hears the answer to it."""
        if self.cycle is None or self.cycle.response_complete or self.conn.their_state is not h11.DONE:
            return None
        self.cycle.keep_alive = False
        return True

    def pause_writing(self) -> None:
        """The client does not read: what it asked for waits here, and may not do so for ever."""
        super().pause_writing()
        self._unread = self.loop.call_later(self._whole, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        self._await(None)
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)

    def _await(self, part: Any) -> None:
        """Keep the deadline of a part that goes on; begin one for a new part; none while nothing is owed."""
        if part is self._awaited:
            return
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._awaited = part
        if part is not None:
            seconds = self.silence if part is h11.IDLE else self._whole
            self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _turned_away(self, data: bytes) -> bool:
        """Answer a whole small question without looking at it, if the queue takes none now."""
        if not data.startswith(b"POST /predict HTTP/1.1\r\n") or self.conn.their_state is not h11.IDLE:
            return False
        if self.conn.trailing_data[0] or self.transport.is_closing() or "turn_away" not in self.app_state:
            return False
        end = data.find(b"\r\n\r\n")
        lengths = _LENGTH.findall(data, 0, end + 2)
        if end < 0 or len(lengths) != 1 or len(data) != end + 4 + int(lengths[0]):
            return False
        answer = self.app_state["turn_away"](False)
        if answer is None:
            return False
        self._unset_keepalive_if_required()
        self._await(None)
        self.transport.write(answer)
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)
        return True
