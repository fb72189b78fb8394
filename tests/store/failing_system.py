"""Stand-ins for `os` inside the store: the k-th call that changes something fails, or ends the process."""

from __future__ import annotations

import os
import signal


class FailingSystem:
    """Stands for `os` inside the store; the k-th changing call fails, and all later ones too if it `stays` so."""

    COUNTED = ("write", "pwrite", "fsync", "replace", "mkdir", "unlink", "ftruncate")

    def __init__(self, fail_at: int, code: int, stays: bool):
        self.fail_at, self.code, self.stays = fail_at, code, stays
        self.calls = 0
        self.failed = ""

    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in self.COUNTED and name != "open":
            return real

        def call(*args, **options):
            if name == "open" and not args[1] & (os.O_CREAT | os.O_WRONLY):
                return real(*args, **options)
            self.calls += 1
            if self.calls == self.fail_at or (self.stays and self.calls > self.fail_at):
                self.failed = self.failed or name
                if name == "write":  # half of it arrives
                    real(args[0], bytes(args[1])[: len(args[1]) // 2])
                raise OSError(self.code, os.strerror(self.code))
            return real(*args, **options)

        return call


class KillingSystem(FailingSystem):
    """The k-th changing call is the process's last: it ends by SIGKILL before or, for a write, in the middle of it."""

    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in self.COUNTED and name != "open":
            return real

        def call(*args, **options):
            self.calls += 1
            if self.calls == self.fail_at:
                if name == "write":
                    real(args[0], bytes(args[1])[: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **options)

        return call
