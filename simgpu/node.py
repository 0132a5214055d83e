"""A simulated node as Python sees it: makes it, looks at it, breaks it, never runs on it."""

import dataclasses
import errno
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from simgpu._state import ffi, lib
from simgpu.faults import ClearFaults, LoseDevice, PendingFault, PostXid, parse_fault
from simgpu.hostpid import HostPids
from simgpu.models import GpuProfile, parse_spec
from simgpu.snapshot import Device, Process, Snapshot, Usage

__all__ = ["LIBRARIES", "STATE_VARIABLE", "Node", "NodeError"]

LIBRARIES = Path(__file__).parent.resolve() / "lib"
"""The folder with libcuda.so.1 and libnvidia-ml.so.1."""

STATE_VARIABLE = "ALIQUOT_SIM_STATE"
"""Tells the libraries which node they are on."""

DRIVER_VERSION = "610.43.02"
CUDA_VERSION = 13050
"""The newest version whose names the simulated driver knows."""

_CALLS = {
    "alloc": lib.SIM_CALL_ALLOC,
    "launch": lib.SIM_CALL_LAUNCH,
    "nvml": lib.SIM_CALL_NVML,
    "any": lib.SIM_CALL_ANY,
}


class NodeError(Exception):
    """There is no such node, or it cannot be used; the text says what to do."""


class Node:
    """A node that is open for looking at; it takes none of the node's process slots."""

    def __init__(self, path: Path, state: Any) -> None:
        self.path = path
        self._state = state

    @classmethod
    def create(
        cls,
        path: Path,
        spec: str | list[GpuProfile],
        *,
        seed: str | None = None,
        null_mode: bool = False,
        hide_idle: bool = False,
        driver_version: str = DRIVER_VERSION,
        cuda_version: int = CUDA_VERSION,
    ) -> Self:
        """Makes a node with these GPUs, in place of one that may be there, and opens it.

        In null mode launches and allocations are only counted; with `hide_idle` NVML lists only
        processes that have work, as some drivers do. Nodes of one cluster need different seeds,
        which give their GPUs different uuids.
        """
        if isinstance(spec, str):
            spec = parse_spec(spec) if seed is None else parse_spec(spec, seed)
        profiles = ffi.new("struct sim_profile[]", [_as_struct(profile) for profile in spec])
        options = ffi.new(
            "struct sim_options *",
            {
                "driver_version": driver_version.encode(),
                "cuda_version": cuda_version,
                "null_mode": null_mode,
                "hide_idle": hide_idle,
            },
        )
        error = lib.sim_make(os.fsencode(path), profiles, len(spec), options)
        if error:
            raise NodeError(f"cannot make a simulated node at {path}: {os.strerror(-error)}")
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Opens a node that somebody has made."""
        why = ffi.new("char[]", 8192)
        state = lib.sim_open(os.fsencode(path), why, len(why))
        if state == ffi.NULL:
            raise NodeError(os.fsdecode(ffi.string(why)))
        return cls(path, state)

    def close(self) -> None:
        if self._state is not None:
            lib.sim_close(self._state)
        self._state = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def environment(self, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
        """`environment` with what makes a program run on this node."""
        path = [str(LIBRARIES), environment.get("LD_LIBRARY_PATH", "")]
        return {
            **environment,
            STATE_VARIABLE: str(self.path.absolute()),
            "LD_LIBRARY_PATH": ":".join(filter(None, path)),
        }

    @property
    def gpus(self) -> int:
        return int(self._state.device_count)

    def snapshot(self) -> Snapshot:
        """Everything as of now; what dead processes had is given back first."""
        lib.sim_settle(self._state)
        readings = [self._read_device(device) for device in range(self.gpus)]
        host_pids = HostPids()
        processes = [
            _process(slot, reading, readings, host_pids)
            for slot in range(lib.SIM_PROCESSES)
            if (reading := self._read_process(slot)).pid
        ]
        return Snapshot(
            tuple(self._device(device, reading) for device, reading in enumerate(readings)),
            tuple(processes),
        )

    def inject(self, device: int, fault: str) -> None:
        """Lets a fault happen on a GPU: `xid=79`, `lost`, `alloc=3` and so on (see faults)."""
        if not 0 <= device < self.gpus:
            raise NodeError(f"there is no gpu{device} on {self.path}; it has {self.gpus} GPUs")
        match parse_fault(fault):
            case PostXid() as xid:
                self._do(lib.sim_post_xid(self._state, device, xid.xid, xid.ecc_errors))
                if xid.error:
                    self._pend(device, PendingFault("any", xid.error))
                if xid.loses_device:
                    self._do(lib.sim_lose(self._state, device))
            case LoseDevice():
                self._do(lib.sim_lose(self._state, device))
            case ClearFaults():
                self._do(lib.sim_clear(self._state, device))
            case PendingFault() as pending:
                self._pend(device, pending)

    def _pend(self, device: int, fault: PendingFault) -> None:
        uses = lib.SIM_FAULT_STAYS if fault.uses is None else fault.uses
        self._do(
            lib.sim_inject(
                self._state, device, _CALLS[fault.call], fault.error, uses, fault.delay_ns
            )
        )

    def _do(self, result: int) -> None:
        if result == -errno.ENOSPC:
            raise NodeError("too many faults wait for their calls already; `clear` removes them")
        if result:
            raise NodeError(f"{self.path} cannot be used: {os.strerror(-result)}")

    def _read_device(self, device: int) -> Any:
        reading = ffi.new("struct sim_device_reading *")
        self._do(lib.sim_read_device(self._state, device, reading))
        return reading

    def _read_process(self, slot: int) -> Any:
        reading = ffi.new("struct sim_process_reading *")
        self._do(lib.sim_read_process(self._state, slot, reading))
        return reading

    def _device(self, index: int, reading: Any) -> Device:
        profile = self._state.devices[index].profile
        return Device(
            index=index,
            uuid=ffi.string(profile.uuid).decode(),
            name=ffi.string(profile.name).decode(),
            memory_bytes=profile.memory_bytes,
            used_bytes=reading.used_bytes,
            time_ns=reading.time_ns,
            busy_ns=reading.gone_busy_ns + sum(usage.active_ns for usage in reading.usages),
            idle_ns=reading.idle_ns,
            launches=reading.gone_launches + sum(usage.launches for usage in reading.usages),
            utilization_percent=reading.utilization_percent,
            lost=bool(reading.lost),
            xid_count=reading.xid_count,
            last_xid=reading.last_xid if reading.xid_count else None,
            ecc_errors=reading.ecc_errors,
        )


def _as_struct(profile: GpuProfile) -> dict[str, Any]:
    """The fields as cffi takes them; they have the same names in C."""
    values = dataclasses.asdict(profile)
    return {
        name: value.encode() if isinstance(value, str) else value for name, value in values.items()
    }


def _process(slot: int, reading: Any, devices: list[Any], host_pids: HostPids) -> Process:
    return Process(
        slot=slot,
        generation=reading.generation,
        pid=reading.pid,
        host_pid=host_pids.find(reading.pid, reading.pid_namespace, reading.start_ticks),
        pid_namespace=reading.pid_namespace,
        name=os.fsdecode(ffi.string(reading.name)),
        usages=tuple(
            _usage(index, device.usages[slot], reading.generation)
            for index, device in enumerate(devices)
        ),
    )


def _usage(device: int, reading: Any, generation: int) -> Usage:
    if reading.generation != generation:
        # The slot changed hands after the GPU was read, and a newcomer has nothing yet.
        return Usage(device=device, used_bytes=0, busy_ns=0, queued_ns=0, launches=0)
    return Usage(
        device=device,
        used_bytes=reading.used_bytes,
        busy_ns=reading.active_ns,
        queued_ns=reading.horizon_ns - reading.active_ns,
        launches=reading.launches,
    )
