"""A gate that many may pass at the same time, or one alone."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Gate"]


class Gate:
    """Who wants to be alone waits for all who are inside, and is not overtaken by new ones."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside: dict[object, float] = {}
        """Since when each has been."""
        self._loners = 0
        self._is_closed = False

    @contextmanager
    def passing(self, timeout_s: float) -> Iterator[None]:
        """TimeoutError when somebody is alone for so long."""
        me = object()
        with self._changed:
            if not self._changed.wait_for(
                lambda: not self._is_closed and not self._loners, timeout_s
            ):
                raise TimeoutError
            self._inside[me] = time.monotonic()
        try:
            yield
        finally:
            with self._changed:
                del self._inside[me]
                self._changed.notify_all()

    @contextmanager
    def alone(self, timeout_s: float) -> Iterator[None]:
        """TimeoutError when somebody has been inside for so long, which can be so at once: who
        hangs there must not hold up the others again and again. They may go on then."""
        with self._changed:
            self._loners += 1
            try:
                if not self._wait_for_nobody(timeout_s):
                    raise TimeoutError
                self._is_closed = True
            finally:
                self._loners -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._is_closed = False
                self._changed.notify_all()

    def _wait_for_nobody(self, timeout_s: float) -> bool:
        asked_s = time.monotonic()
        while self._is_closed or self._inside:
            since_s = min(self._inside.values(), default=asked_s)
            left_s = since_s + timeout_s - time.monotonic()
            if left_s <= 0:
                return False
            self._changed.wait(left_s)
        return True
