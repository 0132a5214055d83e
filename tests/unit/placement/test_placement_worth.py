"""The compiled worth of nodes is the one a plain loop over devices and classes finds."""

from dataclasses import replace

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
from scheduler_ext.placement.worth import Worth
from tests.unit.placement.placement_cases import hole_value, node_lists, requests

SCARCITY_WEIGHT, STRANDED_SCALE_MILLI, BLOCK_WEIGHT, GATHER_WEIGHT = 0.75, 4000.0, 0.5, 2.0


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


def plain_holes(cluster: Cluster, lesson: Lesson, row: int) -> float:
    """What a node's holes are worth, each by itself."""
    worth = 0.0
    for device in np.flatnonzero(cluster.model[row] >= 0).tolist():
        total = int(cluster.gpu_memory[row, device])
        memory_milli = 1000 * int(cluster.gpu_memory_free[row, device]) // total
        compute_milli = int(cluster.compute_free_milli[row, device])
        scarcity = float(lesson.scarcity[cluster.model[row, device]])
        value = hole_value(lesson.holes[total], compute_milli, memory_milli)
        worth += value * (1 + SCARCITY_WEIGHT * scarcity)
    return worth


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    nodes=node_lists(),
    seen=st.lists(requests(), min_size=5, max_size=30),
    booked=st.integers(0, 30),
    request=requests(),
)
def test_c_finds_what_a_loop_finds(
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
    worth = Worth(lesson)
    worth.weigh_blocks(blocks)
    alone = replace(request, gpus=1) if request.gpus else request
    each = worth.lost_by_each(cluster, rows, alone, eligible)
    for row in rows.tolist():
        assert not each[row][~eligible[row]].any()
        if not request.gpus or cluster.cpu_free_milli[row] < request.cpu_milli:
            continue
        if cluster.memory_free_mib[row] < request.memory_mib:
            continue
        for device in np.flatnonzero(eligible[row]).tolist():
            was = plain_loss(cluster, lesson, blocks, row)
            holes_were = plain_holes(cluster, lesson, row)
            cluster.take(row, (device,), alone)
            expected = plain_loss(cluster, lesson, blocks, row) - was
            holes = holes_were - plain_holes(cluster, lesson, row)
            cluster.give(row, (device,), alone)
            only = np.zeros_like(eligible)
            only[row, device] = True
            together = worth.lost_by_all(cluster, rows, alone, only)
            several = worth.lost_by_each(cluster, rows, replace(alone, gpus=2), only)
            assert each[row, device] == pytest.approx(expected + holes, abs=1e-6)
            assert together[row] == pytest.approx(expected, abs=1e-6)
            assert several[row, device] == pytest.approx(holes, abs=1e-6)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(nodes=node_lists(), seen=st.lists(requests(), min_size=5, max_size=30), data=st.data())
def test_c_finds_what_a_loop_finds_for_several_gpus(
    nodes: list[Node], seen: list[Request], data: st.DataObject
) -> None:
    cluster = Cluster(nodes)
    workload = Workload()
    for other in [*seen, Request(1_000, 1_000, 1, 500, 10)]:
        workload.observe(other)
    lesson = workload.learn(cluster)
    blocks = dict.fromkeys(lesson.block_demand, 0.5)
    worth = Worth(lesson)
    worth.weigh_blocks(blocks)
    rows = np.arange(cluster.rows)
    for row in np.flatnonzero(cluster.gpu_memory.any(axis=1)).tolist():
        count = data.draw(st.integers(1, len(cluster.uuids[row])))
        request = Request(1, 1, count, 300, 1)
        devices = tuple(data.draw(st.permutations(range(len(cluster.uuids[row]))))[:count])
        taken = np.zeros(cluster.model[rows].shape, dtype=np.bool_)
        taken[row, list(devices)] = True
        was = plain_loss(cluster, lesson, blocks, row)
        lost = worth.lost_by_all(cluster, rows, request, taken)
        cluster.take(row, devices, request)
        expected = plain_loss(cluster, lesson, blocks, row) - was
        cluster.give(row, devices, request)
        assert lost[row] == pytest.approx(expected, abs=1e-6)


def test_a_gpu_of_a_model_that_came_after_the_lesson_is_left_out() -> None:
    cluster = Cluster([Node("old", 64_000, 65_536, (Gpu("a", "A", 10),))])
    workload = Workload()
    workload.observe(Request(1_000, 1_000, 1, 500, 5))
    worth = Worth(workload.learn(cluster))
    worth.weigh_blocks({})
    cluster.add(Node("new", 64_000, 65_536, (Gpu("b", "B", 10), Gpu("c", "C", 20))))
    rows, request = np.arange(cluster.rows), Request(1, 1, 1, 500, 5)
    lost = worth.lost_by_each(cluster, rows, request, eligible_devices(cluster, rows, request))
    assert np.isfinite(lost).all()
    assert lost[0, 0] > 0


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
