"""Does something again and again in a thread of its own, whatever goes wrong in between."""

import logging
import threading
import time
from collections.abc import Callable

__all__ = ["Repeating"]

log = logging.getLogger(__name__)


class Repeating:
    def __init__(
        self, name: str, period_s: float, act: Callable[[], None], least_s: float = 0.0
    ) -> None:
        """`least_s` passes between two times, however often `soon` is called."""
        self.name = name
        self._period_s = period_s
        self._least_s = least_s
        self._act = act
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._done_s = time.monotonic()
        self._complaint = ""
        self._thread = threading.Thread(target=self._run, name=name)

    def start(self) -> None:
        """The first time comes after one period."""
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def soon(self) -> None:
        """Once more without waiting for the period's end."""
        self._wake.set()

    @property
    def overdue_s(self) -> float:
        """By how much the last round is late."""
        return time.monotonic() - self._done_s - self._period_s

    def _run(self) -> None:
        while True:
            self._wake.wait(self._period_s)
            self._wake.clear()
            if self._stopping.is_set():
                return
            try:
                self._act()
                self._complaint = ""
            except Exception as error:
                # Said once, not in every round.
                if str(error) != self._complaint:
                    log.exception("%s failed", self.name)
                self._complaint = str(error)
            self._done_s = time.monotonic()
            self._stopping.wait(self._least_s)
