"""What the kubelet is about to do: while it has ids in flight, nobody may ask it for its list.

A list asked for at that moment makes some kubelets forget the ids, and hand them out twice. And
while it waits for an answer, what nobody waits for can be done later: all threads share one
interpreter.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Traffic"]

FOLLOWS_WITHIN_S = 1.0
"""How soon an Allocate follows the choice of its ids; later it will not come any more."""
TAKEN_IN_S = 0.02
"""How long ids may still be in flight after our answer: until the kubelet has taken it in."""
GIVE_WAY_S = 0.05
"""How long work that nobody waits for is put off; pods may start one after the other for hours."""


class Traffic:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._choosing = 0
        self._open = 0
        self._expected_until: list[float] = []
        """For each choice that no Allocate has followed yet, until when one may; in order."""
        self._taken_in_at = 0.0

    @contextmanager
    def choosing(self) -> Iterator[None]:
        """Around GetPreferredAllocation: from its answer on the kubelet has ids in flight."""
        with self._changed:
            self._choosing += 1
        try:
            yield
            with self._changed:
                self._expected_until.append(self._clock() + FOLLOWS_WITHIN_S)
        finally:
            with self._changed:
                self._choosing -= 1
                self._changed.notify_all()

    @contextmanager
    def allocating(self) -> Iterator[None]:
        """Around Allocate."""
        with self._changed:
            self._open += 1
            now = self._clock()
            self._expected_until = [each for each in self._expected_until if each > now][1:]
        try:
            yield
        finally:
            with self._changed:
                self._open -= 1
                self._taken_in_at = self._clock() + TAKEN_IN_S
                self._changed.notify_all()

    @property
    def _busy_until(self) -> float:
        """As far as is known while no call is open."""
        return max([self._taken_in_at, *self._expected_until])

    @property
    def is_busy(self) -> bool:
        """Whether the kubelet waits for an answer of ours, or is about to."""
        with self._changed:
            return bool(self._choosing or self._open) or self._clock() < self._busy_until

    def give_way(self) -> None:
        """Before each part of a work that nobody waits for: lets a container's calls go first."""
        deadline = self._clock() + GIVE_WAY_S
        with self._changed:
            while self.is_busy and (now := self._clock()) < deadline:
                is_open = self._choosing or self._open
                until = deadline if is_open else min(deadline, self._busy_until)
                self._changed.wait(until - now)

    def wait_quiet(self, timeout_s: float) -> bool:
        """Waits until no ids are in flight; false if that did not happen in time."""
        deadline = self._clock() + timeout_s
        with self._changed:
            while True:
                now = self._clock()
                if not self._open and now >= self._busy_until:
                    return True
                if now >= deadline:
                    return False
                until = deadline if self._open else min(deadline, self._busy_until)
                self._changed.wait(until - now)
