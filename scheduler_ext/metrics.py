"""`/metrics`: one table of what there is; events are counted along, all else is read when asked."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from scheduler_ext.ledger import Stage
from scheduler_ext.reasons import Cause

__all__ = ["ROWS", "ClusterSample", "Metrics", "Row", "StageSample"]

# When each series began: it doubles the page, and Prometheus sees counters restart without it.
disable_created_metrics()  # type: ignore[no-untyped-call]

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_VERBS = ("filter", "prioritize", "preempt", "bind")
BIND_DECISION = "bind decision"


@dataclass(frozen=True, slots=True)
class StageSample:
    """What pods of one stage take together."""

    pods: int = 0
    memory_bytes: int = 0
    compute_gpus: float = 0.0


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """The cluster as this replica sees it at the moment of asking."""

    version: str
    is_ready: bool
    leads: bool
    cache_ages_s: Mapping[str, float]
    """By resource; endless before the first word."""
    stages: Mapping[Stage, StageSample] = field(default_factory=dict)
    nodes: int = 0
    left_out: tuple[str, ...] = ()
    """Nodes that report GPUs, but are not used."""
    gpus: int = 0
    gpus_wholly_free: int = 0
    gpus_free: float = 0.0
    """What is free of all GPUs, in GPUs."""
    waiting: int = 0
    longest_wait_s: float = 0.0
    certificate_ends_s: float | None = None
    """Unix time; None without a webhook."""


Value = tuple[tuple[str, ...], float | None]
"""Label values in the order of the row, and the number; None leaves the series out."""


@dataclass(frozen=True, slots=True)
class Row:
    """One metric; whatever is not read from a sample is counted along."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    read: Callable[[ClusterSample], Iterable[Value]] | None = None

    @property
    def kind(self) -> str:
        if self.read is not None:
            return "gauge"
        return "counter" if self.name.endswith("_total") else "histogram"


def _one(value: Callable[[ClusterSample], float | None]) -> Callable[..., Iterable[Value]]:
    return lambda sample: [((), value(sample))]


def _by_stage(value: Callable[[StageSample], float]) -> Callable[..., Iterable[Value]]:
    return lambda sample: (((stage.value,), value(of)) for stage, of in sample.stages.items())


def _label(cause: Cause) -> str:
    return cause.name.lower()


def _scattered(sample: ClusterSample) -> float:
    if not sample.gpus_free:
        return 0.0
    return max(0.0, (sample.gpus_free - sample.gpus_wholly_free) / sample.gpus_free)


_VERB_SECONDS = Row(
    "aliquot_extender_verb_seconds",
    "Time to answer kube-scheduler, by verb; bind includes writing to the API server.",
    ("verb",),
)
_VERB_FAILURES = Row(
    "aliquot_extender_verb_failures_total", "Calls answered with an error, by verb.", ("verb",)
)
_REJECTIONS = Row(
    "aliquot_extender_node_rejections_total",
    f"Nodes on which a pod did not fit, by cause: {', '.join(map(_label, Cause))}.",
    ("cause",),
)
_UNSCHEDULABLE = Row(
    "aliquot_extender_unschedulable_total", "Times that a pod fitted on none of the nodes offered."
)
_WOKEN = Row(
    "aliquot_extender_pods_woken_total",
    "Waiting pods that were handed back to kube-scheduler because they would fit.",
)

ROWS = (
    Row(
        "aliquot_extender_build_info",
        "Always 1; the version of the extender.",
        ("version",),
        lambda sample: [((sample.version,), 1)],
    ),
    Row(
        "aliquot_extender_ready",
        "1 if this replica knows the cluster well enough to serve, 0 if not.",
        (),
        _one(lambda sample: float(sample.is_ready)),
    ),
    Row(
        "aliquot_extender_leader",
        "1 on the replica that serves kube-scheduler, 0 on the others.",
        (),
        _one(lambda sample: float(sample.leads)),
    ),
    Row(
        "aliquot_extender_cache_age_seconds",
        "Time since the API server was last heard of, by resource.",
        ("resource",),
        lambda sample: (((name,), age_s) for name, age_s in sample.cache_ages_s.items()),
    ),
    _VERB_SECONDS,
    _VERB_FAILURES,
    _REJECTIONS,
    _UNSCHEDULABLE,
    _WOKEN,
    Row(
        "aliquot_extender_waiting_pods",
        "Pods that fitted nowhere when they were last tried; only the leader is asked.",
        (),
        _one(lambda sample: sample.waiting),
    ),
    Row(
        "aliquot_extender_longest_wait_seconds",
        "Time since the oldest of the waiting pods was created.",
        (),
        _one(lambda sample: sample.longest_wait_s),
    ),
    Row(
        "aliquot_extender_ledger_pods",
        f"Pods that take GPUs, by stage: {', '.join(Stage)}.",
        ("stage",),
        _by_stage(lambda stage: stage.pods),
    ),
    Row(
        "aliquot_extender_ledger_memory_bytes",
        "GPU memory that pods take, by stage.",
        ("stage",),
        _by_stage(lambda stage: stage.memory_bytes),
    ),
    Row(
        "aliquot_extender_ledger_compute_gpus",
        "Compute that pods take, in GPUs, by stage.",
        ("stage",),
        _by_stage(lambda stage: stage.compute_gpus),
    ),
    Row(
        "aliquot_extender_nodes",
        "Nodes with GPUs that can be used.",
        (),
        _one(lambda sample: sample.nodes),
    ),
    Row(
        "aliquot_extender_node_left_out",
        "1 for each node that reports GPUs, but is not used: most often its agent is gone.",
        ("node",),
        lambda sample: (((node,), 1) for node in sample.left_out),
    ),
    Row(
        "aliquot_extender_gpus",
        "GPUs of nodes that can be used.",
        (),
        _one(lambda sample: sample.gpus),
    ),
    Row(
        "aliquot_extender_gpus_wholly_free",
        "GPUs of which nothing is taken.",
        (),
        _one(lambda sample: sample.gpus_wholly_free),
    ),
    Row(
        "aliquot_extender_gpus_free",
        "What is free of all GPUs, in GPUs.",
        (),
        _one(lambda sample: sample.gpus_free),
    ),
    Row(
        "aliquot_extender_fragmentation_ratio",
        "Part of what is free that lies on GPUs in use.",
        (),
        _one(_scattered),
    ),
    Row(
        "aliquot_extender_certificate_expiry_timestamp_seconds",
        "When the webhook's certificate ends, in Unix time; it is renewed 30 days before.",
        (),
        _one(lambda sample: sample.certificate_ends_s),
    ),
)


class Metrics:
    """Renders the table, and what Prometheus' own collector says of this process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._verb_seconds = Histogram(
            _VERB_SECONDS.name,
            _VERB_SECONDS.help,
            _VERB_SECONDS.labels,
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._verb_failures = self._counter(_VERB_FAILURES)
        self._rejections = self._counter(_REJECTIONS)
        self._unschedulable = self._counter(_UNSCHEDULABLE)
        self._woken = self._counter(_WOKEN)
        # There from the start, at zero: of a counter that begins with 1, nobody sees the increase.
        self._seconds_of = {
            verb: self._verb_seconds.labels(verb) for verb in (*_VERBS, BIND_DECISION)
        }
        for verb in _VERBS:
            self._verb_failures.labels(verb)
        for cause in Cause:
            self._rejections.labels(_label(cause))

    def read(self, sample: Callable[[], ClusterSample]) -> None:
        """What is not counted comes from here."""
        self._registry.register(_Table(sample))

    @contextmanager
    def timed(self, verb: str) -> Iterator[None]:
        began_s = perf_counter()
        try:
            yield
        finally:
            self._seconds_of[verb].observe(perf_counter() - began_s)

    def failed(self, verb: str) -> None:
        self._verb_failures.labels(verb).inc()

    def rejected(self, counts: Mapping[Cause, int]) -> None:
        for cause, count in counts.items():
            self._rejections.labels(_label(cause)).inc(count)

    def fitted_nowhere(self) -> None:
        self._unschedulable.inc()

    def woken(self) -> None:
        self._woken.inc()

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def _counter(self, row: Row) -> Counter:
        return Counter(row.name, row.help, row.labels, registry=self._registry)


class _Table(Collector):
    def __init__(self, sample: Callable[[], ClusterSample]) -> None:
        self._sample = sample

    def collect(self) -> Iterator[Metric]:
        sample = self._sample()
        for row in ROWS:
            if row.read is None:
                continue
            family = GaugeMetricFamily(row.name, row.help, labels=row.labels)
            for labels, value in row.read(sample):
                if value is not None:
                    family.add_metric(labels, value)
            yield family

    def describe(self) -> list[Metric]:
        """Asked at registration, when there is nothing to read yet."""
        return []
