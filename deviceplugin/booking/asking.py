"""What the allocator may ask others while it decides; how they know is not its business."""

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from deviceplugin.booking.sources import Held, PodView

__all__ = ["IsGone", "Listing", "PodSource", "ask"]

Listing = Callable[[], list[Held]]
"""Asks the kubelet's pod resources who holds what; an exception means that it did not answer.

`Held.ids` should have every resource's ids, also those of other plugins: that is how a GPU which
somebody else hands out is noticed.
"""

IsGone = Callable[[str, str, str], bool]
"""Whether a pod (namespace, name, uid if known) has ended as far as anybody can know: false while
the API server, where there is one, is away."""

_log = logging.getLogger(__name__)


class PodSource(Protocol):
    """The pods of this node as our watch of the API server knows them; never asks over a wire."""

    def find(self, namespace: str, name: str) -> PodView | None: ...

    def wait(self, namespace: str, name: str, seconds: float) -> PodView | None:
        """The same, waiting for a pod that is not there yet; at once None without an API server."""

    def waiting(self) -> Iterable[PodView]:
        """All pods of this node that are not finished."""

    def is_gone(self, namespace: str, name: str, uid: str) -> bool: ...


def ask(listing: Listing) -> list[Held] | None:
    """None when the kubelet does not answer: decisions go on without its list."""
    try:
        return listing()
    except Exception as error:  # whatever a socket can do
        _log.warning("the kubelet's list of pods is not to be had: %s", error)
        return None
