"""`tss serve`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tss.cli import options, show
from tss.errors import ConfigError


def serve(
    store: options.Store,
    host: Annotated[str, typer.Option(help="Where to listen; all but loopback needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free one.")] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(help="A file with the token that clients must show; or set TSS_TOKEN.", show_default=False),
    ] = None,
    latency_ms: Annotated[
        float | None,
        typer.Option(
            help="How long an accepted input may take; what would take longer is refused. By default 1.75 "
            "times what the slowest inputs take alone.",
            show_default=False,
        ),
    ] = None,
    batch: Annotated[int, typer.Option(help="Texts of a batch, at most.")] = 32,
    queue: Annotated[int, typer.Option(help="Inputs waiting at once, at most.")] = 1024,
    body_bytes: Annotated[int, typer.Option(help="Bytes of a request, at most.")] = 1 << 20,
    items: Annotated[int, typer.Option(help="Inputs of a request, at most.")] = 256,
    characters: Annotated[int, typer.Option(help="Characters of an input, at most.")] = 20_000,
    seconds: Annotated[float, typer.Option(help="Time for a request, at most.")] = 30,
    log_level: Annotated[
        str, typer.Option(help="What goes to stderr: error, warning, info (a line for each request) or debug.")
    ] = "error",
    device: options.Device = None,
) -> None:
    """Answer over HTTP, with a page at /.

    Tasks of all kinds share batches. Tasks that are learnt, rolled back or removed meanwhile are followed.

    \b
    Examples:
      tss serve store
      tss serve store --host 0.0.0.0 --token-file token.txt
    """
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"serving needs {error.name}; install it with: pip install 'tss[serve]'") from None
    from tss.serve.limits import Limits
    from tss.serve.run import read_token
    from tss.serve.run import serve as run

    limits = Limits(
        body=body_bytes, items=items, characters=characters, queue=queue, batch=batch,
        latency=None if latency_ms is None else latency_ms / 1e3, seconds=seconds,
    )  # fmt: skip
    token = read_token(token_file, os.environ.get("TSS_TOKEN"))

    def started(address: str) -> None:
        show.note(f"serving {store} at {address} (Ctrl-C stops it)")

    run(store, host, port, token, device, limits, started, log_level)
