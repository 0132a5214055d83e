"""Waiting that an interrupt ends at a safe place: never between a process and its clean-up."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aliquot.errors import OperationError

__all__ = ["PATIENCE_S", "Patience"]

PATIENCE_S = 120.0
"""For what takes a second: a machine may have other things to do."""
_LOOK_S = 0.05
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Patience:
    """One for the whole demo; every wait of its main thread goes through it."""

    def __init__(self) -> None:
        self._interrupted = threading.Event()

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Meanwhile Ctrl-C and the like only end waits, by KeyboardInterrupt."""
        before = {each: signal.signal(each, lambda *_: self.interrupt()) for each in _SIGNALS}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def interrupt(self) -> None:
        self._interrupted.set()

    def pause(self, seconds: float) -> None:
        if self._interrupted.wait(seconds):
            raise KeyboardInterrupt

    def until(self, claim: Callable[[], object], what: str, most_s: float = PATIENCE_S) -> None:
        """Looks until the claim is true."""
        deadline_s = time.monotonic() + most_s
        while not claim():
            if time.monotonic() > deadline_s:
                raise OperationError(
                    f"waited {most_s:g} s in vain for {what}; is the machine overloaded?"
                )
            self.pause(_LOOK_S)
