"""The page at /metrics: what is on it, and that Prometheus can read it."""

import re
from collections.abc import Iterator
from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from deviceplugin.booking.sources import ContainerKey
from deviceplugin.telemetry.counts import Counts
from deviceplugin.telemetry.metrics import ROWS, GpuSample, Metrics, NodeSample
from deviceplugin.telemetry.readings import ContainerReading

GIB = 1 << 30
GPU = "GPU-00000000-0000-0000-0000-00000000000a"
KEY = ContainerKey("team-a", "train-0", "main")
READING = ContainerReading(
    key=KEY,
    gpu=GPU,
    memory_limit_bytes=4 * GIB,
    memory_used_bytes=3 * GIB,
    memory_peak_bytes=4 * GIB,
    memory_refusals=2,
    compute_share=0.3,
    busy_s=12.5,
    throttled_s=0.25,
    launches=1000,
)
NODE = NodeSample(
    version="1.2.3",
    driver="610.43.02",
    unit_bytes=GIB // 4,
    gpus=(
        GpuSample(
            uuid=GPU,
            index=0,
            model="NVIDIA L4",
            memory_bytes=24 * GIB,
            memory_advertised_bytes=23 * GIB,
            memory_held_bytes=4 * GIB,
            compute_advertised=1.0,
            compute_held=0.3,
            memory_used_bytes=3 * GIB,
            utilization=0.25,
            rivals=("nvidia.com/gpu",),
        ),
    ),
    containers=(READING,),
    plans={KEY: False},
    xids={(GPU, 79): 1},
    allocations={("aliquot.dev/gpu-memory", "granted"): 5},
    conflicts=1,
    breaches={("over-cap", "team-a", "train-0", "main"): 1},
    shims_missing={KEY: 2},
    arbiter_cpu_s=0.5,
    probe_age_s=1.5,
)


def samples(node: NodeSample) -> Iterator[tuple[str, dict[str, str], float]]:
    page = Metrics(lambda: node).render().decode()
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name.startswith("aliquot_"):
                yield sample.name, sample.labels, sample.value


def test_every_row_of_the_table_is_on_the_page_with_its_labels() -> None:
    found = {name: labels for name, labels, _ in samples(NODE)}
    assert {name: set(labels) for name, labels in found.items()} == {
        row.name: set(row.labels) for row in ROWS
    }


def test_values_are_in_base_units() -> None:
    values = {name: value for name, _, value in samples(NODE)}
    assert values["aliquot_container_memory_limit_bytes"] == 4 * GIB
    assert values["aliquot_container_compute_share_ratio"] == 0.3
    assert values["aliquot_container_compute_busy_seconds_total"] == 12.5
    assert values["aliquot_container_plan_differs"] == 1
    assert values["aliquot_gpu_usable"] == 1
    assert values["aliquot_gpu_xids_total"] == 1
    broken = replace(NODE, gpus=(replace(NODE.gpus[0], unusable="Xid 79"),))
    assert {name: value for name, _, value in samples(broken)}["aliquot_gpu_usable"] == 0


def test_ids_are_counted_by_resource() -> None:
    def ids(name: str, node: NodeSample) -> dict[str, float]:
        return {labels["resource"]: value for each, labels, value in samples(node) if each == name}

    memory, compute = "aliquot.dev/gpu-memory", "aliquot.dev/gpu-compute"
    assert ids("aliquot_ids_advertised", NODE) == {memory: 92, compute: 100}
    assert ids("aliquot_ids_held", NODE) == {memory: 16, compute: 30}
    broken = replace(NODE, gpus=(replace(NODE.gpus[0], unusable="Xid 79"),))
    assert ids("aliquot_ids_advertised", broken) == {memory: 0, compute: 0}
    assert ids("aliquot_ids_held", broken) == {memory: 16, compute: 30}


def test_results_of_allocations_are_there_before_the_first_one() -> None:
    """Of a counter that begins with 1, Prometheus sees no increase."""
    found = [value for name, _, value in samples(NodeSample("1")) if "allocations" in name]
    assert found == [0] * 6


def test_what_is_not_known_is_left_out() -> None:
    whole = replace(READING, memory_limit_bytes=None, memory_peak_bytes=None, busy_s=None)
    names = {name for name, _, _ in samples(replace(NODE, containers=(whole,)))}
    assert "aliquot_container_memory_limit_bytes" not in names
    assert "aliquot_container_memory_peak_bytes" not in names
    assert "aliquot_container_compute_busy_seconds_total" not in names
    assert "aliquot_container_memory_used_bytes" in names


def test_a_node_without_anything_has_a_page_too() -> None:
    page = Metrics(lambda: NodeSample("1.2.3")).render().decode()
    for row in ROWS:
        assert f"# TYPE {row.name} {row.kind}" in page
    assert "process_cpu_seconds_total" in page


def test_no_series_is_there_twice() -> None:
    """Prometheus would refuse the whole page."""
    later = replace(READING, launches=2000)
    found = [
        (name, tuple(sorted(labels.items())))
        for name, labels, _ in samples(replace(NODE, containers=(READING, later)))
    ]
    assert len(found) == len(set(found))
    values = {name: value for name, _, value in samples(replace(NODE, containers=(READING, later)))}
    assert values["aliquot_container_launches_total"] == 2000


def test_names_follow_prometheus() -> None:
    for row in ROWS:
        assert re.fullmatch(r"aliquot_[a-z0-9]+(_[a-z0-9]+)*", row.name)
        assert not re.search(r"_(count|sum|bucket|ms|ns|mib|percent)$", row.name)
        assert row.help.endswith(".")
        assert len(row.labels) == len(set(row.labels))
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_counts_add_up_by_label() -> None:
    counts = Counts()
    counts.allocation("r", "granted")
    counts.allocation("r", "granted")
    counts.allocation("r", "refused")
    counts.breach("over-cap", "ns", "pod", "main")
    counts.conflict()
    assert counts.allocations == {("r", "granted"): 2, ("r", "refused"): 1}
    assert counts.breaches == {("over-cap", "ns", "pod", "main"): 1}
    assert counts.conflicts == 1
