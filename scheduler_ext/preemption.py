"""Which pods would have to go so that a more important one fits on a node's GPUs; pure."""

from collections.abc import Iterable, Sequence

import numpy as np

from scheduler_ext.footprint import Amount
from scheduler_ext.placement.several import search_devices
from scheduler_ext.records import PodRecord
from scheduler_ext.state import ClusterState

__all__ = ["victims_needed"]


def victims_needed(
    state: ClusterState, pod: PodRecord, node: str, victims: Sequence[str]
) -> list[str] | None:
    """`victims`, which kube-scheduler chose by the node's sums, and whom else it takes on the GPUs.

    None when the pod would not fit even then. The least important go first, and whoever turns out
    not to be in the way is spared, the most important first.
    """
    if state.cluster.row_of.get(node) is None:
        return None
    chosen = list(victims)
    if _fits_without(state, pod, node, chosen):
        return chosen
    others = sorted(
        (each for each in state.pods_on(node) if each.priority < pod.priority),
        key=lambda each: (each.priority, -each.created_s, each.uid),
    )
    extra = [each.uid for each in others if each.uid not in victims]
    if not _fits_without(state, pod, node, chosen + extra):
        return None
    for uid in reversed(extra.copy()):
        without = [each for each in extra if each != uid]
        if _fits_without(state, pod, node, chosen + without):
            extra = without
    return chosen + extra


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
