"""What follows from a breach: it is counted, told on its pod and, if so set, ends the pod."""

from dataclasses import dataclass
from typing import Protocol

from deviceplugin.telemetry.counts import Counts
from deviceplugin.tenants.judgement import Breach, Kind

__all__ = ["BreachReports", "Cluster"]


class Cluster(Protocol):
    """The API server's side; pods are named by the uid that the kubelet knows."""

    def name_of(self, pod_uid: str) -> tuple[str, str] | None:
        """Its namespace and name; None of a pod that the API server has not shown."""

    def tell_pod(self, pod_uid: str, reason: str, message: str) -> None: ...

    def evict(self, pod_uid: str, why: str) -> None: ...


@dataclass(frozen=True, slots=True)
class BreachReports:
    counts: Counts
    cluster: Cluster | None
    evicts: bool
    """Whether a pod that passes its memory cap is evicted."""

    def report(self, breach: Breach) -> None:
        self.counts.breach(breach.kind.value, *self._names(breach))
        if self.cluster is not None and breach.pod_uid:
            self.cluster.tell_pod(breach.pod_uid, "GpuLimitBreached", breach.text)

    def end(self, breach: Breach) -> None:
        """Of a breach that is certain; only who was over its cap all the time has to go."""
        if self.evicts and breach.kind is Kind.OVER_CAP and self.cluster is not None:
            self.cluster.evict(breach.pod_uid, breach.text)

    def _names(self, breach: Breach) -> tuple[str, str, str]:
        """Namespace, pod and container. Whoever was given nothing is in none of our books: only
        the API server can tell its pod, and nobody here its container."""
        key = breach.tenant.key if breach.tenant is not None else None
        if key is not None:
            return key.namespace, key.pod, key.container
        pod = self.cluster.name_of(breach.pod_uid) if self.cluster is not None else None
        return (*pod, "") if pod is not None else ("", "", "")
