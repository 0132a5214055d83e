"""The default policy: a placement costs what it takes from the pods that are likely to come.

A node's worth, all in milli GPU, is the value of each GPU's hole (`holes`), higher on models that
pinned pods compete for; minus the free share that a typical pod cannot use as it lies there; minus
the share for which CPU or host memory will not suffice; plus the value of several free GPUs side by
side, as far as such blocks are scarce. A placement costs the worth it destroys.
"""

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from scheduler_ext.placement.cluster import Cluster
from scheduler_ext.placement.devices import choose_devices
from scheduler_ext.placement.policy import Scores
from scheduler_ext.placement.request import Request
from scheduler_ext.placement.workload import Lesson, Workload
from scheduler_ext.placement.worth import Worth

# Blocks count in full when what is free in them falls below this part of the demand for them.
_BLOCK_RESERVE = 0.1
_LEAST_BLOCK_WEIGHT = 1 / 64


class Fragmentation:
    """Until pods were seen it is best fit; from then on it knows what they ask for."""

    def __init__(self) -> None:
        self._workload = Workload()
        self._lesson: Lesson | None = None
        self._lessons = 0
        self._shape_version = -1
        self._kinds: Hashable = None
        self._capacity = 0.0
        self._weighed: Hashable = None
        self._block_weights: dict[int, float] = {}
        self._worth = Worth(None)

    def observe(self, request: Request) -> None:
        self._workload.observe(request)

    def epoch(self, cluster: Cluster) -> Hashable:
        new_kinds = self._has_new_kinds(cluster)
        if new_kinds or self._workload.lesson_is_due:
            if self._workload.can_teach:
                self._take_in(self._workload.learn(cluster))
            elif new_kinds:
                # The old lesson does not know the new GPUs, and there is nothing to draw one from.
                self._take_in(None)
        if self._lesson:
            self._weigh_blocks(cluster, self._lesson)
        return (self._lessons, tuple(sorted(self._block_weights.items())))

    def score(
        self,
        cluster: Cluster,
        rows: NDArray[np.int64],
        request: Request,
        eligible: NDArray[np.bool_],
    ) -> Scores:
        device_cost = self._worth.lost_by_each(cluster, rows, request, eligible)
        chosen, weakest = choose_devices(cluster, rows, request, eligible, device_cost)
        cost = np.where(chosen, device_cost, 0.0).sum(axis=1)
        if request.gpus != 1:
            cost += self._worth.lost_by_all(cluster, rows, request, chosen)
        return Scores(cost, chosen, weakest)

    def _take_in(self, lesson: Lesson | None) -> None:
        self._lesson = lesson
        self._worth = Worth(lesson)
        self._lessons += 1

    def _has_new_kinds(self, cluster: Cluster) -> bool:
        """A lesson covers the GPU kinds it was drawn for; nodes that come and go are no reason."""
        if cluster.shape_version == self._shape_version:
            return False
        self._shape_version = cluster.shape_version
        self._capacity = float((cluster.model >= 0).sum())
        kinds = (len(cluster.model_names), tuple(np.unique(cluster.gpu_memory).tolist()))
        new, self._kinds = kinds != self._kinds, kinds
        return new and self._lesson is not None

    def _weigh_blocks(self, cluster: Cluster, lesson: Lesson) -> None:
        """In halvings, with slack between them: each change makes every cached score stale."""
        now = (self._lessons, self._capacity, cluster.nodes_with_free.tobytes())
        if now == self._weighed:
            return
        self._weighed = now
        counts = np.arange(len(cluster.nodes_with_free))
        for gpus, demand in lesson.block_demand.items():
            free = float((cluster.nodes_with_free * (counts // gpus)).sum()) * gpus
            ratio = _BLOCK_RESERVE * demand * self._capacity / max(free, 1e-3)
            ratio = min(max(ratio, _LEAST_BLOCK_WEIGHT), 1.0)
            old = self._block_weights.get(gpus, 1.0)
            if not 0.75 * old <= ratio < 2.5 * old:
                self._block_weights[gpus] = float(2.0 ** np.floor(np.log2(ratio)))
        self._worth.weigh_blocks(self._block_weights)
