"""The few fields of Kubernetes objects that we read, decoded straight from JSON."""

from datetime import datetime

import msgspec

from aliquot.protocol.request import PodRequest, Role, read_request

__all__ = [
    "Container",
    "ContainerStatus",
    "Node",
    "ObjectMeta",
    "OwnerReference",
    "Pod",
    "created_s",
    "request_of",
]


class _Subset(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Unknown fields are skipped without being built; absent ones have Go's empty values."""


class OwnerReference(_Subset, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(_Subset, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: tuple[OwnerReference, ...] = ()


class Resources(_Subset, frozen=True):
    limits: dict[str, str] = {}
    requests: dict[str, str] = {}


class EnvName(_Subset, frozen=True):
    name: str = ""


class VolumeMount(_Subset, frozen=True):
    name: str = ""
    mount_path: str = ""


class Container(_Subset, frozen=True):
    name: str = ""
    resources: Resources = Resources()
    restart_policy: str = ""
    """`Always` on an init container makes it a sidecar."""
    env: tuple[EnvName, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()


class PodSpec(_Subset, frozen=True):
    node_name: str = ""
    scheduler_name: str = ""
    priority: int = 0
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()


class ContainerStatus(_Subset, frozen=True):
    name: str = ""
    container_id: str = msgspec.field(default="", name="containerID")
    restart_count: int = 0
    ready: bool = False


class PodStatus(_Subset, frozen=True):
    phase: str = ""
    reason: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(_Subset, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_finished(self) -> bool:
        """Its containers will never run again, so that it holds nothing."""
        return self.status.phase in ("Succeeded", "Failed")


class Taint(_Subset, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class Condition(_Subset, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""


class NodeSpec(_Subset, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(_Subset, frozen=True):
    allocatable: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()


class Node(_Subset, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def is_ready(self) -> bool:
        return any(
            each.type == "Ready" and each.status == "True" for each in self.status.conditions
        )


def request_of(pod: Pod) -> PodRequest:
    """What the pod asks of GPUs; raises aliquot.protocol.request.RequestError."""
    before = [
        (each, Role.SIDECAR if each.restart_policy == "Always" else Role.INIT)
        for each in pod.spec.init_containers
    ]
    beside = [(each, Role.APP) for each in pod.spec.containers]
    return read_request(
        pod.metadata.annotations,
        [(each.name, each.resources.limits, role) for each, role in before + beside],
    )


def created_s(metadata: ObjectMeta) -> float:
    """Seconds since 1970, or 0 when the server has not said."""
    if not metadata.creation_timestamp:
        return 0.0
    return datetime.fromisoformat(metadata.creation_timestamp).timestamp()
