"""Whatever comes and goes: nothing is over-committed, nothing that fits is left out."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_ext.placement import (
    Cluster,
    Node,
    Placer,
    Request,
    eligible_devices,
    fitting,
    policy_named,
)
from tests.unit.placement.placement_cases import carries, connection, has_room, node_lists, requests

POLICIES = ("pack", "spread", "fragmentation")


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(nodes=node_lists(), steps=st.lists(st.tuples(requests(), st.integers(0, 3)), max_size=60))
def test_every_decision_keeps_the_rules(
    policy: str, nodes: list[Node], steps: list[tuple[Request, int]]
) -> None:
    cluster = Cluster(nodes)
    placer = Placer(cluster, policy_named(policy))
    by_name = {node.name: node for node in nodes}
    running: list[tuple[int, tuple[int, ...], Request]] = []
    for request, chance in steps:
        if chance == 0 and running:
            cluster.give(*running.pop(0))
        placer.observe(request)
        decision = placer.decide(request)
        if decision is None:
            assert not any(has_room(cluster, node, request) for node in nodes)
            continue
        node = by_name[decision.node]
        assert len(set(decision.devices)) == len(decision.devices) == request.gpus
        assert has_room(cluster, node, request)
        assert all(carries(cluster, node, device, request) for device in decision.devices)
        cluster.take(decision.row, decision.devices, request)
        running.append((decision.row, decision.devices, request))
        assert (cluster.cpu_free_milli >= 0).all()
        assert (cluster.memory_free_mib >= 0).all()
        assert (cluster.compute_free_milli >= 0).all()
        assert (cluster.gpu_memory_free >= 0).all()
    for booking in running:
        cluster.give(*booking)
    fresh = Cluster(nodes)
    assert (cluster.compute_free_milli == fresh.compute_free_milli).all()
    assert (cluster.gpu_memory_free == fresh.gpu_memory_free).all()
    assert (cluster.nodes_with_free == fresh.nodes_with_free).all()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(nodes=node_lists(), booked=st.lists(requests(), max_size=20), request=requests())
def test_the_arrays_agree_with_one_comparison_at_a_time(
    nodes: list[Node], booked: list[Request], request: Request
) -> None:
    cluster = Cluster(nodes)
    placer = Placer(cluster, policy_named("pack"))
    for other in booked:
        decision = placer.decide(other)
        if decision:
            cluster.take(decision.row, decision.devices, other)
    rows = np.array([cluster.row_of[node.name] for node in nodes])
    devices = eligible_devices(cluster, rows, request)
    fits = fitting(cluster, rows, request)
    for index, node in enumerate(nodes):
        plain = [carries(cluster, node, device, request) for device in range(len(node.gpus))]
        assert devices[index, : len(plain)].tolist() == plain
        assert not devices[index, len(plain) :].any()
        assert bool(fits[index]) == has_room(cluster, node, request)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    nodes=node_lists(), booked=st.lists(requests(), max_size=15), gpus=st.sampled_from([2, 3, 4])
)
def test_several_gpus_are_the_best_connected_there_are(
    nodes: list[Node], booked: list[Request], gpus: int
) -> None:
    cluster = Cluster(nodes)
    placer = Placer(cluster, policy_named("fragmentation"))
    for other in booked:
        decision = placer.decide(other)
        if decision:
            cluster.take(decision.row, decision.devices, other)
    request = Request(100, 100, gpus, 250, 10)
    decision = placer.decide(request)
    reachable: dict[str, list[tuple[int, int]]] = {}
    for node in nodes:
        able = [d for d in range(len(node.gpus)) if carries(cluster, node, d, request)]
        sets = list(combinations(able, gpus)) if has_room(cluster, node, request) else []
        if sets:
            reachable[node.name] = [connection(node, chosen) for chosen in sets]
    if decision is None:
        assert not reachable
        return
    chosen_node = next(node for node in nodes if node.name == decision.node)
    got = connection(chosen_node, decision.devices)
    assert got == max(reachable[decision.node])
    assert got[0] == max(weakest for found in reachable.values() for weakest, _ in found)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=10, deadline=None, derandomize=True)
@given(nodes=node_lists(), steps=st.lists(requests(), min_size=22, max_size=40))
def test_a_cached_score_is_the_score_of_now(
    policy: str, nodes: list[Node], steps: list[Request]
) -> None:
    cluster = Cluster(nodes)
    placer = Placer(cluster, policy_named(policy))
    for request in steps:
        placer.observe(request)
        decision = placer.decide(request)
        if decision:
            cluster.take(decision.row, decision.devices, request)
        anew = Placer(cluster, placer.policy)
        for other in steps:
            assert placer.costs(other).tolist() == anew.costs(other).tolist()
