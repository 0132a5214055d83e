"""Watches the node's GPUs: who appears, disappears, breaks and recovers is told within seconds.

One thread owns the NVML session. It waits for Xid events, probes every GPU every two seconds, and
opens the session anew when the driver has gone or the kernel lists other GPUs than before.
"""

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from aliquot.protocol.inventory import Link
from deviceplugin.condition import QUIET_S, Condition
from deviceplugin.hardware import Gpu, Hardware
from deviceplugin.inventory import Choice, Found, find, links_between, unknown_names
from deviceplugin.nvml import GpuFacts, Nvml, NvmlError, XidEvent
from deviceplugin.xids import describe, meaning_of

__all__ = ["PROBE_S", "HealthWatch"]

PROBE_S = 2.0
"""How often every GPU is asked how it is."""

REOPEN_S = 30.0
"""How often a session is opened anew for the sake of a GPU that does not answer: some come back
only then, but no event is heard meanwhile."""

EVENT_WAIT_MS = 500
"""How long one wait for events lasts, and so how long stopping takes."""

KERNEL_LIST = Path("/proc/driver/nvidia/gpus")
"""A folder with an entry for each GPU that the driver has; NVML itself looks only when opened."""

_log = logging.getLogger(__name__)


class HealthWatch(threading.Thread):
    """Tells `publish` about the GPUs at first sight and after every change, from its own thread."""

    def __init__(
        self,
        nvml: Nvml,
        publish: Callable[[Hardware], None],
        choice: Choice | None = None,
        *,
        quiet_s: float = QUIET_S,
        kernel_list: Path = KERNEL_LIST,
    ) -> None:
        super().__init__(name="gpu-health", daemon=True)
        self._nvml = nvml
        self._publish = publish
        self._choice = choice or Choice()
        self._quiet_s = quiet_s
        self._kernel_list = kernel_list
        self._stopping = threading.Event()

        self._facts: dict[str, GpuFacts] = {}
        self._conditions: dict[str, Condition] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._found = Found("", (), ())
        self._listed: tuple[str, ...] = ()
        self._opened_at_s = 0.0
        self._watched: frozenset[str] | None = None
        self._told: Hardware | None = None
        self._complaints: set[str] = set()

        self._counts: Counter[tuple[str, int]] = Counter()
        self._used_bytes: dict[str, int] = {}
        self._looked_at_s = time.monotonic()

    def stop_soon(self) -> None:
        """Asks the thread to end, which also closes the session; it may ask itself."""
        self._stopping.set()

    def stop(self) -> None:
        self.stop_soon()
        if self.is_alive():
            self.join()

    # --- what others may ask, from any thread --------------------------------------------------

    @property
    def xid_counts(self) -> dict[tuple[str, int], int]:
        """By uuid and number, since the agent has started."""
        return dict(self._counts)

    @property
    def used_bytes(self) -> dict[str, int]:
        """Memory in use by GPU, as of the last probe."""
        return dict(self._used_bytes)

    @property
    def age_s(self) -> float:
        """How old the last completed look is; it grows while a driver call hangs."""
        return time.monotonic() - self._looked_at_s

    # --- the thread ----------------------------------------------------------------------------

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self.look()
                    self._hear_until(time.monotonic() + PROBE_S)
                except Exception:  # whatever it is, the other GPUs still want watching
                    _log.exception("looking after the GPUs failed; trying again")
                    self._stopping.wait(PROBE_S)
        finally:
            self._nvml.close()

    def _hear_until(self, due_s: float) -> None:
        """Takes in events; ends early when it is better to look at once."""
        while time.monotonic() < due_s and not self._stopping.is_set():
            if not self._nvml.is_watching:
                self._stopping.wait(EVENT_WAIT_MS / 1000)
                continue
            try:
                event = self._nvml.wait(EVENT_WAIT_MS)
            except NvmlError as error:
                _log.info("no events from NVML: %s", error)
                # A driver that keeps answering so must not be asked in a loop.
                self._stopping.wait(EVENT_WAIT_MS / 1000)
                self._watched = None
                return
            if event is not None:
                self._note(event)

    def _note(self, event: XidEvent) -> None:
        self._counts[event.uuid, event.xid] += 1
        meaning = meaning_of(event.xid).value
        _log.warning("GPU %s reports %s (%s)", event.uuid, describe(event.xid), meaning)
        if event.uuid in self._conditions:
            self._conditions[event.uuid].note_xid(event.xid, time.monotonic())
            self._tell()

    def look(self) -> None:
        """Probes all GPUs once and tells what has changed; the thread calls it again and again."""
        try:
            if self._must_open():
                self._open()
            elif any(self._answers(index) for index, _ in self._found.silent):
                self._take_stock()
            for uuid in self._facts:
                self._probe(uuid)
            self._watch_events()
        except NvmlError as error:
            self._complain(f"no GPU can be used: {error}")
            self._nvml.close()
            self._used_bytes.clear()
            for condition in self._conditions.values():
                condition.note_silence(f"NVML does not answer: {error.why}")
        self._looked_at_s = time.monotonic()
        self._tell()

    def _must_open(self) -> bool:
        listed = _entries(self._kernel_list)
        changed, self._listed = listed != self._listed, listed
        if changed or not self._nvml.is_open:
            return True
        silent = [uuid for uuid in self._facts if uuid not in self._used_bytes]
        if len(silent) == len(self._facts) > 0:
            return True  # the driver itself was exchanged
        is_overdue = time.monotonic() - self._opened_at_s >= REOPEN_S
        return is_overdue and bool(silent or self._found.silent or not self._facts)

    def _open(self) -> None:
        self._watched = None
        self._nvml.open()
        self._opened_at_s = time.monotonic()
        self._take_stock()

    def _answers(self, index: int) -> bool:
        try:
            self._nvml.facts(index)
        except NvmlError:
            return False
        return True

    def _take_stock(self) -> None:
        self._found = find(self._nvml)
        for index, why in self._found.silent:
            self._complain(f"GPU {index} does not answer: {why}")
        if not self._found.silent:
            for name in unknown_names(self._choice, self._found.gpus):
                there = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in self._found.gpus)
                self._complain(f"the settings name GPU {name}, but there are: {there or 'none'}")
        ours = [gpu for gpu in self._found.gpus if self._takes(gpu)]
        for gpu in ours:
            self._facts[gpu.uuid] = gpu
            self._conditions.setdefault(gpu.uuid, Condition(self._quiet_s))
        self._links.update(links_between(self._nvml, [gpu.uuid for gpu in ours]))

    def _takes(self, gpu: GpuFacts) -> bool:
        if not self._choice.takes(gpu):
            return False
        if gpu.uuid not in self._facts and self._has_mig(gpu.uuid):
            self._complain(
                f"GPU {gpu.index} ({gpu.uuid}) is left out: it is in MIG mode, whose parts only "
                "the driver can share out; switch it off with `nvidia-smi -mig 0` to share it here"
            )
            return False
        return True

    def _has_mig(self, uuid: str) -> bool:
        try:
            return self._nvml.vitals(uuid).has_mig
        except NvmlError as error:
            if error.ends_session:
                raise
            return False  # lost just now, which the probe will say

    def _probe(self, uuid: str) -> None:
        try:
            vitals = self._nvml.vitals(uuid)
        except NvmlError as error:
            if error.ends_session:
                raise
            self._used_bytes.pop(uuid, None)
            self._conditions[uuid].note_silence(error.why)
        else:
            self._used_bytes[uuid] = vitals.used_bytes
            self._conditions[uuid].note_vitals(vitals, time.monotonic())

    def _watch_events(self) -> None:
        """Events of those that answer: one lost GPU would keep us from hearing of the others."""
        answering = frozenset(self._used_bytes)
        if answering == self._watched:
            return
        try:
            self._nvml.watch(answering)
        except NvmlError as error:
            if error.ends_session:
                raise
            self._complain(f"only probes will notice faults: {error}")
        self._watched = answering

    # --- telling -------------------------------------------------------------------------------

    def _tell(self) -> None:
        hardware = self._picture()
        if hardware == self._told:
            return
        before = {gpu.uuid: gpu.unusable for gpu in self._told.gpus} if self._told else {}
        for gpu in hardware.gpus:
            if gpu.unusable != before.get(gpu.uuid, ""):
                level = logging.WARNING if gpu.unusable else logging.INFO
                state = f"cannot be used: {gpu.unusable}" if gpu.unusable else "is well again"
                _log.log(level, "GPU %d (%s) %s", gpu.index, gpu.uuid, state)
        self._publish(hardware)
        self._told = hardware

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
            driver=self._found.driver,
        )

    def _link(self, one: str, other: str) -> Link:
        # To itself a GPU is as near as can be; two that never were there at once are far apart.
        return Link.NVLINK if one == other else self._links.get((one, other), Link.SYSTEM)

    def _complain(self, text: str) -> None:
        """Once, however often it is seen."""
        if text not in self._complaints:
            self._complaints.add(text)
            _log.warning("%s", text)


def _entries(folder: Path) -> tuple[str, ...]:
    try:
        return tuple(sorted(os.listdir(folder)))  # noqa: PTH208 - names are all that is needed
    except OSError:
        return ()  # no such driver, or one of another kind
