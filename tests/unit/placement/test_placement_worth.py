"""The vectorised worth of nodes is the one a loop over devices and classes finds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_ext.placement import (
    Cluster,
    Gpu,
    Node,
    Placer,
    Request,
    eligible_devices,
    policy_named,
)
from scheduler_ext.placement.workload import Lesson, Workload
from scheduler_ext.placement.worth import (
    BLOCK_WEIGHT,
    GATHER_WEIGHT,
    STRANDED_SCALE_MILLI,
    Nodes,
    lost_by_all,
    lost_by_each,
)
from tests.unit.placement.placement_cases import node_lists, requests


def plain_loss(cluster: Cluster, lesson: Lesson, blocks: dict[int, float], row: int) -> float:
    """What is free on a node and of no use, minus the worth of its free blocks."""
    models = [int(model) for model in cluster.model[row]]
    compute = [int(c) for c in cluster.compute_free_milli[row]]
    memory = [int(m) for m in cluster.gpu_memory_free[row]]
    total = [int(t) for t in cluster.gpu_memory[row]]
    there = [device for device, model in enumerate(models) if model >= 0]
    shares = {d: (compute[d] + 1000 * memory[d] / total[d]) / 2 for d in there}
    used = weights = 0.0
    for k in range(len(lesson.weight)):
        if not any(lesson.access[models[d], k] for d in there):
            continue
        weights += float(lesson.weight[k])
        able = [
            d
            for d in there
            if lesson.access[models[d], k]
            and compute[d] >= lesson.compute_milli[k]
            and memory[d] >= (total[d] if lesson.whole[k] else lesson.gpu_memory_units[k])
        ]
        if len(able) >= lesson.gpus[k] and cluster.cpu_free_milli[row] >= lesson.cpu_milli[k]:
            used += float(lesson.weight[k]) * sum(shares[d] for d in able)
    free = sum(shares.values())
    supported = min(
        cluster.cpu_free_milli[row] / max(lesson.cpu_per_share, 1e-9),
        cluster.memory_free_mib[row] / max(lesson.memory_per_share, 1e-9),
    )
    stranded = max(free - supported, 0.0) ** 2 / (2 * STRANDED_SCALE_MILLI)
    whole = sum(compute[d] == 1000 and memory[d] == total[d] for d in there)
    block_worth = 0.0
    for gpus, demand in lesson.block_demand.items():
        complete = whole // gpus
        worth = (BLOCK_WEIGHT + GATHER_WEIGHT) * complete
        if len(there) >= (complete + 1) * gpus:
            worth += GATHER_WEIGHT * ((whole - complete * gpus) / gpus) ** 2
        block_worth += blocks[gpus] * demand * 1000 * gpus * worth
    return free - (used / weights if weights else 0.0) + stranded - block_worth


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    nodes=node_lists(),
    seen=st.lists(requests(), min_size=5, max_size=30),
    booked=st.integers(0, 30),
    request=requests(),
)
def test_the_arrays_find_what_a_loop_finds(
    nodes: list[Node], seen: list[Request], booked: int, request: Request
) -> None:
    cluster = Cluster(nodes)
    placer = Placer(cluster, policy_named("pack"))
    workload = Workload()
    for other in [*seen, Request(1_000, 1_000, 1, 500, 10)]:
        workload.observe(other)
    for other in seen[:booked]:
        decision = placer.decide(other)
        if decision:
            cluster.take(decision.row, decision.devices, other)
    lesson = workload.learn(cluster)
    blocks = {gpus: 1 / gpus for gpus in lesson.block_demand}
    rows = np.arange(cluster.rows)
    eligible = eligible_devices(cluster, rows, request)
    before = Nodes.of(cluster, rows)
    each = lost_by_each(lesson, blocks, before, before.after(request, eligible), eligible)
    for row in rows.tolist():
        one = Request(
            request.cpu_milli,
            request.memory_mib,
            1,
            request.compute_milli or 1,
            request.gpu_memory_units,
        )
        if not request.gpus or cluster.cpu_free_milli[row] < request.cpu_milli:
            continue
        if cluster.memory_free_mib[row] < request.memory_mib:
            continue
        for device in np.flatnonzero(eligible[row]).tolist():
            was = plain_loss(cluster, lesson, blocks, row)
            cluster.take(row, (device,), one)
            expected = plain_loss(cluster, lesson, blocks, row) - was
            cluster.give(row, (device,), one)
            only = np.zeros_like(eligible)
            only[row, device] = True
            together = lost_by_all(lesson, blocks, before, before.after(request, only))
            # Sums of some thousand milli in 32 bit: three decimals is what they carry.
            assert each[row, device] == pytest.approx(expected, abs=0.02)
            assert together[row] == pytest.approx(expected, abs=0.02)


def test_a_model_is_scarce_by_demand_per_gpu_not_by_demand() -> None:
    nodes = [
        Node(f"n{number}", 1_000, 1_000, (Gpu(f"g{number}", "few" if number < 2 else "many", 10),))
        for number in range(10)
    ]
    workload = Workload()
    for number in range(30):
        model = "few" if number < 10 else "many"
        workload.observe(Request(1, 1, 1, 500, 5, models=frozenset([model])))
    few, many, absent = workload.learn(Cluster(nodes)).scarcity.tolist()
    assert few == pytest.approx(0.5)
    assert many == absent == 0


def test_a_lesson_follows_the_workload() -> None:
    cluster = Cluster([])
    workload = Workload()
    for number in range(100_001):
        workload.observe(Request(1_000, 0, 1, 500 if number < 90_000 else 250, 10))
    lesson = workload.learn(cluster)
    assert lesson.weight.sum() == pytest.approx(1)
    for _ in range(200_000):
        workload.observe(Request(1_000, 0, 1, 250, 10))
    later = workload.learn(cluster)
    assert later.compute_milli.tolist()[0] == 250
    assert lesson.compute_milli.tolist()[0] == 500


def test_requests_that_never_come_twice_are_forgotten_without_harm() -> None:
    nodes = [Node("one", 64_000, 65_536, (Gpu("a", "A", 1000),))]
    cluster = Cluster(nodes)
    placer = Placer(cluster, policy_named("fragmentation"))
    for number in range(25):
        placer.observe(Request(number, 0, 1, 500, 500))
    assert placer.decide(Request(1, 1, 1, 500, 500)) is not None
    for number in range(100_100):
        placer.observe(Request(number + 100, 0))
    cluster.add(Node("two", 64_000, 65_536, (Gpu("b", "B", 500),)))
    found = placer.decide(Request(1, 1, 1, 500, 10, models=frozenset(["B"])))
    assert found is not None
    assert found.node == "two"
