"""Waiting for what happens elsewhere, on machines that do many things at once."""

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["PATIENCE_S", "eventually"]

PATIENCE_S = 60.0
T = TypeVar("T")


def eventually(probe: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """Asks until the answer is true, and returns it."""
    deadline = time.monotonic() + patience_s
    while not (answer := probe()):
        if time.monotonic() > deadline:
            raise AssertionError(f"still {answer!r} after {patience_s:g} s")
        time.sleep(0.01)
    return answer
