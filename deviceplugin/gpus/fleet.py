"""The GPUs that were ever seen since the agent has started, and the condition that each is in."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from aliquot.protocol.inventory import Link
from deviceplugin.gpus.condition import Condition
from deviceplugin.gpus.hardware import Gpu, Hardware
from deviceplugin.gpus.nvml import GpuFacts, Vitals, XidEvent
from deviceplugin.gpus.xids import describe, meaning_of

__all__ = ["Fleet"]

_log = logging.getLogger(__name__)


class Fleet:
    """Notes are taken from any thread; `publish` is called for one change at a time."""

    def __init__(self, publish: Callable[[Hardware], None], quiet_s: float) -> None:
        self._publish = publish
        self._quiet_s = quiet_s
        self._lock = threading.RLock()
        self._driver = ""
        self._facts: dict[str, GpuFacts] = {}
        self._conditions: dict[str, Condition] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._used_bytes: dict[str, int] = {}
        self._utilization_percent: dict[str, float] = {}
        self._xids: Counter[tuple[str, int]] = Counter()
        self._told: Hardware | None = None

    # --- what is known -------------------------------------------------------------------------

    @property
    def uuids(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._facts)

    @property
    def used_bytes(self) -> dict[str, int]:
        """Memory in use, of those that answered the last probe."""
        with self._lock:
            return dict(self._used_bytes)

    @property
    def utilization_percent(self) -> dict[str, float]:
        """Of those that answered the last probe and whose driver says it."""
        with self._lock:
            return dict(self._utilization_percent)

    @property
    def xids(self) -> dict[tuple[str, int], int]:
        """How often which GPU has reported which number."""
        with self._lock:
            return dict(self._xids)

    # --- what is noticed -----------------------------------------------------------------------

    def admit(self, driver: str, gpus: Iterable[GpuFacts]) -> None:
        """Those that are here now. Whoever was here before stays known: containers have its ids."""
        with self._lock:
            self._driver = driver
            for gpu in gpus:
                self._facts[gpu.uuid] = gpu
                self._conditions.setdefault(gpu.uuid, Condition(self._quiet_s))

    def note_links(self, links: Mapping[tuple[str, str], Link]) -> None:
        with self._lock:
            self._links.update(links)

    def note_vitals(self, uuid: str, vitals: Vitals, now_s: float) -> None:
        with self._lock:
            self._used_bytes[uuid] = vitals.used_bytes
            self._utilization_percent.pop(uuid, None)
            if vitals.utilization_percent is not None:
                self._utilization_percent[uuid] = vitals.utilization_percent
            self._conditions[uuid].note_vitals(vitals, now_s)

    def note_silence(self, uuids: Iterable[str], why: str) -> None:
        with self._lock:
            for uuid in uuids:
                self._used_bytes.pop(uuid, None)
                self._utilization_percent.pop(uuid, None)
                self._conditions[uuid].note_silence(why)

    def note_xid(self, event: XidEvent, now_s: float) -> None:
        """One that may be anybody's counts for all: they recover as soon as their probes pass."""
        meaning = meaning_of(event.xid).value
        who = f"GPU {event.uuid}" if event.uuid else "a GPU that is not known"
        _log.warning("%s reports %s (%s)", who, describe(event.xid), meaning)
        with self._lock:
            self._xids[event.uuid, event.xid] += 1
            for uuid, condition in self._conditions.items():
                if event.uuid in ("", uuid):
                    condition.note_xid(event.xid, now_s)

    # --- telling -------------------------------------------------------------------------------

    def tell(self) -> None:
        """Publishes, if anything is different from what was published last."""
        with self._lock:
            hardware = self._picture()
            if hardware == self._told:
                return
            self._log_changes(hardware)
            self._publish(hardware)
            self._told = hardware

    def _log_changes(self, hardware: Hardware) -> None:
        before = {gpu.uuid: gpu.unusable for gpu in self._told.gpus} if self._told else {}
        for gpu in hardware.gpus:
            if gpu.unusable != before.get(gpu.uuid, ""):
                level = logging.WARNING if gpu.unusable else logging.INFO
                state = f"cannot be used: {gpu.unusable}" if gpu.unusable else "is well again"
                _log.log(level, "GPU %d (%s) %s", gpu.index, gpu.uuid, state)

    def _picture(self) -> Hardware:
        facts = sorted(self._facts.values(), key=lambda gpu: (gpu.index, gpu.uuid))
        return Hardware(
            gpus=tuple(
                Gpu(
                    uuid=gpu.uuid,
                    index=gpu.index,
                    model=gpu.model,
                    memory_bytes=gpu.memory_bytes,
                    sms=gpu.sms,
                    numa=gpu.numa,
                    minor=gpu.minor,
                    unusable=self._conditions[gpu.uuid].unusable,
                )
                for gpu in facts
            ),
            links=tuple(
                tuple(self._link(one.uuid, other.uuid) for other in facts) for one in facts
            ),
            driver=self._driver,
        )

    def _link(self, one: str, other: str) -> Link:
        # To itself a GPU is as near as can be; two that never were there at once are far apart.
        return Link.NVLINK if one == other else self._links.get((one, other), Link.SYSTEM)
