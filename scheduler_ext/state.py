"""The cluster in memory: nodes and pods as watched, the ledger, and the arrays placement reads."""

import math
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from itertools import islice
from typing import TypeVar

from aliquot.kubernetes.watch import Change, ChangeKind
from aliquot.protocol.inventory import GpuRecord
from scheduler_ext.ledger import Ledger
from scheduler_ext.objects import Node, Pod
from scheduler_ext.placement import Cluster, Gpu
from scheduler_ext.placement import Node as PlacedNode
from scheduler_ext.records import NodeRecord, PodRecord, entry_of, node_record, pod_record

__all__ = ["ClusterState"]

Key = TypeVar("Key", bound=Hashable)

_PORTION = 500


class ClusterState:
    """Every public method is to be called with `lock` held, except the four that are told of
    changes: those take it themselves.

    All of it is derived from the API server's objects, and can be again at any time.
    """

    def __init__(
        self,
        *,
        unit_mib: int = 256,
        leftover_s: float = 60.0,
        release_s: float = 3.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`leftover_s`: how long a plan without a node, from before us, is respected.
        `release_s`: how long a node may take to offer a GPU again that a pod had as a whole."""
        self.lock = threading.RLock()
        self.unit_mib = unit_mib
        self.cluster = Cluster()
        self.ledger = Ledger()
        self.nodes: dict[str, NodeRecord] = {}
        self.pods: dict[str, PodRecord] = {}
        """Those that ask for GPUs, by uid."""
        self.on_new_pod: Callable[[PodRecord], None] = lambda _: None
        """Told once of each such pod."""
        self.on_gone_pod: Callable[[PodRecord], None] = lambda _: None
        self.additions = 0
        """Grows when a node brings GPUs that were not there."""
        self._clock = clock
        self._leftover_s = leftover_s
        self._release_s = release_s
        self._uid_of: dict[tuple[str, str], str] = {}
        self._by_node: dict[str, set[str]] = {}
        self._by_group: dict[tuple[str, str], set[str]] = {}
        self._plans: dict[str, str] = {}

    def replace_nodes(self, nodes: Iterable[Node]) -> None:
        with self.lock:
            records = [node_record(node, self.unit_mib) for node in nodes]
            for name in self.nodes.keys() - {record.name for record in records}:
                self._drop_node(name)
            for record in records:
                self._take_node(record)
            self.refresh()

    def change_node(self, change: Change[Node]) -> None:
        with self.lock:
            if change.kind is ChangeKind.DELETED:
                self._drop_node(change.object.metadata.name)
            else:
                self._take_node(node_record(change.object, self.unit_mib))
            self.refresh()

    def replace_pods(self, pods: Iterable[Pod]) -> None:
        present: set[str] = set()
        remaining = iter(pods)
        # In portions: a long list must not keep kube-scheduler waiting until its end.
        while portion := list(islice(remaining, _PORTION)):
            with self.lock:
                for pod in portion:
                    present.add(pod.metadata.uid)
                    self._take_pod(pod)
                self.refresh()
        with self.lock:
            # What we hold for a pod of which the list knows nothing stays until it is settled: the
            # list may be older than our decision.
            for uid in (self.ledger.seen() | self.pods.keys()) - present:
                self._drop_pod(uid)
            self.refresh()

    def change_pod(self, change: Change[Pod]) -> None:
        with self.lock:
            if change.kind is ChangeKind.DELETED:
                self._drop_pod(change.object.metadata.uid)
            else:
                self._take_pod(change.object)
            self.refresh()

    def pod_named(self, namespace: str, name: str) -> PodRecord | None:
        return self.pods.get(self._uid_of.get((namespace, name), ""))

    def pods_on(self, node: str) -> list[PodRecord]:
        """Those that ask for GPUs, as far as the API server has told us of their binding; with an
        empty name those that have no node yet."""
        return [self.pods[uid] for uid in self._by_node.get(node, ())]

    def group(self, namespace: str, name: str) -> set[str]:
        """The pods that name this group, by uid."""
        return self._by_group.get((namespace, name), set())

    def is_bound(self, uid: str) -> bool:
        entry = self.ledger.entry(uid)
        return entry is not None and entry.bound

    def refusal(self, node: str) -> str:
        """Why nothing can be placed on that node at all; empty when something can."""
        record = self.nodes.get(node)
        if record is None:
            return "the node is not known here (yet)"
        if record.refusal:
            return record.refusal
        if node not in self.cluster.row_of:
            return "its GPUs cannot be used: one of them is also reported by another node"
        return ""

    def gpus_of(self, node: str) -> tuple[GpuRecord, ...]:
        record = self.nodes.get(node)
        return record.inventory.gpus if record and record.inventory else ()

    def refresh(self) -> None:
        """Brings the arrays up to date with the ledger; needed after each change of it."""
        ledger, cluster = self.ledger, self.cluster
        for uuid in ledger.touched_gpus:
            place = cluster.uuid_at.get(uuid)
            if place is not None:
                self._refresh_gpu(*place)
        for node in ledger.touched_hosts | ledger.touched_nodes:
            row = cluster.row_of.get(node)
            if row is None:
                continue
            self._refresh_host(node, row)
            if node in ledger.touched_nodes:
                for device in range(len(cluster.uuids[row])):
                    self._refresh_gpu(row, device)
        ledger.touched_gpus.clear()
        ledger.touched_hosts.clear()
        ledger.touched_nodes.clear()

    def _take_node(self, record: NodeRecord) -> None:
        before = self.nodes.get(record.name)
        if before == record and (record.refusal or record.name in self.cluster.row_of):
            return
        self.nodes[record.name] = record
        known = before is not None and record.name in self.cluster.row_of
        if known and before is not None and _same_gpus(before, record):
            row = self.cluster.row_of[record.name]
            self.cluster.cpu_milli[row] = record.cpu_milli
            self.cluster.memory_mib[row] = record.memory_mib
        else:
            if record.name in self.cluster.row_of:
                self.cluster.remove(record.name)
            self._add_row(record)
        self.additions += 1
        self.ledger.touched_nodes.add(record.name)

    def _add_row(self, record: NodeRecord) -> None:
        if record.refusal or record.inventory is None:
            return
        found = record.inventory
        try:
            self.cluster.add(
                PlacedNode(
                    record.name,
                    record.cpu_milli,
                    record.memory_mib,
                    tuple(
                        Gpu(gpu.uuid, gpu.model, gpu.memory_units, gpu.index) for gpu in found.gpus
                    ),
                    found.links,
                )
            )
        except ValueError:
            # Two nodes report one GPU, most likely a node that came back under another name. Which
            # of them is right shows when the other goes; until then the first one has it.
            return

    def _drop_node(self, name: str) -> None:
        self.nodes.pop(name, None)
        if name in self.cluster.row_of:
            self.cluster.remove(name)
            for record in self.nodes.values():
                if not record.refusal and record.name not in self.cluster.row_of:
                    self._add_row(record)
                    self.ledger.touched_nodes.add(record.name)

    def _take_pod(self, pod: Pod) -> None:
        metadata = pod.metadata
        uid = metadata.uid
        record = None if pod.is_finished else pod_record(pod)
        before = self.pods.get(uid)
        if record is None:
            self._drop_record(uid)
        elif record != before:
            self._unlink(uid)
            self._link(record)
            if before is None:
                self.on_new_pod(record)
        if pod.is_finished:
            self._plans.pop(uid, None)
            self._end(uid)
            return
        if not pod.spec.node_name:
            # A leftover plan runs out by itself: only a new one may set the time anew.
            plan = metadata.ours.plan or ""
            if self._plans.get(uid, "") == plan:
                return
            self._plans[uid] = plan
        else:
            self._plans.pop(uid, None)
        expires_s = self._clock() + self._leftover_s
        self.ledger.see(uid, entry_of(pod, record, self.nodes, expires_s))

    def _drop_pod(self, uid: str) -> None:
        self._drop_record(uid)
        self._plans.pop(uid, None)
        self._end(uid)

    def _end(self, uid: str) -> None:
        self.ledger.end(uid, self._clock() + self._release_s)

    def _drop_record(self, uid: str) -> None:
        record = self._unlink(uid)
        if record is not None:
            self.on_gone_pod(record)

    def _link(self, record: PodRecord) -> None:
        self.pods[record.uid] = record
        self._uid_of[record.namespace, record.name] = record.uid
        self._by_node.setdefault(record.node, set()).add(record.uid)
        if record.request and record.request.group:
            key = (record.namespace, record.request.group)
            self._by_group.setdefault(key, set()).add(record.uid)

    def _unlink(self, uid: str) -> PodRecord | None:
        record = self.pods.pop(uid, None)
        if record is None:
            return None
        name = (record.namespace, record.name)
        if self._uid_of.get(name) == uid:
            del self._uid_of[name]
        _discard(self._by_node, record.node, uid)
        if record.request and record.request.group:
            _discard(self._by_group, (record.namespace, record.request.group), uid)
        return record

    def _refresh_gpu(self, row: int, device: int) -> None:
        cluster = self.cluster
        node = cluster.names[row]
        assert node is not None
        gpu = self.gpus_of(node)[device]
        taken = self.ledger.taken_of(gpu.uuid).plus(self.ledger.unlocated_on(node))
        closed = bool(gpu.unusable or taken.wholes)
        cluster.set_gpu_free(
            row,
            device,
            0 if closed else 10 * (gpu.compute_percent - taken.compute_percent),
            0 if closed else gpu.memory_units - taken.memory_units,
        )

    def _refresh_host(self, node: str, row: int) -> None:
        use = self.ledger.host_use(node)
        record = self.nodes[node]
        self.cluster.set_host_free(
            row,
            max(record.cpu_milli - use.cpu_milli, 0),
            max(record.memory_mib - use.memory_mib, 0),
        )


def _discard(index: dict[Key, set[str]], key: Key, uid: str) -> None:
    others = index.get(key)
    if others is not None:
        others.discard(uid)
        if not others:
            del index[key]


def _same_gpus(one: NodeRecord, other: NodeRecord) -> bool:
    """Whether the row may stay: a GPU that only turned unusable is the same GPU."""

    def shape(record: NodeRecord) -> object:
        if record.refusal or record.inventory is None:
            return math.nan
        gpus = record.inventory.gpus
        kinds = tuple((gpu.uuid, gpu.model, gpu.memory_units) for gpu in gpus)
        return (kinds, record.inventory.links)

    return shape(one) == shape(other)
