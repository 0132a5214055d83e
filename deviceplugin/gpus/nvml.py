"""NVML with types: one session for the whole agent, and one kind of error with a text.

Handles belong to a session, so nobody outside ever sees one: GPUs are named by uuid. The session is
opened anew by whoever watches the GPUs (`health`); all others only ask, and hear of a driver that
is away as they hear of everything else that goes wrong.
"""

import ctypes
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from deviceplugin.gpus.devicenodes import borrow_nodes
from deviceplugin.gpus.driverlibrary import load_nvml
from deviceplugin.gpus.gate import Gate
from deviceplugin.gpus.kernellist import minor_of
from deviceplugin.gpus.nvmlcalls import NvmlError, ask, ask_or, ask_to_show

__all__ = ["GpuFacts", "GpuProcess", "Nvml", "NvmlError", "Vitals", "XidEvent"]

PATIENCE_S = 5.0
"""How long opening waits for calls that are under way, and they for it; what takes longer hangs in
the driver."""

# By compute capability, from there up to the next; NVIDIA publishes these with every architecture.
_CORES_PER_SM = (((8, 6), 128), ((7, 0), 64), ((6, 1), 128), ((6, 0), 64), ((5, 0), 128))

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """What does not change about a GPU while its session lasts."""

    uuid: str
    index: int
    model: str
    memory_bytes: int
    """0 where it has none of its own, or the driver does not tell."""
    sms: int
    numa: int
    minor: int


@dataclass(frozen=True, slots=True)
class Vitals:
    """What a probe finds of a GPU that answers."""

    used_bytes: int
    has_mig: bool
    recovery_action: int | None
    """What the driver asks for, 0: nothing; None where the driver does not say."""
    utilization_percent: int | None = None
    """Part of the last moment in which it has worked; None where the driver does not say."""


@dataclass(frozen=True, slots=True)
class GpuProcess:
    pid: int
    """As this process sees it: on a node, the host's."""
    used_bytes: int | None
    """None where the driver does not tell."""


@dataclass(frozen=True, slots=True)
class XidEvent:
    uuid: str
    """Empty when the driver does not tell whose it is."""
    xid: int


class Nvml:
    """A session, for all threads. One that hangs in the driver only keeps it from being opened
    anew; while opening hangs, all others hear that NVML does not answer."""

    def __init__(self, host: Path = Path("/")) -> None:
        """`host` is where the host's files are seen; its driver is used if it is not `/`."""
        self._host = host
        # No handle may be used after its session has ended, and no event set after its end.
        self._gate = Gate()
        self._is_open = False
        self._handles: dict[str, Any] = {}
        self._uuids: dict[int, str] = {}
        self._events: Any = None
        self._retired: list[Any] = []
        """Sets of events that nobody will wait for any more, still to be freed."""

    @property
    def is_open(self) -> bool:
        return self._is_open

    def open(self) -> None:
        """Opens the session, anew if there is one."""
        with self._alone():
            self._close()
            if self._host != Path("/"):
                borrow_nodes(self._host)
                load_nvml(self._host)
            ask("opening NVML", pynvml.nvmlInit)
            self._is_open = True

    def close(self) -> None:
        with self._alone():
            self._close()

    def _close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._events = None
        self._retired.clear()
        self._handles.clear()
        self._uuids.clear()
        try:
            ask("closing NVML", pynvml.nvmlShutdown)
        except NvmlError:
            pass  # the driver took the session with it

    # --- what there is -----------------------------------------------------------------------

    def driver(self) -> str:
        with self._passing():
            return str(ask("the driver's version", pynvml.nvmlSystemGetDriverVersion))

    def count(self) -> int:
        with self._passing():
            return int(ask("counting GPUs", pynvml.nvmlDeviceGetCount))

    def facts(self, index: int) -> GpuFacts:
        """The GPU with this number; it can be asked about by its uuid from then on."""
        with self._passing():
            asked = f"GPU {index}"
            handle = ask(asked, pynvml.nvmlDeviceGetHandleByIndex, index)
            uuid = str(ask(asked, pynvml.nvmlDeviceGetUUID, handle))
            self._handles[uuid] = handle
            self._uuids[_address(handle)] = uuid
            return GpuFacts(
                uuid=uuid,
                index=index,
                model=str(ask(asked, pynvml.nvmlDeviceGetName, handle)),
                memory_bytes=ask_or(0, asked, _memory_bytes, handle),
                sms=ask_to_show(0, asked, _sms, handle),
                numa=ask_to_show(-1, asked, _numa, handle),
                minor=_minor(asked, uuid, handle),
            )

    def is_linked(self, one: str, other: str) -> bool:
        """Whether NVLinks join the two, directly or through a switch."""
        with self._passing():
            ends = self._handle(one), self._handle(other)
            capability = pynvml.NVML_P2P_CAPS_INDEX_NVLINK
            status = ask_or(-1, f"GPU {one}", pynvml.nvmlDeviceGetP2PStatus, *ends, capability)
            return bool(status == pynvml.NVML_P2P_STATUS_OK)

    def common_ancestor(self, one: str, other: str) -> int:
        """Where the PCIe paths of the two meet, as an nvmlGpuTopologyLevel_t."""
        with self._passing():
            ends = self._handle(one), self._handle(other)
            far: int = pynvml.NVML_TOPOLOGY_SYSTEM
            return ask_or(far, f"GPU {one}", pynvml.nvmlDeviceGetTopologyCommonAncestor, *ends)

    # --- how it is ---------------------------------------------------------------------------

    def vitals(self, uuid: str) -> Vitals:
        with self._passing():
            handle, asked = self._handle(uuid), f"GPU {uuid}"
            # A handle may outlive its GPU, so the answer itself is compared.
            if ask(asked, pynvml.nvmlDeviceGetUUID, handle) != uuid:
                raise NvmlError(asked, "another GPU has taken its place")
            return Vitals(
                used_bytes=int(ask(asked, pynvml.nvmlDeviceGetMemoryInfo, handle).used),
                has_mig=ask_or([0, 0], asked, pynvml.nvmlDeviceGetMigMode, handle)[0] == 1,
                recovery_action=ask_to_show(None, asked, _recovery_action, handle),
                utilization_percent=ask_to_show(None, asked, _utilization_percent, handle),
            )

    def processes(self, uuid: str) -> list[GpuProcess]:
        """Who has something on the GPU, each pid once with all that it has."""
        with self._passing():
            handle, asked = self._handle(uuid), f"the processes of GPU {uuid}"
            found: dict[int, int | None] = {}
            none: list[Any] = []
            for listing in (
                pynvml.nvmlDeviceGetComputeRunningProcesses,
                pynvml.nvmlDeviceGetGraphicsRunningProcesses,
            ):
                for process in ask_or(none, asked, listing, handle):
                    # A process with both kinds of contexts is in both lists, with the same sum.
                    known, used = found.get(process.pid), process.usedGpuMemory
                    found[process.pid] = used if known is None else max(known, used or 0)
            return [GpuProcess(pid, used) for pid, used in found.items()]

    def utilization(self, uuid: str, since_us: int) -> list[Any]:
        """Samples of GPU time per process after a time stamp, as NVML's structs.

        For the arbiter, which has to be back in milliseconds: none while the session changes.
        """
        none: list[Any] = []
        try:
            with self._gate.passing(timeout_s=0.0):
                handle, asked = self._handle(uuid), f"the utilisation of GPU {uuid}"
                ask = pynvml.nvmlDeviceGetProcessUtilization
                return ask_or(none, asked, ask, handle, since_us)
        except TimeoutError:
            return none

    # --- events ------------------------------------------------------------------------------

    def watch(self, uuids: Iterable[str]) -> frozenset[str]:
        """From now on `wait` hears of Xids of these GPUs, but not of those that cannot be watched
        just now. Returns the others, with those that have no such events and stay silent."""
        with self._passing():
            events = ask("watching for Xids", pynvml.nvmlEventSetCreate)
            watched = frozenset(uuid for uuid in uuids if self._registers(uuid, events))
            before, self._events = self._events, events
            if before is not None:
                self._retired.append(before)
            return watched

    def _registers(self, uuid: str, events: Any) -> bool:
        asked, kinds = f"watching GPU {uuid} for Xids", pynvml.nvmlEventTypeXidCriticalError
        try:
            handle = self._handle(uuid)
            ask_or(None, asked, pynvml.nvmlDeviceRegisterEvents, handle, kinds, events)
        except NvmlError as error:
            if error.ends_session:
                raise
            _log.debug("%s", error)  # whoever watches sees which are missing
            return False
        return True

    @property
    def is_watching(self) -> bool:
        return self._events is not None

    def wait(self, timeout_ms: int) -> XidEvent | None:
        """The next Xid; None when there was none in time, or nothing is watched. For one thread."""
        with self._passing():
            asked, events = "waiting for Xids", self._events
            # Only here is it certain that nobody waits for them.
            while self._retired:
                ask(asked, pynvml.nvmlEventSetFree, self._retired.pop())
            if events is None:
                return None
            try:
                event = ask(asked, pynvml.nvmlEventSetWait_v2, events, timeout_ms)
            except NvmlError as error:
                if error.code == pynvml.NVML_ERROR_TIMEOUT:
                    return None
                raise
            if event.eventType != pynvml.nvmlEventTypeXidCriticalError:
                return None
            return XidEvent(self._whose(event.device), int(event.eventData))

    def _whose(self, handle: Any) -> str:
        uuid = self._uuids.get(_address(handle))
        if uuid is None:
            try:
                uuid = str(ask("a GPU that reports an Xid", pynvml.nvmlDeviceGetUUID, handle))
            except NvmlError as error:
                _log.warning("%s", error)
                return ""
        return uuid

    @contextmanager
    def _passing(self) -> Iterator[None]:
        try:
            with self._gate.passing(PATIENCE_S):
                yield
        except TimeoutError:
            why = f"NVML has not been opened for {PATIENCE_S:g} s"
            raise NvmlError("NVML", why, pynvml.NVML_ERROR_TIMEOUT) from None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            with self._gate.alone(PATIENCE_S):
                yield
        except TimeoutError:
            why = f"the driver has not answered another call for {PATIENCE_S:g} s"
            raise NvmlError("opening NVML", why, pynvml.NVML_ERROR_TIMEOUT) from None

    def _handle(self, uuid: str) -> Any:
        if not self._is_open:
            why = "NVML is not open, because the driver is away"
            raise NvmlError(f"GPU {uuid}", why, pynvml.NVML_ERROR_UNINITIALIZED)
        if uuid not in self._handles:
            handle = ask(f"GPU {uuid}", pynvml.nvmlDeviceGetHandleByUUID, uuid)
            self._handles[uuid] = handle
            self._uuids[_address(handle)] = uuid
        return self._handles[uuid]


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _sms(handle: Any) -> int:
    capability = tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle))
    cores = int(pynvml.nvmlDeviceGetNumGpuCores(handle))
    return next((cores // each for since, each in _CORES_PER_SM if capability >= since), 0)


def _numa(handle: Any) -> int:
    """The one node whose memory is nearest; -1 when several are alike."""
    (mask,) = pynvml.nvmlDeviceGetMemoryAffinity(handle, 1, pynvml.NVML_AFFINITY_SCOPE_NODE)
    return mask.bit_length() - 1 if mask.bit_count() == 1 else -1


def _memory_bytes(handle: Any) -> int:
    return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)


def _minor(asked: str, uuid: str, handle: Any) -> int:
    """Never guessed: another number is another GPU's."""
    try:
        return int(ask(asked, pynvml.nvmlDeviceGetMinorNumber, handle))
    except NvmlError as error:
        minor = None if error.is_lost or error.ends_session else minor_of(uuid)
        if minor is None:
            raise
        return minor


def _utilization_percent(handle: Any) -> int:
    return int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)


def _recovery_action(handle: Any) -> int | None:
    (field,) = pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    return int(field.value.uiVal) if field.nvmlReturn == pynvml.NVML_SUCCESS else None
