"""What has happened on this node since the agent has started, counted for `/metrics`."""

import threading
from collections import Counter
from collections.abc import Mapping

__all__ = ["Counts"]


class Counts:
    """Counters by label values. Any thread may count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._allocations: Counter[tuple[str, str]] = Counter()
        self._breaches: Counter[tuple[str, str, str, str]] = Counter()
        self._conflicts = 0

    def allocation(self, resource: str, result: str) -> None:
        """An Allocate that was answered; results are granted, refused and failed."""
        with self._lock:
            self._allocations[resource, result] += 1

    def breach(self, kind: str, namespace: str, pod: str, container: str) -> None:
        with self._lock:
            self._breaches[kind, namespace, pod, container] += 1

    def conflict(self) -> None:
        """The kubelet gave an id that a living container holds."""
        with self._lock:
            self._conflicts += 1

    @property
    def allocations(self) -> Mapping[tuple[str, str], int]:
        with self._lock:
            return dict(self._allocations)

    @property
    def breaches(self) -> Mapping[tuple[str, str, str, str], int]:
        with self._lock:
            return dict(self._breaches)

    @property
    def conflicts(self) -> int:
        with self._lock:
            return self._conflicts
