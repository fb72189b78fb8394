"""An open-loop load generator, a process of its own: requests leave when their time has come, answered or not.

`python -m torture.load` reads one JSON document (`Plan`) and writes one: for each request its sort, when it was due,
the seconds from then to the end of its answer, the status (0: the connection was closed without one), whether the
answer was the one expected, and how many seconds late it left. `rate` 0 means closed loop: each of `clients` asks again
when it was answered.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

PATIENCE = 20.0  # seconds that answers are waited for in the end


@dataclass
class Plan:
    """requests: [sort, the bytes as latin-1, what `answer` must be or null]; shares: how much of each sort."""

    port: int
    requests: list[tuple[str, str, Any]]
    shares: dict[str, float]
    seconds: float
    rate: float = 0.0
    clients: int = 1
    seed: int = 0
    core: int | None = None


@dataclass
class Sent:
    sort: str
    wire: bytes
    expected: Any
    due: float
    left: float = 0.0
    done: asyncio.Future = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Client(asyncio.Protocol):
    """One connection with at most one request on its way."""

    def __init__(self, free: deque[Client], told: list[list[Any]], begin: float):
        self.free, self.told, self.begin = free, told, begin
        self.sent: Sent | None = None
        self.found = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def send(self, sent: Sent) -> None:
        self.sent, sent.left = sent, time.monotonic()
        self.found.clear()
        self.transport.write(sent.wire)

    def data_received(self, data: bytes) -> None:
        self.found += data
        end = self.found.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self.found[:end]).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        if len(self.found) >= end + 4 + length:
            self._finish(int(head[9:12]), bytes(self.found[end + 4 :]))
            if b"connection: close" in head:
                self.transport.close()
            else:
                self.free.append(self)

    def connection_lost(self, problem: Exception | None) -> None:
        if self in self.free:
            self.free.remove(self)
        if self.sent is not None:
            self._finish(0, b"")

    def _finish(self, status: int, body: bytes) -> None:
        sent, self.sent = self.sent, None
        assert sent is not None
        right = status != 200 or json.loads(body).get("answer") == sent.expected
        seconds = time.monotonic() - sent.due
        lag = sent.left - sent.due
        self.told.append([sent.sort, round(sent.due - self.begin, 4), round(seconds, 5), status, right, round(lag, 5)])
        if not sent.done.done():
            sent.done.set_result(None)


class Load:
    def __init__(self, plan: Plan):
        self.plan, self.dice = plan, random.Random(plan.seed)
        self.free: deque[Client] = deque()
        self.told: list[list[Any]] = []
        self.by_sort: dict[str, list[tuple[bytes, Any]]] = {}
        for sort, wire, expected in plan.requests:
            self.by_sort.setdefault(sort, []).append((wire.encode("latin-1"), expected))
        self.begin = time.monotonic()

    def draw(self, due: float) -> Sent:
        sort = self.dice.choices(list(self.plan.shares), list(self.plan.shares.values()))[0]
        return Sent(sort, *self.dice.choice(self.by_sort[sort]), due)

    async def send(self, sent: Sent) -> None:
        try:
            client = self.free.pop() if self.free else await self._connect()
            client.send(sent)
            await asyncio.wait_for(sent.done, PATIENCE + self.plan.seconds)
        except (OSError, asyncio.TimeoutError):
            self.told.append([sent.sort, round(sent.due - self.begin, 4), PATIENCE, 0, True, 0.0])

    async def _connect(self) -> Client:
        loop, port = asyncio.get_running_loop(), self.plan.port
        made = await loop.create_connection(lambda: Client(self.free, self.told, self.begin), "127.0.0.1", port)
        return made[1]

    async def run(self) -> list[list[Any]]:
        self.begin = time.monotonic()
        end = self.begin + self.plan.seconds
        if not self.plan.rate:
            await asyncio.gather(*(self._again(end) for _ in range(self.plan.clients)))
            return self.told
        waiting, due = set(), self.begin
        while due < end:
            due += self.dice.expovariate(self.plan.rate)
            if due > time.monotonic():
                await asyncio.sleep(due - time.monotonic())
            elif len(waiting) % 16 == 0:
                await asyncio.sleep(0)  # late: the answers must still be read
            task = asyncio.create_task(self.send(self.draw(due)))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
        await asyncio.wait(waiting, timeout=PATIENCE)
        return self.told

    async def _again(self, end: float) -> None:
        while time.monotonic() < end:
            await self.send(self.draw(time.monotonic()))


def main() -> None:
    plan = Plan(**json.load(sys.stdin))
    if plan.core is not None:
        os.sched_setaffinity(0, {plan.core})

    async def work() -> list[list[Any]]:
        return await Load(plan).run()

    json.dump(asyncio.run(work()), sys.stdout)


if __name__ == "__main__":
    main()
