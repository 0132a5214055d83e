"""Joins the link to the API server with the allocator, where there is an API server at all."""

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from deviceplugin.booking.allocator import Allocator
from deviceplugin.booking.errors import Refusal
from deviceplugin.booking.sharing import Sharing
from deviceplugin.booking.sources import PodView
from deviceplugin.settings import Settings

if TYPE_CHECKING:
    from deviceplugin.cluster.link import ClusterLink

__all__ = ["NoPods", "connect_cluster"]

log = logging.getLogger(__name__)


class NoPods:
    """Where there is no API server, nothing is known of pods."""

    def find(self, _namespace: str, _name: str) -> PodView | None:
        return None

    def wait(self, _namespace: str, _name: str, _seconds: float) -> PodView | None:
        return None

    def waiting(self) -> Iterable[PodView]:
        return ()

    def is_gone(self, _namespace: str, _name: str, _uid: str) -> bool:
        return True


def connect_cluster(
    settings: Settings,
    sharing: Sharing,
    allocator: Allocator,
    on_gone: Callable[[], None],
    give_way: Callable[[], None],
) -> "ClusterLink | None":
    """None where the settings want it so, or nothing says which cluster this is."""
    if settings.api_server == "off":
        return None
    # A fifth of the agent's memory, which nodes without an API server need not pay.
    from aliquot.kubernetes.client import connect
    from aliquot.kubernetes.errors import NoClusterError
    from deviceplugin.cluster.link import ClusterLink, Node

    try:
        client = connect()
    except NoClusterError as error:
        log.warning("works without an API server: %s", error)
        return None

    def learn(pod: PodView) -> None:
        log.debug("pod %s/%s (%s) is of this node", pod.namespace, pod.name, pod.uid)
        allocator.learn(pod)

    return ClusterLink(
        client,
        Node(
            name=settings.node_name,
            unit_mib=sharing.unit_mib,
            on_pod=learn,
            on_gone=lambda _pod: on_gone(),
            actual_of=allocator.actual_of,
            resize=lambda pod, container, wanted: allocator.resize(
                pod, container, wanted.memory_units, wanted.compute_percent
            ),
            refusals=(Refusal,),
            give_way=give_way,
        ),
    )
