"""Where a pod may run and what it costs there, by the policy that the pod or the cluster names."""

from scheduler_ext.placement import Cluster, Placer, PodPlacer, PodScores, policy_named
from scheduler_ext.placement.several import Devices
from scheduler_ext.requests import Demand

__all__ = ["Choices"]

# Over how many pods of a kind a lesson spreads.
_RENEWED_IN = 40


class Choices:
    def __init__(self, cluster: Cluster, default_policy: str) -> None:
        self.default_policy = default_policy
        self._cluster = cluster
        self._placers: dict[str, tuple[Placer, PodPlacer]] = {}
        self._of(default_policy)

    def observe(self, demand: Demand) -> None:
        """Tells the policies of a pod, once per pod however often it is decided about."""
        for request in demand.requests:
            for placer, _ in self._placers.values():
                placer.observe(request)

    def prepare(self) -> None:
        """Draws a lesson from what was observed, so that no pod has to wait for it."""
        for placer, _ in self._placers.values():
            placer.policy.epoch(self._cluster)

    def scores(self, demand: Demand) -> PodScores:
        return self._of(demand.policy or self.default_policy).scores(demand.requests)

    def devices(self, demand: Demand, row: int) -> Devices | None:
        return self._of(demand.policy or self.default_policy).devices(demand.requests, row)

    def _of(self, policy: str) -> PodPlacer:
        if policy not in self._placers:
            placer = Placer(self._cluster, policy_named(policy), host=False, renewed_in=_RENEWED_IN)
            self._placers[policy] = (placer, PodPlacer(placer))
        return self._placers[policy][1]
