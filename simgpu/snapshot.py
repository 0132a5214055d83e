"""What a simulated node looked like at one moment: the ground truth that measurements use."""

from dataclasses import dataclass

__all__ = ["Device", "Process", "Snapshot", "Usage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU and its accounts since the node was made."""

    index: int
    uuid: str
    name: str
    memory_bytes: int
    used_bytes: int
    time_ns: int
    """Up to here the accounts are settled, on the node's clock."""
    busy_ns: int
    """How long it has worked for anybody, processes that are gone included."""
    idle_ns: int
    launches: int
    utilization_percent: int
    """Over the last whole sampling window, as NVML says it."""
    lost: bool
    xid_count: int
    last_xid: int | None
    ecc_errors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one process has of one GPU."""

    device: int
    used_bytes: int
    busy_ns: int
    queued_ns: int
    """GPU time that is submitted and not yet spent."""
    launches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A living process of the node."""

    slot: int
    generation: int
    pid: int
    """In its own pid namespace."""
    host_pid: int | None
    """In ours; None when it is not to be seen from here."""
    pid_namespace: int
    name: str
    usages: tuple[Usage, ...]
    """One for each GPU of the node."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All GPUs, each at its own moment, and the processes that lived then."""

    devices: tuple[Device, ...]
    processes: tuple[Process, ...]

    def process(self, host_pid: int) -> Process:
        """The process with this pid as we see it."""
        for process in self.processes:
            if process.host_pid == host_pid:
                return process
        raise KeyError(f"no process {host_pid} on the simulated node")
