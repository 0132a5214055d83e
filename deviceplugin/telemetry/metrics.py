"""`/metrics`: one table of what there is, filled from a plain picture of the node."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from deviceplugin.booking.sources import ContainerKey
from deviceplugin.gpus.xids import meaning_of
from deviceplugin.telemetry.readings import ContainerReading

__all__ = ["CONTENT_TYPE", "ROWS", "GpuSample", "Metrics", "NodeSample", "Row"]

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

GPU = ("gpu_uuid",)
CONTAINER = ("namespace", "pod", "container")
SLICE = (*CONTAINER, *GPU)

# There from the start: of a counter that begins with 1, nobody sees the increase.
_NO_ALLOCATIONS = {
    (resource, result): 0
    for resource in (MEMORY_RESOURCE, COMPUTE_RESOURCE)
    for result in ("granted", "refused", "failed")
}


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU of the node at the moment of asking."""

    uuid: str
    index: int
    model: str
    memory_bytes: int
    memory_advertised_bytes: int
    memory_held_bytes: int
    compute_advertised: float
    compute_held: float
    memory_used_bytes: int | None = None
    utilization: float | None = None
    """Part of the last moment in which it has worked for anybody, as the driver says."""
    unusable: str = ""
    rivals: tuple[str, ...] = ()
    """Resources of other plugins that stand for it."""


@dataclass(frozen=True, slots=True)
class NodeSample:
    version: str
    driver: str = ""
    unit_bytes: int = 1
    """What one id of memory stands for."""
    gpus: tuple[GpuSample, ...] = ()
    containers: tuple[ContainerReading, ...] = ()
    plans: Mapping[ContainerKey, bool] = field(default_factory=dict)
    """Of planned containers: whether they have what was planned."""
    xids: Mapping[tuple[str, int], int] = field(default_factory=dict)
    allocations: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By resource and result."""
    conflicts: int = 0
    breaches: Mapping[tuple[str, str, str, str], int] = field(default_factory=dict)
    """By kind, namespace, pod and container."""
    shims_missing: Mapping[ContainerKey, int] = field(default_factory=dict)
    arbiter_cpu_s: float = 0.0
    probe_age_s: float = 0.0


Value = tuple[tuple[str, ...], float | None]
"""Label values in the order of the row, and the number; None leaves the series out."""


@dataclass(frozen=True, slots=True)
class Row:
    """One metric. Counters end in _total, as Prometheus wants it."""

    name: str
    help: str
    labels: tuple[str, ...]
    read: Callable[[NodeSample], Iterable[Value]]

    @property
    def kind(self) -> str:
        return "counter" if self.name.endswith("_total") else "gauge"


def _of_gpus(value: Callable[[GpuSample], float | None]) -> Callable[[NodeSample], Iterable[Value]]:
    return lambda node: (((gpu.uuid,), value(gpu)) for gpu in node.gpus)


def _of_containers(
    value: Callable[[ContainerReading], float | None],
) -> Callable[[NodeSample], Iterable[Value]]:
    return lambda node: (((*_names(each.key), each.gpu), value(each)) for each in node.containers)


def _ids(
    memory_bytes: Callable[[GpuSample], int], compute: Callable[[GpuSample], float]
) -> Callable[[NodeSample], Iterable[Value]]:
    """Of all GPUs together; one id of compute is a percent."""
    return lambda node: [
        ((MEMORY_RESOURCE,), sum(map(memory_bytes, node.gpus)) // node.unit_bytes),
        ((COMPUTE_RESOURCE,), round(100 * sum(map(compute, node.gpus)))),
    ]


def _names(key: ContainerKey) -> tuple[str, str, str]:
    return key.namespace, key.pod, key.container


ROWS = (
    Row(
        "aliquot_build_info",
        "Always 1; the version of the node agent and of the driver.",
        ("version", "driver"),
        lambda node: [((node.version, node.driver), 1)],
    ),
    Row(
        "aliquot_node_gpus",
        "GPUs of the node that are ours to hand out, broken ones too; 0 where there is none.",
        (),
        lambda node: [((), len(node.gpus))],
    ),
    Row(
        "aliquot_gpu_info",
        "Always 1; what the GPU is.",
        ("gpu_uuid", "gpu", "model"),
        lambda node: (((gpu.uuid, str(gpu.index), gpu.model), 1) for gpu in node.gpus),
    ),
    Row(
        "aliquot_gpu_usable",
        "1 if containers may start on the GPU, 0 if it is broken or withdrawn.",
        GPU,
        _of_gpus(lambda gpu: float(not gpu.unusable)),
    ),
    Row(
        "aliquot_gpu_memory_bytes",
        "Memory of the GPU.",
        GPU,
        _of_gpus(lambda gpu: gpu.memory_bytes),
    ),
    Row(
        "aliquot_gpu_memory_advertised_bytes",
        "Memory of the GPU that can be handed out.",
        GPU,
        _of_gpus(lambda gpu: gpu.memory_advertised_bytes),
    ),
    Row(
        "aliquot_gpu_memory_held_bytes",
        "Memory of the GPU that containers hold, used or not.",
        GPU,
        _of_gpus(lambda gpu: gpu.memory_held_bytes),
    ),
    Row(
        "aliquot_gpu_memory_used_bytes",
        "Memory of the GPU in use by anybody, as the driver says.",
        GPU,
        _of_gpus(lambda gpu: gpu.memory_used_bytes),
    ),
    Row(
        "aliquot_gpu_compute_advertised_ratio",
        "Compute of the GPU that can be handed out; above 1 where it is over-committed.",
        GPU,
        _of_gpus(lambda gpu: gpu.compute_advertised),
    ),
    Row(
        "aliquot_gpu_compute_held_ratio",
        "Compute of the GPU that containers hold, used or not.",
        GPU,
        _of_gpus(lambda gpu: gpu.compute_held),
    ),
    Row(
        "aliquot_gpu_utilization_ratio",
        "Part of the last moment in which the GPU has worked for anybody, as the driver says.",
        GPU,
        _of_gpus(lambda gpu: gpu.utilization),
    ),
    Row(
        "aliquot_gpu_xids_total",
        "Errors of the driver, by number and by what it means: application, notice, fatal.",
        ("gpu_uuid", "xid", "meaning"),
        lambda node: (
            ((uuid, str(xid), meaning_of(xid).value), count)
            for (uuid, xid), count in node.xids.items()
        ),
    ),
    Row(
        "aliquot_gpu_advertised_elsewhere",
        "1 if another device plugin advertises the same GPU as this resource.",
        ("gpu_uuid", "resource"),
        lambda node: (((gpu.uuid, name), 1) for gpu in node.gpus for name in gpu.rivals),
    ),
    Row(
        "aliquot_gpu_probe_age_seconds",
        "Time since all GPUs were last probed; it grows while the driver hangs.",
        (),
        lambda node: [((), node.probe_age_s)],
    ),
    Row(
        "aliquot_container_memory_limit_bytes",
        "Memory cap of the container; absent where it has the whole GPU.",
        SLICE,
        _of_containers(lambda each: each.memory_limit_bytes),
    ),
    Row(
        "aliquot_container_memory_used_bytes",
        "Memory that the container's processes account for.",
        SLICE,
        _of_containers(lambda each: each.memory_used_bytes),
    ),
    Row(
        "aliquot_container_memory_peak_bytes",
        "Most memory that the container has held at once.",
        SLICE,
        _of_containers(lambda each: each.memory_peak_bytes),
    ),
    Row(
        "aliquot_container_memory_refusals_total",
        "Allocations that were refused because of the container's cap.",
        SLICE,
        _of_containers(lambda each: each.memory_refusals),
    ),
    Row(
        "aliquot_container_compute_share_ratio",
        "Guaranteed part of the GPU's time.",
        SLICE,
        _of_containers(lambda each: each.compute_share),
    ),
    Row(
        "aliquot_container_compute_busy_seconds_total",
        "Time for which the GPU has worked for the container.",
        SLICE,
        _of_containers(lambda each: each.busy_s),
    ),
    Row(
        "aliquot_container_compute_throttled_seconds_total",
        "Time for which launches of the container were held back.",
        SLICE,
        _of_containers(lambda each: each.throttled_s),
    ),
    Row(
        "aliquot_container_launches_total",
        "Kernels and graphs that the container has launched.",
        SLICE,
        _of_containers(lambda each: each.launches),
    ),
    Row(
        "aliquot_container_plan_differs",
        "1 if the container has other GPUs or amounts than the scheduler planned, 0 if the same.",
        CONTAINER,
        lambda node: ((_names(key), float(not same)) for key, same in node.plans.items()),
    ),
    Row(
        "aliquot_container_shim_missing_processes",
        "Processes of the container that use a GPU without the shim, so that nothing limits them.",
        CONTAINER,
        lambda node: ((_names(key), count) for key, count in node.shims_missing.items()),
    ),
    Row(
        "aliquot_breaches_total",
        "Breaches of limits that were found, by kind; see docs/security.md.",
        ("kind", *CONTAINER),
        lambda node: node.breaches.items(),
    ),
    Row(
        "aliquot_ids_advertised",
        "Ids that the kubelet can hand out or has handed out, by resource.",
        ("resource",),
        _ids(
            lambda gpu: 0 if gpu.unusable else gpu.memory_advertised_bytes,
            lambda gpu: 0 if gpu.unusable else gpu.compute_advertised,
        ),
    ),
    Row(
        "aliquot_ids_held",
        "Ids that containers hold, by resource; a whole GPU counts with all its memory.",
        ("resource",),
        _ids(lambda gpu: gpu.memory_held_bytes, lambda gpu: gpu.compute_held),
    ),
    Row(
        "aliquot_allocations_total",
        "Allocations that the kubelet asked for, by result: granted, refused, failed.",
        ("resource", "result"),
        lambda node: {**_NO_ALLOCATIONS, **node.allocations}.items(),
    ),
    Row(
        "aliquot_ledger_conflicts_total",
        "Ids that the kubelet gave although a living container holds them; all were refused.",
        (),
        lambda node: [((), node.conflicts)],
    ),
    Row(
        "aliquot_arbiter_cpu_seconds_total",
        "CPU time that dividing compute between containers has taken.",
        (),
        lambda node: [((), node.arbiter_cpu_s)],
    ),
)


class _Table(Collector):
    def __init__(self, sample: Callable[[], NodeSample]) -> None:
        self._sample = sample

    def collect(self) -> Iterator[Metric]:
        node = self._sample()
        for row in ROWS:
            make = CounterMetricFamily if row.kind == "counter" else GaugeMetricFamily
            family = make(row.name, row.help, labels=row.labels)
            # A pod that replaces one of the same name may be there before the old one is forgotten,
            # and Prometheus refuses a page that has a series twice.
            for labels, value in dict(row.read(node)).items():
                if value is not None:
                    family.add_metric(labels, value)
            yield family


class Metrics:
    """Renders the table, and what Prometheus' own collector says of this process."""

    def __init__(self, sample: Callable[[], NodeSample]) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Table(sample))
        ProcessCollector(registry=self._registry)

    def render(self) -> bytes:
        return generate_latest(self._registry)
