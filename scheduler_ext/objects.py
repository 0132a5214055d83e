"""Just the fields of pods and nodes that decide about GPUs, decoded straight from JSON.

A hundred thousand pods are held in memory: annotations and resources of others are never built.
"""

from decimal import Decimal
from functools import lru_cache

import msgspec

from aliquot.protocol import names
from aliquot.protocol.quantity import QuantityError, parse_quantity
from aliquot.protocol.request import PodRequest, Role, read_request

__all__ = [
    "Annotations",
    "Metadata",
    "Node",
    "Pod",
    "Resources",
    "count_of",
    "host_demand",
    "mib_of",
    "milli_of",
    "request_of",
]

_MIB = 1 << 20


class _Subset(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    pass


class Annotations(_Subset, frozen=True):
    """Ours alone; None for what is not there."""

    policy: str | None = msgspec.field(default=None, name=names.POLICY)
    weight: str | None = msgspec.field(default=None, name=names.WEIGHT)
    gpus: str | None = msgspec.field(default=None, name=names.GPUS)
    gpu_model: str | None = msgspec.field(default=None, name=names.GPU_MODEL)
    gpu_uuid: str | None = msgspec.field(default=None, name=names.GPU_UUID)
    placement: str | None = msgspec.field(default=None, name=names.PLACEMENT)
    group: str | None = msgspec.field(default=None, name=names.GROUP)
    group_size: str | None = msgspec.field(default=None, name=names.GROUP_SIZE)
    plan: str | None = msgspec.field(default=None, name=names.PLAN)
    actual: str | None = msgspec.field(default=None, name=names.ACTUAL)
    inventory: str | None = msgspec.field(default=None, name=names.INVENTORY)

    def asked(self) -> dict[str, str]:
        """Those that a request is read from."""
        given = {
            names.POLICY: self.policy,
            names.WEIGHT: self.weight,
            names.GPUS: self.gpus,
            names.GPU_MODEL: self.gpu_model,
            names.GPU_UUID: self.gpu_uuid,
            names.PLACEMENT: self.placement,
            names.GROUP: self.group,
            names.GROUP_SIZE: self.group_size,
        }
        return {name: text for name, text in given.items() if text is not None}


class Metadata(_Subset, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: Annotations | None = None
    labels: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None

    @property
    def ours(self) -> Annotations:
        return self.annotations or Annotations()


class Resources(_Subset, frozen=True):
    cpu: str | None = None
    memory: str | None = None
    gpu_memory: str | None = msgspec.field(default=None, name=names.MEMORY_RESOURCE)
    gpu_compute: str | None = msgspec.field(default=None, name=names.COMPUTE_RESOURCE)

    def of_gpus(self) -> dict[str, str]:
        given = {
            names.MEMORY_RESOURCE: self.gpu_memory,
            names.COMPUTE_RESOURCE: self.gpu_compute,
        }
        return {name: text for name, text in given.items() if text is not None}


class Requirements(_Subset, frozen=True):
    limits: Resources | None = None
    requests: Resources | None = None


class Container(_Subset, frozen=True):
    name: str = ""
    resources: Requirements | None = None
    restart_policy: str = ""

    @property
    def is_sidecar(self) -> bool:
        return self.restart_policy == "Always"

    def asks_for_gpus(self) -> dict[str, str]:
        limits = self.resources.limits if self.resources else None
        return limits.of_gpus() if limits else {}


class PodSpec(_Subset, frozen=True):
    node_name: str = ""
    priority: int | None = None
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    overhead: Resources | None = None


class PodStatus(_Subset, frozen=True):
    phase: str = ""
    nominated_node_name: str = ""
    """Where others had to go for it."""


class Pod(_Subset, frozen=True):
    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def names_gpus(self) -> bool:
        """Whether a limit of ours stands in it, be it zero: for kube-scheduler it is ours then."""
        each = (self.spec.containers or ()) + (self.spec.init_containers or ())
        return any(container.asks_for_gpus() for container in each)

    @property
    def is_finished(self) -> bool:
        """Its containers will never run again, so that it holds nothing."""
        return self.status.phase in ("Succeeded", "Failed")


class NodeStatus(_Subset, frozen=True):
    allocatable: Resources | None = None


class Node(_Subset, frozen=True):
    metadata: Metadata = Metadata()
    status: NodeStatus = NodeStatus()


def request_of(pod: Pod) -> PodRequest:
    """What the pod asks of GPUs; raises aliquot.protocol.request.RequestError."""
    containers = [
        (each.name, each.asks_for_gpus(), Role.SIDECAR if each.is_sidecar else Role.INIT)
        for each in pod.spec.init_containers or ()
    ]
    containers += [
        (each.name, each.asks_for_gpus(), Role.APP) for each in pod.spec.containers or ()
    ]
    return read_request(pod.metadata.ours.asked(), containers)


def host_demand(pod: Pod) -> tuple[int, int]:
    """CPU (milli) and host memory (MiB) as kube-scheduler counts them: the sum of what runs
    together, or what an init container needs if that is more."""
    running_cpu = running_memory = peak_cpu = peak_memory = 0
    for each in pod.spec.init_containers or ():
        cpu, memory = _of_container(each)
        if each.is_sidecar:
            running_cpu += cpu
            running_memory += memory
            cpu = memory = 0
        peak_cpu = max(peak_cpu, running_cpu + cpu)
        peak_memory = max(peak_memory, running_memory + memory)
    for each in pod.spec.containers or ():
        cpu, memory = _of_container(each)
        running_cpu += cpu
        running_memory += memory
    over_cpu, over_memory = _amounts(pod.spec.overhead)
    return max(running_cpu, peak_cpu) + over_cpu, max(running_memory, peak_memory) + over_memory


def _of_container(container: Container) -> tuple[int, int]:
    return _amounts(container.resources.requests if container.resources else None)


def _amounts(resources: Resources | None) -> tuple[int, int]:
    if resources is None:
        return 0, 0
    return milli_of(resources.cpu), mib_of(resources.memory)


@lru_cache(maxsize=4096)
def milli_of(text: str | None) -> int:
    return _whole(_number(text) * 1000)


@lru_cache(maxsize=4096)
def mib_of(text: str | None) -> int:
    return _whole(_number(text) / _MIB)


@lru_cache(maxsize=4096)
def count_of(text: str | None) -> int:
    return _whole(_number(text))


def _number(text: str | None) -> Decimal:
    try:
        return parse_quantity(text or "0")
    except QuantityError:
        # The API server has checked it; what we cannot read must not stop everything else.
        return Decimal(0)


def _whole(number: Decimal) -> int:
    return int(number.to_integral_value(rounding="ROUND_CEILING"))
