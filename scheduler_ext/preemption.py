"""Which pods would have to go so that a more important one fits on a node's GPUs; pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from scheduler_ext.disruption import Budgets
from scheduler_ext.footprint import Amount
from scheduler_ext.ledger import Stage
from scheduler_ext.placement.several import search_devices
from scheduler_ext.records import PodRecord
from scheduler_ext.state import ClusterState

__all__ = ["Patience", "Victims", "victims_needed"]


@dataclass(frozen=True, slots=True)
class Victims:
    uids: list[str]
    violations: int = 0
    """How many of those that we added are protected by a disruption budget."""


class Patience:
    """How long a pod waits for what somebody has left for it already, instead of taking another.

    kube-scheduler tries it again at the moment in which its victim is deleted, and may have heard
    of that before us, or before the node offers again what a pod had as a whole; it would take the
    next victim. But it keeps the nominated node whatever we answer, and that node may be one that
    the pod can never use: cordoned since, or dead, with pods that never end. So this runs out.

    Used with the state's lock held.
    """

    def __init__(
        self, state: ClusterState, clock: Callable[[], float], wait_s: float = 10.0
    ) -> None:
        """`wait_s`: longer than a node takes to offer a whole GPU again."""
        self._state = state
        self._clock = clock
        self._wait_s = wait_s
        self._until_s: dict[str, float] = {}
        self._over: set[str] = set()

    def lasts(self, pod: PodRecord, nominated: str, nodes: Iterable[str]) -> bool:
        """Whether nobody has to go for this pod now."""
        if not _has_room_soon(self._state, pod, nominated, nodes):
            self.end(pod.uid)
            return False
        if self._clock() < self._until_s.setdefault(pod.uid, self._clock() + self._wait_s):
            return True
        # The next victim is a new reason to wait.
        self.end(pod.uid)
        return False

    def end(self, uid: str) -> None:
        self._until_s.pop(uid, None)
        self._over.discard(uid)

    def over(self) -> list[str]:
        """Pods that have waited in vain since the last call, and should be tried again."""
        for uid in [*self._until_s]:
            if uid not in self._state.pods or self._state.is_bound(uid):
                self.end(uid)
        now_s = self._clock()
        over = {uid for uid, until_s in self._until_s.items() if until_s <= now_s} - self._over
        self._over |= over
        return sorted(over)


def _has_room_soon(
    state: ClusterState, pod: PodRecord, nominated: str, nodes: Iterable[str]
) -> bool:
    """Whether the pod fits on what pods leave, or have left, for it on the nominated node; or on
    what is about to be offered again on one of the others."""
    resting: dict[str, list[str]] = {}
    for uid, node in state.ledger.resting().items():
        resting.setdefault(node, []).append(uid)
    for node in resting.keys() & nodes & state.cluster.row_of.keys():
        if _fits_without(state, pod, node, resting[node]):
            return True
    if nominated not in state.cluster.row_of:
        return False
    entries = {each.uid: state.ledger.entry(each.uid) for each in state.pods_on(nominated)}
    leaving = [uid for uid, one in entries.items() if one and one.stage is Stage.TERMINATING]
    return _fits_without(state, pod, nominated, leaving + resting.get(nominated, []))


def victims_needed(
    state: ClusterState, budgets: Budgets, pod: PodRecord, node: str, victims: Sequence[str]
) -> Victims | None:
    """`victims`, which kube-scheduler chose by the node's sums, and whom else it takes on the GPUs.

    None when the pod would not fit even then. Whoever turns out not to be in the way is spared:
    those that a disruption budget protects first, then the most important.
    """
    if state.cluster.row_of.get(node) is None:
        return None
    chosen = list(victims)
    if _fits_without(state, pod, node, chosen):
        return Victims(chosen)
    extra = sorted(
        (
            each
            for each in state.pods_on(node)
            if each.priority < pod.priority and each.uid not in victims
        ),
        key=lambda each: (each.priority, -each.created_s, each.uid),
    )
    if not _fits_without(state, pod, node, chosen + _uids(extra)):
        return None
    first = [state.pods[uid] for uid in chosen if uid in state.pods]
    protected = _violating(budgets, first, extra)
    to_spare = extra[::-1]
    to_spare.sort(key=lambda each: each.uid not in protected)
    for each in to_spare:
        without = [other for other in extra if other is not each]
        if _fits_without(state, pod, node, chosen + _uids(without)):
            extra = without
    return Victims(chosen + _uids(extra), len(_violating(budgets, first, extra)))


def _violating(budgets: Budgets, first: list[PodRecord], then: list[PodRecord]) -> set[str]:
    """Of the second, by uid; what the first take of the budgets is gone by then."""
    allowances = budgets.allowances()
    allowances.violated_by(first)
    return allowances.violated_by(then)


def _uids(pods: Iterable[PodRecord]) -> list[str]:
    return [each.uid for each in pods]


def _fits_without(state: ClusterState, pod: PodRecord, node: str, victims: Iterable[str]) -> bool:
    assert pod.demand is not None
    row = state.cluster.row_of[node]
    trial = state.cluster.scratch(np.array([row]))
    freed: dict[str, Amount] = {}
    unlocated = Amount()
    for uid in set(victims):
        entry = state.ledger.entry(uid)
        if entry is None or entry.node != node:
            continue
        unlocated = unlocated.plus(entry.unlocated)
        for share in entry.footprint:
            freed[share.uuid] = freed.get(share.uuid, Amount()).plus(share.amount)
    for device, gpu in enumerate(state.gpus_of(node)):
        taken = state.ledger.taken_of(gpu.uuid).plus(state.ledger.unlocated_on(node))
        taken = taken.plus(freed.get(gpu.uuid, Amount()), -1).plus(unlocated, -1)
        if not (gpu.unusable or taken.wholes):
            compute = 10 * (gpu.compute_percent - taken.compute_percent)
            trial.set_gpu_free(0, device, compute, gpu.memory_units - taken.memory_units)
    return search_devices(trial, 0, pod.demand.requests) is not None
