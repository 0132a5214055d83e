"""The agent's kubelet side in the test's own process: real sockets, and a clock that stands still.

Where the agent waits for a moment only, a test beside a busy machine could not tell what it waited
for; here the moment lasts until the test lets it pass.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deviceplugin.booking.allocator import Allocator, PodSource
from deviceplugin.booking.journal import Journal
from deviceplugin.booking.sharing import MIB, Sharing
from deviceplugin.booking.sources import Held
from deviceplugin.clusterside import NoPods
from deviceplugin.container.files import ContainerFiles, UsageStore
from deviceplugin.container.gpuaccess import RuntimeAccess
from deviceplugin.gpus.hardware import Gpu, Hardware
from deviceplugin.kubelet.link import KubeletLink
from deviceplugin.telemetry.counts import Counts
from simcluster.kubelet import Kubelet
from tests.patience import PATIENCE_S

__all__ = ["UNITS", "UUIDS", "KubeletSide", "kubelet_side"]

UNITS = 320
UUIDS = tuple(f"GPU-00000000-0000-0000-0000-{number:012x}" for number in range(2))


class KubeletSide:
    """`now_s` is the time as the bookkeeping knows it."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.list_timeout_s = PATIENCE_S
        """How long the kubelet's list is waited for inside its own calls."""


@contextmanager
def kubelet_side(
    kubelet: Kubelet, folder: Path, pods: PodSource | None = None
) -> Iterator[KubeletSide]:
    """Registered with the kubelet, for two GPUs of 80 GiB."""
    library = folder / "libaliquot.so"
    library.write_bytes(b"not really a library")
    side, journal = KubeletSide(), Journal(folder / "state" / "journal")
    files = ContainerFiles(folder / "state", library, RuntimeAccess(), UsageStore.FOLDER)
    allocator = Allocator(Sharing(), files, journal, lambda: side.now_s)
    gpus = tuple(Gpu(uuid, n, "A100", UNITS * 256 * MIB) for n, uuid in enumerate(UUIDS))
    allocator.update_hardware(Hardware(gpus, driver="570.1"))
    link = KubeletLink(kubelet.folder, allocator, pods or NoPods(), Counts(), lambda _pod_uid: None)
    ask = link.podresources.list_now

    def list_now(timeout_s: float | None = None) -> list[Held]:
        return ask(side.list_timeout_s if timeout_s is None else timeout_s)

    link.podresources.list_now = list_now  # type: ignore[method-assign, assignment]
    try:
        link.reconcile()
        link.start()
        kubelet.wait_ready()
        yield side
    finally:
        link.stop()
        journal.close()
