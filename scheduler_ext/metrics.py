"""What /metrics tells: verbs, rejections, the ledger, and how fresh our picture is."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from scheduler_ext.ledger import Stage
from scheduler_ext.placement.devices import gpu_shares
from scheduler_ext.reasons import Reason
from scheduler_ext.state import ClusterState
from scheduler_ext.waiting import WaitingPods

__all__ = ["Metrics", "StateCollector"]

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.verb_seconds = Histogram(
            "aliquot_extender_verb_seconds",
            "Time to answer kube-scheduler, by verb; bind includes writing to the API server.",
            ["verb"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.verb_failures = Counter(
            "aliquot_extender_verb_failures",
            "Calls answered with an error, by verb.",
            ["verb"],
            registry=self.registry,
        )
        self.rejections = Counter(
            "aliquot_extender_node_rejections",
            "Nodes on which a pod did not fit, by cause.",
            ["cause"],
            registry=self.registry,
        )
        self.unschedulable = Counter(
            "aliquot_extender_unschedulable",
            "Times that a pod fitted on none of the nodes offered.",
            registry=self.registry,
        )
        self.woken = Counter(
            "aliquot_extender_pods_woken",
            "Waiting pods that were handed back to kube-scheduler because they would fit.",
            registry=self.registry,
        )

    @contextmanager
    def timed(self, verb: str) -> Iterator[None]:
        began_s = perf_counter()
        try:
            yield
        finally:
            self.verb_seconds.labels(verb).observe(perf_counter() - began_s)

    def rejected(self, reasons: Iterable[Reason]) -> None:
        counts: dict[str, int] = {}
        for reason in reasons:
            name = reason.cause.name.lower()
            counts[name] = counts.get(name, 0) + 1
        for name, count in counts.items():
            self.rejections.labels(name).inc(count)

    def text(self) -> bytes:
        return generate_latest(self.registry)


class StateCollector(Collector):
    """Read when somebody asks, so that nothing has to be counted along."""

    def __init__(
        self,
        state: ClusterState,
        waiting: WaitingPods,
        cache_ages_s: Callable[[], dict[str, float]],
        leads: Callable[[], bool],
    ) -> None:
        self._state = state
        self._waiting = waiting
        self._cache_ages_s = cache_ages_s
        self._leads = leads

    def collect(self) -> Iterable[Metric]:
        yield _gauge("leader", "Whether this replica serves kube-scheduler.", float(self._leads()))
        age = _family("cache_age_seconds", "Since the API server was last heard of.", "resource")
        for resource, age_s in self._cache_ages_s().items():
            age.add_metric([resource], age_s)
        yield age
        with self._state.lock:
            yield from self._ledger()
            yield from self._gpus()
            yield _gauge("waiting_pods", "Pods that fit nowhere.", float(len(self._waiting)))

    def _ledger(self) -> Iterable[Metric]:
        pods = _family("ledger_pods", "Pods that take GPUs, by stage.", "stage")
        memory = _family("ledger_memory_units", "GPU memory that they take.", "stage")
        compute = _family("ledger_compute_percent", "GPU compute that they take.", "stage")
        for stage in Stage:
            total = self._state.ledger.totals[stage]
            pods.add_metric([stage], total.pods)
            memory.add_metric([stage], total.memory_units)
            compute.add_metric([stage], total.compute_percent)
        return [pods, memory, compute]

    def _gpus(self) -> Iterable[Metric]:
        state, cluster = self._state, self._state.cluster
        rows = cluster.present.nonzero()[0]
        there = cluster.model[rows] >= 0
        share = gpu_shares(cluster, rows) * there / 1000
        whole = (share >= 1) & there
        free = float(share.sum())
        yield _gauge("nodes", "Nodes with GPUs that can be used.", float(len(rows)))
        left_out = sum(record.inventory is not None for record in state.nodes.values()) - len(rows)
        yield _gauge("nodes_left_out", "Nodes that report GPUs, but are not used.", float(left_out))
        yield _gauge("gpus", "GPUs of usable nodes.", float(there.sum()))
        yield _gauge("gpus_wholly_free", "GPUs of which nothing is taken.", float(whole.sum()))
        yield _gauge("gpus_free", "What is free of all GPUs, in GPUs.", free)
        scattered = (free - float(whole.sum())) / free if free else 0.0
        yield _gauge(
            "fragmentation_ratio", "The part of it that lies on GPUs in use.", max(0.0, scattered)
        )


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"aliquot_extender_{name}", text, value=value)


def _family(name: str, text: str, label: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"aliquot_extender_{name}", text, labels=[label])
