"""Whether `accelerate launch` started this command together with others, and which of them it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tss.errors import ConfigError

if TYPE_CHECKING:
    from tss.learning.parallel import Ranks


@contextmanager
def launched(device: str | None) -> Iterator[Ranks]:
    """The processes that train together; one alone unless a launcher says otherwise."""
    from tss.learning.parallel import ALONE, join

    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ALONE
        return
    try:
        ranks = join(device)
    except ImportError:
        raise ConfigError(
            "several processes for one training need the package accelerate: pip install accelerate"
        ) from None
    yield ranks
    ranks.leave()
