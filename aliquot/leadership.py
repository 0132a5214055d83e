"""Who leads, of several processes that could: told by a lock file, and by signs of life in it.

The kernel lets go of a dead leader's lock. A leader that is stopped (Ctrl-Z, a debugger) or hangs
keeps it, so leading also means saying so again and again in the file. Whoever finds that nothing
was said for a while puts a locked file of its own in the place, and the old leader, when it goes
on, sees that the file there is no longer its own.
"""

import fcntl
import os
import threading
import time
from pathlib import Path

__all__ = ["Leadership"]

SILENCE_S = 1.0
"""A leader that has said nothing for so long is stopped or hangs."""


class Leadership:
    """One candidate's view of the lock file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def win(self) -> bool:
        """Leads from now on, if nobody else does."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_silent = _silence_s(descriptor) > SILENCE_S
            os.close(descriptor)
            return is_silent and self._depose()
        self._descriptor = descriptor
        return self.keep()

    def keep(self) -> bool:
        """Says that the leader lives; False, and no leader any more, when another one is there."""
        if self._descriptor is None:
            return False
        if not self._is_in_place():
            self.give_up()
            return False
        os.pwrite(self._descriptor, b"%20d" % time.monotonic_ns(), 0)
        return True

    def give_up(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _depose(self) -> bool:
        """Of several who do this at once, the last one leads: the others see its file."""
        own = self._path.with_name(f"{self._path.name}.{threading.get_native_id()}")
        descriptor = os.open(own, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        self._descriptor = descriptor
        own.replace(self._path)
        return self.keep()

    def _is_in_place(self) -> bool:
        assert self._descriptor is not None
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except FileNotFoundError:
            return False


def _silence_s(descriptor: int) -> float:
    said = os.pread(descriptor, 32, 0)
    # A leader that has just won has not said anything yet.
    return (time.monotonic_ns() - int(said)) / 1e9 if said.strip().isdigit() else 0.0
