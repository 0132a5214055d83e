"""Whether the kubelet has ids in flight: while it has, nobody may ask it for its list.

A list asked for at that moment makes some kubelets forget the ids, and hand them out twice.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Traffic"]

FOLLOWS_WITHIN_S = 1.0
"""How soon an Allocate follows the choice of its ids; later it will not come any more."""


class Traffic:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._open = 0
        self._expected_until = 0.0

    @contextmanager
    def choosing(self) -> Iterator[None]:
        """Around GetPreferredAllocation: from its answer on the kubelet has ids in flight."""
        yield
        with self._changed:
            self._expected_until = self._clock() + FOLLOWS_WITHIN_S

    @contextmanager
    def allocating(self) -> Iterator[None]:
        """Around Allocate."""
        with self._changed:
            self._open += 1
            self._expected_until = 0.0
        try:
            yield
        finally:
            with self._changed:
                self._open -= 1
                self._changed.notify_all()

    def wait_quiet(self, timeout_s: float) -> bool:
        """Waits until no ids are in flight; false if that did not happen in time."""
        deadline = self._clock() + timeout_s
        with self._changed:
            while True:
                now = self._clock()
                if not self._open and now >= self._expected_until:
                    return True
                if now >= deadline:
                    return False
                until = deadline if self._open else min(deadline, self._expected_until)
                self._changed.wait(until - now)
