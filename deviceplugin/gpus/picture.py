"""The GPUs as everybody here sees them: what NVML shows, less what another plugin claims."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping

from deviceplugin.gpus.hardware import Hardware
from deviceplugin.gpus.inventory import Choice
from deviceplugin.gpus.others import Rival, find_rivals, withhold

__all__ = ["Picture"]

log = logging.getLogger(__name__)


class Picture:
    """Tells `publish` of every change, one at a time."""

    def __init__(
        self,
        choice: Choice,
        publish: Callable[[Hardware], None],
        tell: Callable[[str, str], None],
        look: Callable[[], Mapping[str, Iterable[str]] | None] = lambda: None,
    ) -> None:
        """`tell` takes a reason and a text for an event about this node. `look` asks what all
        plugins of this node advertise, by resource; None when that cannot be told now."""
        self._choice = choice
        self._publish = publish
        self._tell = tell
        self._look = look
        self._lock = threading.Lock()
        self._found = Hardware()
        self._shown: Hardware | None = None
        self._advertised: Mapping[str, Iterable[str]] = {}
        self._rivals: tuple[Rival, ...] = ()

    @property
    def hardware(self) -> Hardware:
        return self._shown or Hardware()

    @property
    def rivals(self) -> tuple[Rival, ...]:
        return self._rivals

    def take_hardware(self, found: Hardware) -> None:
        """Others are looked at before a GPU is shown that was not there yet: a pod could land on
        it at once."""
        known = {gpu.uuid for gpu in self._found.gpus}
        is_new = any(gpu.uuid not in known for gpu in found.gpus)
        advertised = self._look() if is_new else None
        with self._lock:
            self._found = found
            self._update(advertised)

    def take_advertised(self, advertised: Mapping[str, Iterable[str]]) -> None:
        """What all plugins of this node advertise, by resource."""
        with self._lock:
            self._update(advertised)

    def _update(self, advertised: Mapping[str, Iterable[str]] | None) -> None:
        if advertised is not None:
            self._advertised = advertised
        rivals = find_rivals(self._advertised, self._found)
        news = [rival for rival in rivals if rival not in self._rivals]
        self._rivals = rivals
        for rival in news:
            text = rival.describe(self._found, self._choice)
            log.warning("%s", text)
            self._tell("GpuClaimedTwice", text)
        shown = withhold(self._found, self._rivals, self._choice)
        if shown != self._shown:
            # In this order: what could not be published is published again.
            self._publish(shown)
            self._shown = shown
