"""Pods and nodes as the extender remembers them, made from what the API server sends."""

import functools
import sys
from collections.abc import Mapping
from datetime import datetime

import msgspec

from aliquot.protocol import assignment, inventory
from aliquot.protocol.assignment import Assignment, MalformedError
from aliquot.protocol.inventory import NodeInventory
from aliquot.protocol.request import PodRequest, RequestError, Role, read_request
from scheduler_ext.footprint import footprint_of, larger, unlocated_shares
from scheduler_ext.ledger import NOTHING, Entry, Stage
from scheduler_ext.objects import Node, Pod, count_of, host_demand, mib_of, milli_of
from scheduler_ext.requests import Demand, demand_of

__all__ = ["NodeRecord", "PodRecord", "entry_of", "node_record", "pod_record"]


class PodRecord(msgspec.Struct, frozen=True, gc=False):
    """A pod that asks for GPUs, bound or waiting."""

    uid: str
    namespace: str
    name: str
    node: str
    priority: int
    created_s: float
    request: PodRequest | None
    demand: Demand | None
    refusal: str = ""
    """Why its request cannot be read or placed; empty when it can."""
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"


class NodeRecord(msgspec.Struct, frozen=True, gc=False):
    name: str
    cpu_milli: int
    memory_mib: int
    inventory: NodeInventory | None
    refusal: str = ""
    """Why nothing is placed here; empty when something may be."""
    uuids: frozenset[str] = frozenset()

    def has(self, uuid: str) -> bool:
        return self.inventory is None or uuid in self.uuids


def node_record(node: Node, unit_mib: int) -> NodeRecord:
    ours = node.status.allocatable
    name = sys.intern(node.metadata.name)
    found, refusal = _inventory(node.metadata.ours.inventory, unit_mib)
    has_none = found is not None and not found.gpus
    if has_none:
        refusal = "the node has no GPU that its agent could hand out"
    elif ours is None or not (count_of(ours.gpu_memory) or count_of(ours.gpu_compute)):
        refusal = "the node agent is not running: the kubelet offers nothing of its GPUs"
    cpu = milli_of(ours.cpu) if ours else 0
    memory = mib_of(ours.memory) if ours else 0
    uuids = frozenset(gpu.uuid for gpu in found.gpus) if found else frozenset()
    return NodeRecord(name, cpu, memory, found, refusal, uuids)


def pod_record(pod: Pod) -> PodRecord | None:
    """None for a pod that asks for no GPU."""
    if not pod.names_gpus:
        return None
    metadata = pod.metadata
    request: PodRequest | None = None
    demand: Demand | None = None
    refusal = ""
    try:
        request = _request(
            tuple(metadata.ours.asked().items()),
            tuple(
                (each.name, tuple(each.asks_for_gpus().items()), _role(each.is_sidecar))
                for each in pod.spec.init_containers or ()
            )
            + tuple(
                (each.name, tuple(each.asks_for_gpus().items()), Role.APP)
                for each in pod.spec.containers or ()
            ),
        )
        if not request.containers:
            # It asks for zero.
            return None
        cpu_milli, memory_mib = host_demand(pod)
        demand = _demand(request, cpu_milli, memory_mib)
    except RequestError as error:
        refusal = str(error)
    return PodRecord(
        uid=metadata.uid,
        namespace=sys.intern(metadata.namespace),
        name=metadata.name,
        node=sys.intern(pod.spec.node_name),
        priority=pod.spec.priority or 0,
        created_s=_seconds(metadata.creation_timestamp),
        request=request,
        demand=demand,
        refusal=refusal,
        labels=_labels(tuple((metadata.labels or {}).items())),
    )


def entry_of(
    pod: Pod, record: PodRecord | None, nodes: Mapping[str, NodeRecord], expires_s: float
) -> Entry | None:
    """What the pod takes by its own object alone; None when that is nothing.

    A plan without a node is what a bind left that did not come to its end: it may still do so, and
    is kept until `expires_s`.
    """
    if pod.is_finished:
        return None
    plan = _assignment(pod.metadata.ours.plan)
    node_name = sys.intern(pod.spec.node_name)
    request = record.request if record else None
    if not node_name:
        if plan is None:
            return None
        footprint = footprint_of(plan, request)
        return Entry("", footprint, stage=Stage.ASSUMED, expires_s=expires_s)
    stage = Stage.TERMINATING if pod.metadata.deletion_timestamp else Stage.PLANNED
    if record is not None and record.demand is not None:
        first = record.demand.parts[0].request
        cpu_milli, memory_mib = first.cpu_milli, first.memory_mib
    else:
        cpu_milli, memory_mib = host_demand(pod)
    if record is None:
        return Entry(node_name, cpu_milli=cpu_milli, memory_mib=memory_mib, stage=stage, bound=True)
    node = nodes.get(node_name)
    ours = pod.metadata.ours
    planned = _located(plan, node)
    if ours.actual == ours.plan:
        actual = merged = planned
    else:
        actual = _located(_assignment(ours.actual), node)
        merged = Assignment({**planned.containers, **actual.containers})
    footprint = footprint_of(merged, request)
    if planned != actual and pod.status.phase != "Running":
        # Until all containers have started, either may turn out to be true.
        footprint = larger(footprint, footprint_of(planned, request))
    asking = request.containers if request else ()
    lost = tuple(each for each in asking if each.name not in merged.containers)
    if stage is Stage.PLANNED and all(each.name in actual.containers for each in asking):
        stage = Stage.ACTUAL
    return Entry(
        node_name,
        footprint,
        unlocated_shares(request, lost) if request and lost else NOTHING,
        cpu_milli,
        memory_mib,
        stage,
        bound=True,
    )


def _located(found: Assignment | None, node: NodeRecord | None) -> Assignment:
    """Without containers on GPUs that the node does not have: those are somewhere else on it."""
    if found is None:
        return Assignment({})
    uuids = {each.uuid for slices in found.containers.values() for each in slices}
    if node is None or all(node.has(uuid) for uuid in uuids):
        return found
    return Assignment(
        {
            name: slices
            for name, slices in found.containers.items()
            if all(node.has(each.uuid) for each in slices)
        }
    )


def _assignment(text: str | None) -> Assignment | None:
    if not text:
        return None
    try:
        return assignment.decode(text)
    except MalformedError:
        # Not written by us. The pod counts as one without: on every GPU of its node.
        return None


def _inventory(text: str | None, unit_mib: int) -> tuple[NodeInventory | None, str]:
    if not text:
        return None, "the node agent has not reported the node's GPUs yet"
    try:
        found = inventory.decode(text)
    except MalformedError as error:
        return None, f"the node agent's report cannot be read: {error}"
    if found.unit_mib != unit_mib:
        return found, f"its memory units are {found.unit_mib} MiB, the cluster's {unit_mib} MiB"
    return found, ""


def _role(is_sidecar: bool) -> Role:
    return Role.SIDECAR if is_sidecar else Role.INIT


@functools.lru_cache(maxsize=16384)
def _request(
    asked: tuple[tuple[str, str], ...],
    containers: tuple[tuple[str, tuple[tuple[str, str], ...], Role], ...],
) -> PodRequest:
    """Pods of one kind share one request."""
    return read_request(dict(asked), [(name, dict(gpus), role) for name, gpus, role in containers])


@functools.lru_cache(maxsize=16384)
def _demand(request: PodRequest, cpu_milli: int, memory_mib: int) -> Demand | None:
    return demand_of(request, cpu_milli=cpu_milli, memory_mib=memory_mib)


@functools.lru_cache(maxsize=16384)
def _labels(labels: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Pods of one kind share them."""
    return labels


def _seconds(timestamp: str | None) -> float:
    if not timestamp:
        return 0.0
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except ValueError:
        return 0.0
