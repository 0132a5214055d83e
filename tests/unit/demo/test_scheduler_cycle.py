"""What the scheduler's stand-in decides and says by itself."""

import random

from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from simcluster.apiserver import node, pod
from simcluster.scheduler.cycle import best_node, failure_of, own_reasons, requests_of


def test_requests_of_all_containers_count_and_only_those_of_extended_resources():
    asked = {"cpu": "2", MEMORY_RESOURCE: "8"}
    containers = [
        {"name": "a", "resources": {"limits": asked}},
        {"name": "b", "resources": {"limits": asked, "requests": asked}},
        {"name": "c"},
    ]
    assert requests_of(pod("p", containers=containers)) == {MEMORY_RESOURCE: 16}


def test_a_node_fits_by_what_is_left_of_it():
    small = node("n", memory_units=20, compute_percent=100)
    wanted = pod("p", memory=16, compute=30)
    assert own_reasons(wanted, small, {}) == []
    assert own_reasons(wanted, small, {MEMORY_RESOURCE: 4, COMPUTE_RESOURCE: 70}) == []
    assert own_reasons(wanted, small, {MEMORY_RESOURCE: 5, COMPUTE_RESOURCE: 71}) == [
        f"Insufficient {COMPUTE_RESOURCE}",
        f"Insufficient {MEMORY_RESOURCE}",
    ]
    assert own_reasons(wanted, node("bare"), {}) != []


def test_a_cordoned_node_takes_nobody():
    cordoned = {**node("n", memory_units=20, compute_percent=100), "spec": {"unschedulable": True}}
    assert own_reasons(pod("p", memory=1, compute=1), cordoned, {}) == [
        "node(s) were unschedulable"
    ]


def test_failures_are_worded_as_kube_scheduler_does():
    assert failure_of(3, ["b is full", "a is full", "b is full"]) == (
        "0/3 nodes are available: 1 a is full, 2 b is full."
    )
    assert failure_of(0, []) == "no nodes available to schedule pods"


def test_lots_are_drawn_only_between_the_best():
    chance = random.Random(1)
    scores = {"a": 10, "b": 3, "c": 10}
    assert {best_node(scores, chance) for _ in range(50)} == {"a", "c"}
