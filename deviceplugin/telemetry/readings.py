"""What containers have and use, read from their files at the moment somebody looks."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from deviceplugin.booking.allocator import ContainerAllocation
from deviceplugin.booking.sources import ContainerKey
from shim import limits, usage
from shim.limits import WHOLE, DeviceLimits, Kind, LimitsError
from shim.usage import Usage, UsageError

__all__ = ["ContainerReading", "read_all"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ContainerReading:
    """One container on one GPU. Whatever its files do not tell is None."""

    key: ContainerKey
    gpu: str
    memory_limit_bytes: int | None
    memory_used_bytes: int | None
    memory_peak_bytes: int | None
    memory_refusals: int | None
    compute_share: float
    busy_s: float | None
    throttled_s: float | None
    launches: int | None
    policy: str = "fixed"
    start: str = ""
    """Another one after every start of the container: its counters begin anew."""


def read_all(
    allocations: Iterable[ContainerAllocation], *, only_time: bool = False
) -> list[ContainerReading]:
    """Containers that are known by name, each with all its GPUs. With `only_time`, just what they
    have spent of it is read from files: a quarter of the work."""
    return [
        reading
        for allocation in allocations
        if allocation.key is not None and allocation.key.container
        for reading in _read(allocation, allocation.key, only_time)
    ]


def _read(
    allocation: ContainerAllocation, key: ContainerKey, only_time: bool
) -> list[ContainerReading]:
    caps, shares, memory = {}, {}, None
    if not only_time:
        caps = _limits(allocation.memory_limits, Kind.MEMORY)
        shares = _limits(allocation.compute_limits, Kind.COMPUTE)
        memory = _usage(allocation.memory_usage, Kind.MEMORY)
    compute = _usage(allocation.compute_usage, Kind.COMPUTE)
    # Until its limits are written, a container has what it was allocated.
    allocated = allocation.compute_percent / 100 / max(1, len(allocation.gpus))
    start = allocation.member.name if allocation.member is not None else allocation.id
    readings = []
    for number, gpu in enumerate(allocation.gpus):
        held = memory.devices[number] if memory and number < len(memory.devices) else None
        spent = compute.devices[number] if compute and number < len(compute.devices) else None
        readings.append(
            ContainerReading(
                key=key,
                gpu=gpu,
                memory_limit_bytes=caps[gpu].limit_bytes if gpu in caps else None,
                memory_used_bytes=_held_bytes(memory, number) if memory and held else None,
                memory_peak_bytes=held.peak_bytes if held else None,
                memory_refusals=held.refused if held else None,
                compute_share=shares[gpu].share / WHOLE if gpu in shares else allocated,
                busy_s=spent.busy_ns / 1e9 if spent else None,
                throttled_s=spent.throttled_ns / 1e9 if spent else None,
                launches=spent.launches if spent else None,
                policy=allocation.policy,
                start=start,
            )
        )
    return readings


def _held_bytes(memory: Usage, number: int) -> int:
    return sum(process.held_bytes[number] for process in memory.processes if not process.is_gone())


def _limits(path: Path | None, kind: Kind) -> dict[str, DeviceLimits]:
    if path is None:
        return {}
    try:
        return {device.uuid: device for device in limits.read(path, kind).devices}
    except (OSError, LimitsError) as error:
        _log.debug("no limits: %s", error)  # it is just being made or removed
        return {}


def _usage(path: Path | None, kind: Kind) -> Usage | None:
    if path is None:
        return None
    try:
        return usage.read(path, kind)
    except (OSError, UsageError) as error:
        _log.debug("no usage: %s", error)  # a damaged one is the tenants' watch's business
        return None
