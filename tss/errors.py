"""The errors a user can cause or meet. Each message says what is wrong, where, and what to do.

The command line prints the message alone; anything else that escapes is a bug of ours and keeps its traceback.
"""


class TssError(Exception):
    """Parent of every error that `tss` raises on purpose."""


class TaskError(TssError):
    """A task, its files, rows, labels or name are not usable."""


class ConfigError(TssError):
    """An option is unknown, of the wrong type, or impossible beside another one."""


class BackboneError(TssError):
    """A backbone cannot be found, loaded or used for this kind of task."""


class StoreError(TssError):
    """The store cannot be opened, read or written as asked; what was in it is unharmed."""


class DamagedError(StoreError):
    """A file of the store is missing or not what the index says; `tasks` names whom it concerns."""

    def __init__(self, message: str, tasks: tuple[str, ...] = ()):
        super().__init__(message)
        self.tasks = tasks


class LockedError(StoreError):
    """Another process is writing to the store."""


class UnknownTaskError(StoreError):
    """No task of that name; the message lists the nearest names."""


class TrainingError(TssError):
    """Training cannot go on (for example, the loss is not a number); the last good state is kept."""


def nearest(name: str, known: list[str] | tuple[str, ...]) -> str:
    """`'; did you mean a, b?'` for messages about unknown names, or the names themselves if there are few."""
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=3, cutoff=0.4)
    if close:
        return "; did you mean " + ", ".join(repr(c) for c in close) + "?"
    if not known:
        return "; there are none yet"
    return "; known: " + ", ".join(repr(k) for k in sorted(known)[:10]) + (", …" if len(known) > 10 else "")
