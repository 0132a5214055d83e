"""The node at the moment somebody looks, gathered from all parts of the agent."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aliquot import __version__
from deviceplugin.arbiter import NodeArbiter
from deviceplugin.booking.allocator import Allocator, ContainerAllocation
from deviceplugin.booking.sharing import Sharing
from deviceplugin.booking.sources import ContainerKey
from deviceplugin.gpus.health import HealthWatch
from deviceplugin.gpus.picture import Picture
from deviceplugin.telemetry.counts import Counts
from deviceplugin.telemetry.metrics import GpuSample, NodeSample
from deviceplugin.telemetry.readings import read_all
from deviceplugin.tenants.judgement import Breach, Kind
from deviceplugin.tenants.watch import TenantWatch

__all__ = ["Look", "Sampler"]


@dataclass(frozen=True, slots=True)
class Look:
    """The node at one moment, to be compared with itself at another."""

    at_s: float
    """Of the monotonic clock."""
    at_unix_s: float
    node: NodeSample
    utilization_percent: Mapping[str, float]
    """Of the GPUs, by uuid, as the driver says."""
    is_brief: bool = False
    """Of containers it has only the time that they have spent."""


@dataclass(frozen=True, slots=True)
class Sampler:
    sharing: Sharing
    picture: Picture
    allocator: Allocator
    health: HealthWatch
    tenants: TenantWatch
    arbiter: NodeArbiter
    counts: Counts

    def look(self, is_brief: bool = False) -> Look:
        return Look(
            time.monotonic(),
            time.time(),
            self.sample(is_brief),
            self.health.utilization_percent,
            is_brief,
        )

    def sample(self, is_brief: bool = False) -> NodeSample:
        allocations = self.allocator.allocations()
        return NodeSample(
            version=__version__,
            driver=self.picture.hardware.driver,
            unit_bytes=self.sharing.unit_bytes,
            gpus=self._gpus(allocations),
            containers=tuple(read_all(allocations, only_time=is_brief)),
            plans={
                each.key: each.planned
                for each in allocations
                if each.key is not None and each.planned is not None
            },
            xids=self.health.xid_counts,
            allocations=self.counts.allocations,
            conflicts=self.counts.conflicts,
            breaches=self.counts.breaches,
            shims_missing=_without_shim(self.tenants.breaches),
            arbiter_cpu_s=self.arbiter.cpu_s,
            probe_age_s=self.health.age_s,
        )

    def _gpus(self, allocations: Iterable[ContainerAllocation]) -> tuple[GpuSample, ...]:
        memory_bytes: Counter[str] = Counter()
        percent: Counter[str] = Counter()
        for each in allocations:
            for uuid in each.gpus:
                # Requests are split evenly over their GPUs.
                units = each.memory_units // len(each.gpus)
                if each.whole:
                    units = self.allocator.units_of(uuid)
                memory_bytes[uuid] += units * self.sharing.unit_bytes
                percent[uuid] += each.compute_percent // len(each.gpus)
        used_bytes = self.health.used_bytes
        utilization_percent = self.health.utilization_percent
        return tuple(
            GpuSample(
                uuid=gpu.uuid,
                index=gpu.index,
                model=gpu.model,
                memory_bytes=gpu.memory_bytes,
                memory_advertised_bytes=self.allocator.units_of(gpu.uuid) * self.sharing.unit_bytes,
                memory_held_bytes=memory_bytes[gpu.uuid],
                compute_advertised=self.sharing.compute_percent / 100,
                compute_held=percent[gpu.uuid] / 100,
                memory_used_bytes=used_bytes.get(gpu.uuid),
                utilization=_ratio(utilization_percent.get(gpu.uuid)),
                unusable=gpu.unusable,
                rivals=tuple(
                    rival.resource for rival in self.picture.rivals if gpu.uuid in rival.uuids
                ),
            )
            for gpu in self.picture.hardware.gpus
        )


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


def _without_shim(breaches: Iterable[Breach]) -> dict[ContainerKey, int]:
    found = {
        (breach.tenant.key, pid)
        for breach in breaches
        if breach.kind is Kind.SHIM_MISSING and breach.tenant and breach.tenant.key
        for pid in breach.pids
    }
    return Counter(key for key, _ in found)
