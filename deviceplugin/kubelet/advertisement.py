"""The ids of one resource with their health, and a bell for whoever follows them."""

import threading
from collections.abc import Iterable
from itertools import islice

from deviceplugin.kubelet.proto import device_plugin_pb2 as api

__all__ = ["HEALTHY", "UNHEALTHY", "Advertisement"]

HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"
PIECE = 500
"""How many ids are made into bytes together."""


class Advertisement:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._message = b""
        self.version = 0
        self.bell = 0
        """Counts what may interest a follower; read it first, then look, then wait for more."""

    def publish(self, devices: Iterable[tuple[str, bool]]) -> bool:
        """Advertises these ids, healthy where true; answers whether anything is new."""
        message = _message(devices)
        with self._changed:
            if message == self._message:
                return False
            self._message = message
            self.version += 1
            self.bell += 1
            self._changed.notify_all()
            return True

    def current(self) -> tuple[int, bytes]:
        """The message as it goes over the wire: as objects it would take ten times as much."""
        with self._changed:
            return self.version, self._message

    def wait(self, bell: int) -> None:
        """Until the bell has rung since it was read."""
        with self._changed:
            self._changed.wait_for(lambda: self.bell != bell)

    def ring(self) -> None:
        """Lets followers look around: their own end may have come."""
        with self._changed:
            self.bell += 1
            self._changed.notify_all()


def _message(devices: Iterable[tuple[str, bool]]) -> bytes:
    # Repeated fields in pieces are the same as in one; made at once, they would take megabytes.
    rest, pieces = iter(devices), []
    while some := list(islice(rest, PIECE)):
        piece = api.ListAndWatchResponse()
        for each, healthy in some:
            piece.devices.add(ID=each, health=HEALTHY if healthy else UNHEALTHY)
        pieces.append(piece.SerializeToString())
    return b"".join(pieces)
