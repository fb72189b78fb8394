"""How much a server takes on, and the answer to whoever asks for more."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tss.errors import ConfigError


@dataclass(frozen=True)
class Limits:
    """latency: seconds within which accepted inputs should be answered; what would take longer is refused (429).

    None: 1.75 times what the slowest inputs, as they were asked lately, take alone, and more for a moment.
    """

    body: int = 1 << 20  # bytes of a request
    items: int = 256  # inputs of a request
    characters: int = 20_000  # of one input
    queue: int = 1024  # inputs accepted and not yet answered
    batch: int = 32  # rows of a forward pass
    latency: float | None = None
    linger: float = 0.004  # seconds that an idle server waits for company before it answers
    seconds: float = 30.0  # from acceptance to answer, and for a client to send its request
    connections: int = 1024

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if value is not None and not value > 0:
                raise ConfigError(f"the limit {one.name} must be above 0, not {value}")


class Refusal(Exception):
    """A request that is not answered as asked: an HTTP status and what the client should know."""

    def __init__(self, status: int, message: str, retry_after: int | None = None):
        super().__init__(message)
        self.status, self.message, self.retry_after = status, message, retry_after

    def headers(self) -> dict[str, str]:
        return {} if self.retry_after is None else {"retry-after": str(self.retry_after)}
