"""A gate that many may pass at the same time, or one alone."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Gate"]


class Gate:
    """Who wants to be alone waits for all who are inside, and is not overtaken by new ones."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._loners = 0
        self._is_closed = False

    @contextmanager
    def passing(self, timeout_s: float | None = None) -> Iterator[None]:
        """TimeoutError when somebody is alone for so long."""
        with self._changed:
            if not self._changed.wait_for(
                lambda: not self._is_closed and not self._loners, timeout_s
            ):
                raise TimeoutError
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self, timeout_s: float) -> Iterator[None]:
        """TimeoutError when somebody inside does not leave; the others may go on then."""
        with self._changed:
            self._loners += 1
            try:
                if not self._changed.wait_for(
                    lambda: not self._is_closed and not self._inside, timeout_s
                ):
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
