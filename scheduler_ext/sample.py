"""The cluster at the moment somebody asks for metrics, read under the state's lock."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from aliquot import __version__
from scheduler_ext.metrics import ClusterSample, StageSample
from scheduler_ext.placement.devices import gpu_shares
from scheduler_ext.state import ClusterState
from scheduler_ext.waiting import WaitingPods

__all__ = ["Sampler"]

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Sampler:
    state: ClusterState
    waiting: WaitingPods
    cache_ages_s: Callable[[], dict[str, float]]
    not_ready: Callable[[], str]
    leads: Callable[[], bool]
    certificate_ends_s: Callable[[], float | None]
    clock: Callable[[], float] = time.time

    def sample(self) -> ClusterSample:
        is_ready, leads, ages_s = not self.not_ready(), self.leads(), self.cache_ages_s()
        state, cluster = self.state, self.state.cluster
        with state.lock:
            rows = cluster.present.nonzero()[0]
            there = cluster.model[rows] >= 0
            share = gpu_shares(cluster, rows) * there / 1000
            return ClusterSample(
                version=__version__,
                is_ready=is_ready,
                leads=leads,
                cache_ages_s=ages_s,
                stages={
                    stage: StageSample(
                        total.pods,
                        total.memory_units * state.unit_mib * _MIB,
                        total.compute_percent / 100,
                    )
                    for stage, total in state.ledger.totals.items()
                },
                nodes=len(rows),
                left_out=tuple(
                    name
                    for name, record in state.nodes.items()
                    if record.uuids and name not in cluster.row_of
                ),
                gpus=int(there.sum()),
                gpus_wholly_free=int(((share >= 1) & there).sum()),
                gpus_free=float(share.sum()),
                waiting=len(self.waiting),
                longest_wait_s=self._longest_wait_s(),
                certificate_ends_s=self.certificate_ends_s(),
            )

    def _longest_wait_s(self) -> float:
        # From its creation, so that another leader says the same.
        created_s = [each.pod.created_s for each in self.waiting.in_order() if each.pod.created_s]
        return max(0.0, self.clock() - min(created_s)) if created_s else 0.0
