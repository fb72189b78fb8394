"""The routes. Every answer but the page is JSON; every refusal is `{"error": "…"}` with a fitting status."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

import tss
from tss.errors import TssError
from tss.serve import asked, schema
from tss.serve.guard import Guard, drain, plain
from tss.serve.job import Job
from tss.serve.limits import Limits, Refusal
from tss.serve.metrics import Metrics
from tss.serve.overlap import Overlaps
from tss.serve.queue import Queue
from tss.serve.tasks import Tasks

PAGE = Path(__file__).with_name("page")
FILES = {
    "": ("index.html", "text/html"),
    "page.css": ("page.css", "text/css"),
    "heat.js": ("heat.js", "text/javascript"),
    "page.js": ("page.js", "text/javascript"),
}


class Server:
    """What the routes share."""

    def __init__(self, tasks: Tasks, limits: Limits):
        self.tasks, self.limits = tasks, limits
        self.metrics = Metrics()
        self.queue = Queue(tasks, limits, self.metrics.batched)
        self.overlaps = Overlaps(tasks.store)
        self.began = time.monotonic()
        gauges = {
            "tss_queue_waiting": ("Inputs accepted and not yet answered.", lambda: len(self.queue)),
            "tss_tasks": ("Tasks in the store.", lambda: len(tasks.index().names())),
            "tss_tasks_in_memory": ("Tasks ready to answer at once.", tasks.at_hand),
            "tss_tasks_damaged": ("Tasks that could not be read when last asked.", lambda: len(tasks.damaged())),
            "tss_ready": ("1 when the model is loaded.", lambda: float(self.queue.ready)),
        }
        for name, (what, read) in gauges.items():
            self.metrics.gauge(name, what, read)

    def turn_away(self, too_many: bool) -> bytes | None:
        """The whole answer to any question while the queue takes none, or to one connection too many."""
        try:
            if too_many:
                raise Refusal(503, f"more than {self.limits.connections} connections; try again soon", retry_after=1)
            self.queue.admit()
        except Refusal as refusal:
            if refusal.status != 429 and not too_many:
                return None  # loading or closing: the long way tells it better
            self.metrics.request("other" if too_many else "/predict", refusal.status, 0.0)
            return plain(refusal)
        return None

    async def predict(self, body: bytes) -> Any:
        items, many = asked.read(body, self.limits)
        jobs = []
        for number, item in enumerate(items, 1):
            where = f"input {number}"
            try:
                jobs.append(Job(item, where, self.tasks.entry(item.task).summary["kind"]))
            except Refusal as refusal:
                raise Refusal(refusal.status, f"{where}: {refusal.message}" if many else refusal.message) from None
        self.queue.submit(jobs)
        found = await self._answers(jobs)
        refused = [one for one in found if isinstance(one, Refusal)]
        for one in refused:
            if one.status < 500 or len(refused) == len(found):
                raise one
        told = [_told(job, one) for job, one in zip(jobs, found, strict=True)]
        return {"answers": told} if many else told[0]

    async def _answers(self, jobs: list[Job]) -> list[Any]:
        waiting = [asyncio.wrap_future(job.answer) for job in jobs]
        try:
            out = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), self.limits.seconds + 1.0)
        except asyncio.TimeoutError:
            raise Refusal(503, "it took too long; the server is busy", retry_after=1) from None
        for one in out:
            if isinstance(one, BaseException) and not isinstance(one, Refusal):
                raise one
        return out


def _told(job: Job, found: Any) -> dict[str, Any]:
    if isinstance(found, Refusal):  # the other inputs of the request were answered
        return {"task": job.asked.task, "error": found.message, "status": found.status}
    assert job.entry is not None
    return {"task": job.entry.name, "version": job.entry.version, "kind": job.kind, **found}


def reply(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON in ASCII: half a surrogate pair in somebody's task name cannot break it."""
    return Response(json.dumps(value), status, headers, media_type="application/json")


async def _body(request: Request, limits: Limits) -> bytes:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise Refusal(415, "send JSON, with the header Content-Type: application/json")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Refusal(415, "send it as it is, without Content-Encoding")
    found = bytearray()

    async def collect() -> None:
        async for part in request.stream():
            found.extend(part)
            if len(found) > limits.body:
                found.clear()
                await drain(request.receive)
                raise Refusal(413, f"a request may have {limits.body:,} bytes; send several smaller ones")

    try:
        await asyncio.wait_for(collect(), limits.seconds)
    except asyncio.TimeoutError:
        raise Refusal(408, f"the request did not arrive within {limits.seconds:g} s") from None
    except ClientDisconnect:
        raise Refusal(400, "the request ended before its end") from None
    return bytes(found)


def make_app(tasks: Tasks, limits: Limits | None = None, token: str | None = None) -> FastAPI:
    """The ASGI application. `app.state.server` is what it works with."""
    server = Server(tasks, limits or Limits())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        server.queue.start()
        whole = 2 * server.limits.seconds  # later than the 408 of a route that reads the body
        yield {"turn_away": server.turn_away, "whole": whole, "connections": server.limits.connections}
        await run_in_threadpool(server.queue.close)

    app = FastAPI(
        title="tss",
        version=tss.__version__,
        description=schema.ABOUT,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirect would repeat the Host header that a client made up
    )
    app.state.server = server
    app.add_middleware(partial(Guard, token=token, limits=server.limits, watch=server.metrics.request))
    _refusals(app)
    _questions(app, server)
    _looks(app, server)
    _pages(app)
    return app


def _refusals(app: FastAPI) -> None:
    @app.exception_handler(Refusal)
    async def refused(request: Request, refusal: Refusal) -> Response:
        headers = refusal.headers() | ({"connection": "close"} if refusal.status in (408, 413) else {})
        return reply({"error": refusal.message}, refusal.status, headers)

    @app.exception_handler(TssError)
    async def failed(request: Request, problem: TssError) -> Response:
        return reply({"error": str(problem)}, 503)

    @app.exception_handler(HTTPException)
    async def missing(request: Request, problem: HTTPException) -> Response:
        told = {404: "there is no such page; see /docs", 405: "this page takes another method; see /docs"}
        return reply({"error": told.get(problem.status_code, problem.detail)}, problem.status_code)


def _questions(app: FastAPI, server: Server) -> None:
    @app.post("/predict", summary="Answer one text, or many of many tasks", openapi_extra=schema.PREDICT)
    async def predict(request: Request) -> Response:
        return reply(await server.predict(await _body(request, server.limits)))

    @app.get("/tasks", summary="The tasks, in the order they were learnt", openapi_extra=schema.TASKS)
    def tasks() -> Response:
        return reply({"tasks": server.tasks.listed(), "forgets": server.tasks.forgets()})

    @app.get("/overlap", summary="Share of equal gates of the newest tasks", openapi_extra=schema.OVERLAP)
    def overlap() -> Response:
        return reply(server.overlaps.told(server.tasks.index()))


def _looks(app: FastAPI, server: Server) -> None:
    @app.get("/health", summary="200 while the process lives", openapi_extra=schema.STATE)
    async def health() -> Response:
        return reply({"status": "alive", "seconds": round(time.monotonic() - server.began, 1)})

    @app.get("/ready", summary="200 when the model is loaded and the store can be read", openapi_extra=schema.STATE)
    def ready() -> Response:
        if not server.queue.ready:
            return reply({"error": "the model is not loaded yet"}, 503, {"retry-after": "1"})
        server.tasks.check_same()
        return reply({"status": "ready", "tasks": len(server.tasks.index().names()), "damaged": server.tasks.damaged()})

    @app.get("/metrics", summary="Counters for Prometheus", openapi_extra=schema.METRICS)
    def metrics() -> Response:
        return Response(server.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/load", summary="The last minute", openapi_extra=schema.STATE)
    async def load() -> Response:
        now = {"waiting": len(server.queue), "in_memory": server.tasks.at_hand(), "ready": server.queue.ready}
        return reply({**server.metrics.last_minute(), **now})


def _pages(app: FastAPI) -> None:
    async def page(request: Request) -> Response:
        name, kind = FILES[request.url.path.lstrip("/")]
        return Response((PAGE / name).read_bytes(), media_type=kind)

    for path in FILES:
        app.add_api_route(f"/{path}", page, include_in_schema=False)

    @app.get("/docs", include_in_schema=False)
    def docs() -> Response:
        return Response(schema.page(app.openapi()), media_type="text/html")
