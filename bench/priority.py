"""Priority for measurements: what is measured should not be the queue for a processor."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["ahead_of_others"]

HIGHEST = -20


@contextmanager
def ahead_of_others() -> Iterator[None]:
    """Lets this thread, and what it starts, run before other programs where that is permitted."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, HIGHEST)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)
