"""The extender's table: what is counted is there from the start, what is read is read rightly."""

import re
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from scheduler_ext.ledger import Stage
from scheduler_ext.metrics import ROWS, ClusterSample, Metrics, StageSample
from scheduler_ext.reasons import Cause
from scheduler_ext.records import PodRecord
from scheduler_ext.sample import Sampler
from scheduler_ext.state import ClusterState
from scheduler_ext.waiting import WaitingPods

SAMPLE = ClusterSample(
    version="1.2.3",
    is_ready=True,
    leads=False,
    cache_ages_s={"nodes": 1.0, "pods": 2.0},
    stages={Stage.PLANNED: StageSample(2, 1 << 30, 0.5)},
    nodes=3,
    left_out=("n4",),
    gpus=6,
    gpus_wholly_free=2,
    gpus_free=2.5,
    certificate_ends_s=1.8e9,
)


def values(metrics: Metrics) -> dict[str, float]:
    found = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            labels = ",".join(sample.labels.values())
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def test_what_is_read_is_in_base_units(metrics: Metrics) -> None:
    metrics.read(lambda: SAMPLE)
    found = values(metrics)
    assert found["aliquot_extender_build_info{1.2.3}"] == 1
    assert found["aliquot_extender_ready{}"] == 1
    assert found["aliquot_extender_leader{}"] == 0
    assert found["aliquot_extender_ledger_memory_bytes{planned}"] == 1 << 30
    assert found["aliquot_extender_ledger_compute_gpus{planned}"] == 0.5
    assert found["aliquot_extender_node_left_out{n4}"] == 1
    assert found["aliquot_extender_fragmentation_ratio{}"] == pytest.approx(0.2)
    assert found["aliquot_extender_certificate_expiry_timestamp_seconds{}"] == 1.8e9


def test_nothing_free_is_nothing_scattered_and_no_webhook_has_no_certificate(
    metrics: Metrics,
) -> None:
    metrics.read(lambda: replace(SAMPLE, gpus_free=0.0, certificate_ends_s=None))
    found = values(metrics)
    assert found["aliquot_extender_fragmentation_ratio{}"] == 0
    assert "aliquot_extender_certificate_expiry_timestamp_seconds{}" not in found


def test_counters_begin_at_zero_with_all_their_labels(metrics: Metrics) -> None:
    found = values(metrics)
    for cause in Cause:
        assert found[f"aliquot_extender_node_rejections_total{{{cause.name.lower()}}}"] == 0
    for verb in ("filter", "prioritize", "preempt", "bind"):
        assert found[f"aliquot_extender_verb_failures_total{{{verb}}}"] == 0
        assert found[f"aliquot_extender_verb_seconds_count{{{verb}}}"] == 0
    metrics.rejected({Cause.SIZE: 2, Cause.KIND: 1})
    metrics.failed("bind")
    with metrics.timed("filter"):
        pass
    found = values(metrics)
    assert found["aliquot_extender_node_rejections_total{size}"] == 2
    assert found["aliquot_extender_node_rejections_total{kind}"] == 1
    assert found["aliquot_extender_verb_failures_total{bind}"] == 1
    assert found["aliquot_extender_verb_seconds_count{filter}"] == 1
    assert not [name for name in found if "_created" in name]


def test_names_follow_prometheus() -> None:
    for row in ROWS:
        assert re.fullmatch(r"aliquot_extender(_[a-z]+)+", row.name)
        assert not re.search(r"_(count|sum|bucket|ms|mib|units|percent)$", row.name)
        assert (row.kind == "counter") == row.name.endswith("_total")
        assert row.help.endswith(".")
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_the_longest_wait_is_counted_from_creation_so_that_every_leader_says_the_same() -> None:
    waiting = WaitingPods()
    sampler = Sampler(
        ClusterState(),
        waiting,
        cache_ages_s=dict,
        not_ready=lambda: "nodes and pods are still being read",
        leads=lambda: True,
        certificate_ends_s=lambda: None,
        clock=lambda: 5000.0,
    )
    assert sampler.sample().longest_wait_s == 0
    for uid, created_s in (("a", 4000.0), ("b", 2000.0), ("unknown", 0.0)):
        waiting.add(PodRecord(uid, "ns", uid, "", 0, created_s, None, None), now_s=1.0)
    sample = sampler.sample()
    assert (sample.waiting, sample.longest_wait_s) == (3, 3000)
    assert not sample.is_ready
