"""The kubelet's side of the agent in one piece: what it is told, asked and answered."""

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from deviceplugin.booking import checkpoint
from deviceplugin.booking.allocator import Allocator, PodSource
from deviceplugin.booking.sources import Holder
from deviceplugin.kubelet.advertisement import Advertisement
from deviceplugin.kubelet.answers import Answers
from deviceplugin.kubelet.holdings import HoldingsReader
from deviceplugin.kubelet.podresources import PodResources
from deviceplugin.kubelet.registration import Registration
from deviceplugin.kubelet.server import ResourceServer
from deviceplugin.kubelet.traffic import Traffic
from deviceplugin.telemetry.counts import Counts

__all__ = ["KubeletLink"]

PLUGINS_FOLDER = "device-plugins"
POD_RESOURCES_SOCKET = Path("pod-resources") / "kubelet.sock"

log = logging.getLogger(__name__)


class KubeletLink:
    def __init__(
        self,
        folder: Path,
        allocator: Allocator,
        pods: PodSource,
        counts: Counts,
        on_start: Callable[[str], None],
    ) -> None:
        """`folder` is the kubelet's, such as /var/lib/kubelet; `on_start` is called whenever a
        container may start, with its pod's uid or nothing."""
        self._counts = counts
        self._on_start = on_start
        self._allocator = allocator
        self._pods = pods
        self._plugins = folder / PLUGINS_FOLDER
        self._checkpoint_file = self._plugins / checkpoint.FILE_NAME
        self._checkpoint = checkpoint.Reader(self._checkpoint_file, allocator.same_ids)
        self.traffic = Traffic()
        self._advertisements = {
            each: Advertisement() for each in (MEMORY_RESOURCE, COMPUTE_RESOURCE)
        }
        self._advertising = threading.Lock()
        self._unreadable = ""
        self.podresources = PodResources(
            folder / POD_RESOURCES_SOCKET, self.traffic, HoldingsReader(allocator.same_ids)
        )
        self.registration = Registration(
            self._plugins, self._make_servers, allocator.kubelet_restarted
        )

    def start(self) -> None:
        self._allocator.on_change(self._advertise)
        self._advertise()
        self.registration.start()

    def stop(self) -> None:
        self.registration.stop()
        self.podresources.close()

    def reconcile(self) -> None:
        """Compares the allocator's books with the kubelet's."""
        self._allocator.reconcile(
            self._read_checkpoint,
            self.podresources.list_when_quiet,
            lambda: self.registration.term,
            self._pods.is_gone,
        )

    def held_in(self, pod_uid: str) -> list[Holder] | None:
        """What a pod has of all plugins; None when the kubelet's records cannot be read."""
        return self._told(lambda: checkpoint.holders_in(self._checkpoint_file, pod_uid))

    def _read_checkpoint(self) -> list[Holder] | None:
        self.traffic.give_way()
        return self._told(self._checkpoint.read)

    def _holders_of(self, device_id: str) -> list[Holder] | None:
        return self._told(lambda: checkpoint.holders_of(self._checkpoint_file, device_id))

    def _told(self, read: Callable[[], list[Holder]]) -> list[Holder] | None:
        """None when the checkpoint cannot be read; that is logged once."""
        try:
            holders = read()
        except checkpoint.CheckpointError as error:
            if str(error) != self._unreadable:
                log.warning("the kubelet's checkpoint is left aside: %s", error)
            self._unreadable = str(error)
            return None
        self._unreadable = ""
        return holders

    def _advertise(self) -> None:
        # One at a time: whoever read the ids earlier must not be the last to publish.
        with self._advertising:
            self._publish()

    def _publish(self) -> None:
        for resource, advertisement in self._advertisements.items():
            advertisement.publish(self._allocator.devices(resource))

    def _make_servers(self) -> Sequence[ResourceServer]:
        return [
            ResourceServer(
                resource,
                self._plugins,
                Answers(
                    resource,
                    self._allocator,
                    self._pods,
                    self.podresources.list_now,
                    self.podresources.list_when_quiet,
                    self._holders_of,
                    self._counts,
                    self._on_start,
                ),
                advertisement,
                self.traffic,
                self.registration.note_stream_end,
            )
            for resource, advertisement in self._advertisements.items()
        ]
