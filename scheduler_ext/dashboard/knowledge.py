"""What the extender itself knows of nodes and pods at one moment, copied out of its state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from scheduler_ext.ledger import Entry
from scheduler_ext.records import NodeRecord, PodRecord
from scheduler_ext.state import ClusterState

__all__ = ["Holder", "Knowledge", "NodeFacts", "gather"]


class Holder(NamedTuple):
    """A pod that has, or shall have, parts of a node's GPUs."""

    pod: PodRecord
    entry: Entry


class NodeFacts(NamedTuple):
    """Compared by who is in it: equal facts are shown equally."""

    record: NodeRecord
    holders: tuple[Holder, ...]


@dataclass(frozen=True, slots=True)
class Knowledge:
    unit_mib: int
    nodes: Mapping[str, NodeFacts]
    """Nodes that have or had GPUs, by name, in order of their names."""
    waiting: Sequence[PodRecord]
    """Pods for which nothing is held, the important and then the oldest first."""


def gather(state: ClusterState) -> Knowledge:
    """Keeps the state's lock only for shallow copies: kube-scheduler waits meanwhile."""
    with state.lock:
        records = dict(state.nodes)
        pods = list(state.pods.values())
        entries = state.ledger.entries()
    holders: dict[str, list[Holder]] = {}
    waiting: list[PodRecord] = []
    for pod in pods:
        entry = entries.get(pod.uid)
        node = entry.node if entry is not None else pod.node
        if entry is not None and node:
            holders.setdefault(node, []).append(Holder(pod, entry))
        elif not node:
            waiting.append(pod)
    waiting.sort(key=lambda pod: (-pod.priority, pod.created_s, pod.uid))
    nodes = {
        name: NodeFacts(record, tuple(holders.get(name, ())))
        for name, record in sorted(records.items())
        if record.uuids or name in holders
    }
    return Knowledge(state.unit_mib, nodes, waiting)
