"""Watches the node's GPUs: who appears, disappears, breaks and recovers is told within seconds.

One thread probes every GPU every two seconds, and opens NVML anew when the driver has gone or the
kernel lists other GPUs than before. It never waits for the driver itself: broken GPUs make drivers
hang, and then the others still want watching. Another one waits for Xid events.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from aliquot.protocol.inventory import Link
from deviceplugin.gpus.absence import Absence, explain_absence
from deviceplugin.gpus.condition import QUIET_S
from deviceplugin.gpus.fleet import Fleet
from deviceplugin.gpus.hardware import Hardware
from deviceplugin.gpus.inventory import Choice, links_between
from deviceplugin.gpus.kernellist import KERNEL_LIST, entries
from deviceplugin.gpus.nvml import Nvml, NvmlError, Vitals
from deviceplugin.gpus.patience import Patience, Unanswered
from deviceplugin.gpus.pcibus import gpus_on_bus
from deviceplugin.gpus.stock import Stock

__all__ = ["PROBE_S", "HealthWatch"]

PROBE_S = 2.0
"""How often every GPU is asked how it is."""

PATIENCE_S = 0.5
"""How long a look waits for answers; what comes later counts in the next one."""

HANG_S = 10.0
"""A GPU that takes longer cannot be used."""

OPEN_S = 20.0
"""How long opening may take: the driver may have to start the GPUs first."""

REOPEN_S = 30.0
"""How often a session is opened anew for the sake of a GPU that does not answer: some come back
only then, but no event is heard meanwhile."""

EVENT_WAIT_MS = 500
"""How long one wait for events lasts, and so how long stopping takes."""

STOP_S = 5.0
"""How long stopping waits for the driver; a thread that hangs in it ends with the process."""

_log = logging.getLogger(__name__)


class HealthWatch(threading.Thread):
    """Tells `publish` about the GPUs at first sight and after every change, from its threads."""

    def __init__(
        self,
        nvml: Nvml,
        publish: Callable[[Hardware], None],
        choice: Choice | None = None,
        *,
        quiet_s: float = QUIET_S,
        kernel_list: Path = KERNEL_LIST,
        host: Path = Path("/"),
        numbers: Path | None = None,
    ) -> None:
        """`host` is where the host's files are seen, `numbers` where those of the GPUs are kept."""
        super().__init__(name="gpu-health", daemon=True)
        self._nvml = nvml
        self._patience = Patience()
        self._fleet = Fleet(publish, quiet_s)
        self._complaints: set[str] = set()
        self._stock = Stock(
            nvml, self._patience, choice or Choice(), numbers, self._complain, PATIENCE_S
        )
        self._kernel_list = kernel_list
        self._host = host
        self._stopping = threading.Event()
        self._look_now = threading.Event()
        self._events = threading.Thread(target=self._hear, name="gpu-events", daemon=True)

        self._listed: tuple[str, ...] = ()
        self._opened_at_s = 0.0
        self._watched: frozenset[str] | None = None
        self._linked: frozenset[str] = frozenset()
        """Between which the links are known."""
        self._hanging: frozenset[str] = frozenset()
        self._looked_at_s = self._heard_at_s = time.monotonic()
        self._bus: tuple[str, ...] = ()
        self._bus_read_at_s: float | None = None
        self._absence: Absence | None = None

    def stop_soon(self) -> None:
        """Asks the threads to end, which also closes the session; they may ask themselves."""
        self._stopping.set()
        self._look_now.set()

    def stop(self) -> None:
        self.stop_soon()
        if self.is_alive():
            self.join(STOP_S)

    # --- what others may ask, from any thread --------------------------------------------------

    @property
    def xid_counts(self) -> dict[tuple[str, int], int]:
        """By uuid and number, since the agent has started."""
        return self._fleet.xids

    @property
    def used_bytes(self) -> dict[str, int]:
        """Memory in use by GPU, as of the last probe."""
        return self._fleet.used_bytes

    @property
    def utilization_percent(self) -> dict[str, float]:
        """How much of the last moment each GPU has worked, as of the last probe."""
        return self._fleet.utilization_percent

    @property
    def age_s(self) -> float:
        """For how long not all GPUs have been probed; it grows while a driver call hangs."""
        return max(time.monotonic() - self._looked_at_s, self._patience.tried_for_s)

    @property
    def stalled_s(self) -> float:
        """For how long we ourselves have not moved, which no driver should bring about. The wait
        for events may hang with a GPU that hangs."""
        moved_s = self._looked_at_s
        if self._patience.tried_for_s < HANG_S:
            moved_s = min(moved_s, self._heard_at_s)
        return time.monotonic() - moved_s

    @property
    def absence(self) -> Absence | None:
        """Why no GPU here is ours, as of the last look; None when one is, or was."""
        return self._absence

    # --- events --------------------------------------------------------------------------------

    def _hear(self) -> None:
        while not self._stopping.is_set():
            self._heard_at_s = time.monotonic()
            try:
                if not self._nvml.is_watching:
                    self._stopping.wait(EVENT_WAIT_MS / 1000)
                elif (event := self._nvml.wait(EVENT_WAIT_MS)) is not None:
                    self._fleet.note_xid(event, time.monotonic())
                    self._fleet.tell()
            except NvmlError as error:
                _log.info("no events from NVML: %s", error)
                self._watched = None
                self._look_now.set()
                # A driver that keeps answering so must not be asked in a loop.
                self._stopping.wait(EVENT_WAIT_MS / 1000)
            except Exception:  # of whoever was told; the next look tells it again
                _log.exception("telling of an event failed")
                self._look_now.set()

    # --- looking -------------------------------------------------------------------------------

    def run(self) -> None:
        self._events.start()
        try:
            while not self._stopping.is_set():
                try:
                    self.look()
                except Exception:  # whatever it is, the GPUs still want watching
                    _log.exception("looking after the GPUs failed; trying again")
                self._look_now.wait(PROBE_S)
                self._look_now.clear()
        finally:
            self._stopping.set()
            self._events.join()
            self._close()
            self._patience.close()

    def look(self) -> None:
        """Probes all GPUs once and tells what has changed; the thread calls it again and again."""
        failure: NvmlError | None = None
        try:
            failure = self._renew()
            self._probe()
            self._learn_links()
            self._watch_events()
        except NvmlError as error:
            failure = error
            if self._fleet.uuids:
                self._complain(f"no GPU can be used: {error}")
            self._close()
            self._fleet.note_silence(self._fleet.uuids, f"NVML does not answer: {error.why}")
        self._note_absence(failure)
        self._looked_at_s = time.monotonic()
        self._fleet.tell()

    def _note_absence(self, failure: NvmlError | None) -> None:
        absence = None
        if not self._fleet.uuids:
            absence = explain_absence(
                self._stock.found, failure, self._read_bus(), self._stock.doubts
            )
            if absence != self._absence:
                level = logging.WARNING if absence.is_fault else logging.INFO
                _log.log(level, "no GPU to hand out: %s", absence.why)
        self._absence = absence

    def _read_bus(self) -> tuple[str, ...]:
        """Not at every look: it can have hundreds of devices."""
        now_s = time.monotonic()
        if self._bus_read_at_s is None or now_s - self._bus_read_at_s >= REOPEN_S:
            self._bus, self._bus_read_at_s = gpus_on_bus(self._host), now_s
        return self._bus

    def _must_open(self) -> bool:
        if not self._nvml.is_open:
            return True
        known, answering = self._fleet.uuids, self._fleet.used_bytes
        if known and not answering and not self._hanging:
            return True  # the driver itself was exchanged
        is_overdue = time.monotonic() - self._opened_at_s >= REOPEN_S
        is_missing_some = len(answering) < len(known) or self._stock.is_missing_some or not known
        return is_overdue and is_missing_some

    def _renew(self) -> NvmlError | None:
        """Looks for GPUs where that is due. Why it could not, if those that are known can still be
        asked: somebody who hangs in the driver keeps the session as it is."""
        try:
            # NVML itself looks only when it is opened.
            listed = entries(self._kernel_list)
            if listed != self._listed or self._must_open() or self._stock.has_left_mig():
                self._open()
                self._listed = listed
            elif self._stock.has_new_answers():
                self._take_stock()
        except NvmlError as error:
            if error.ends_session or not self._nvml.is_open:
                raise
            self._complain(f"no GPUs are looked for: {error}")
            return error
        return None

    def _open(self) -> None:
        self._patience.ask("opening NVML", self._nvml.open, OPEN_S)
        self._patience.forget()
        self._watched, self._linked = None, frozenset()
        self._opened_at_s = time.monotonic()
        self._take_stock()

    def _close(self) -> None:
        if self._nvml.is_open:
            try:
                self._patience.ask("closing NVML", self._nvml.close, STOP_S)
            except NvmlError as error:
                _log.info("%s", error)  # somebody hangs in it

    def _take_stock(self) -> None:
        # At first those that take their time are waited for; later they would hold up the others.
        known = self._fleet.uuids
        ours = self._stock.take(known, PATIENCE_S if known else HANG_S)
        self._fleet.admit(self._stock.found.driver, ours)

    def _probe(self) -> None:
        probes = {uuid: partial(self._nvml.vitals, uuid) for uuid in self._fleet.uuids}
        answering = self._fleet.used_bytes
        answers = self._patience.ask_all(probes, PATIENCE_S)
        self._hanging = frozenset(u for u, told in answers.items() if isinstance(told, Unanswered))
        for uuid, told in answers.items():
            if isinstance(told, Vitals):
                self._fleet.note_vitals(uuid, told, time.monotonic())
            elif isinstance(told, Unanswered):
                if told.for_s >= HANG_S:
                    self._fleet.note_silence([uuid], f"a probe has hung for {HANG_S:g} s")
                elif uuid not in answering:
                    self._fleet.note_silence([uuid], "it has not answered a probe yet")
            elif told.ends_session:
                raise told
            else:
                self._fleet.note_silence([uuid], told.why)

    def _learn_links(self) -> None:
        answering = frozenset(self._fleet.used_bytes)
        if answering <= self._linked:
            return
        try:
            self._linked, links = self._patience.ask(
                "links", partial(_links, self._nvml, answering), PATIENCE_S
            )
        except Unanswered:
            return  # asked again in the next look
        self._fleet.note_links(links)

    def _watch_events(self) -> None:
        """Events of those that answer: one lost GPU would keep us from hearing of the others. One
        that hangs may still say why, if nobody has to ask it for that."""
        answering = frozenset(self._fleet.used_bytes)
        if self._watched is not None and answering | self._hanging & self._watched == self._watched:
            return
        try:
            watch = partial(self._nvml.watch, answering)
            self._watched = self._patience.ask("events", watch, PATIENCE_S)
        except NvmlError as error:
            if error.ends_session:
                raise
            self._complain(f"only probes will notice faults for now: {error}")
            return  # tried again in the next look
        for uuid in sorted(answering - self._watched):
            self._complain(f"only probes will notice faults of GPU {uuid} for now")

    def _complain(self, text: str) -> None:
        """Once, however often it is seen."""
        if text not in self._complaints:
            self._complaints.add(text)
            _log.warning("%s", text)


def _links(nvml: Nvml, uuids: Iterable[str]) -> tuple[frozenset[str], dict[tuple[str, str], Link]]:
    """With those whose they are: the answer may come when others are asked for."""
    asked = frozenset(uuids)
    return asked, links_between(nvml, asked)
