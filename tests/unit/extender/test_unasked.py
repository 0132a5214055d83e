"""A pod that kube-scheduler rejects by its own sums is told by us what is missing."""

import pytest

from scheduler_ext.unasked import Unasked
from tests.extender_cluster import gpu_node, gpu_pod
from tests.extender_world import World


class Told:
    def __init__(self, *nodes) -> None:
        self.world = World(list(nodes), replicas=1)
        self.verbs = self.world.replicas[0].verbs
        self.texts: dict[str, str] = {}
        self.count = 0
        self.now_s = 1_000_000.0
        self.unasked = Unasked(self.verbs, self.tell, every_s=0.0, now_s=lambda: self.now_s)

    def tell(self, pod, text: str) -> None:
        self.count += 1
        self.texts[pod.name] = text

    def add(self, name: str, memory: int, compute: int = 30, **more) -> None:
        self.world.add_pod(gpu_pod(name, memory, compute, **more))
        self.world.deliver(0)


@pytest.fixture
def told() -> Told:
    return Told(gpu_node("n1"), gpu_node("n2"), gpu_node("n3", agent=False))


def test_what_is_missing_is_told_once(told):
    told.add("p", 400)
    for _ in range(3):
        told.unasked.look()
    assert told.texts == {
        "p": "its GPUs are free on no node: GPU 0 is the largest: 40 of 100 GiB asked on one GPU "
        "(2 nodes); the node agent is not running: the kubelet offers nothing of its GPUs (1 node)"
    }
    assert told.count == 1


def test_a_pod_that_waits_for_hours_is_told_again_before_its_event_is_gone(told):
    told.add("p", 400)
    for _ in range(4):
        told.unasked.look()
        told.now_s += 1000.0
    assert told.count == 2


def test_bytes_that_nobody_converted_are_said_to_be_bytes(told):
    told.add("p", 4 << 30)
    told.unasked.look()
    assert "seem to be bytes: the pod came round the admission webhook" in told.texts["p"]


def test_a_pod_that_might_run_is_left_to_kube_scheduler(told):
    told.add("p", 40)
    told.unasked.look()
    assert not told.texts


def test_a_pod_that_came_through_filter_has_its_event_already(told):
    told.add("p", 400)
    assert told.world.schedule("p") is None
    told.unasked.look()
    assert not told.texts


def test_a_new_pod_is_given_time(told):
    told.now_s = 1.0
    told.add("p", 400)
    told.unasked.look()
    assert not told.texts
    told.now_s = 20.0
    told.unasked.look()
    assert "p" in told.texts


def test_a_bound_pod_and_one_that_went_are_forgotten(told):
    told.add("bound", 400, node="n1")
    told.add("p", 400)
    told.unasked.look()
    told.world.delete_pod("p")
    told.world.deliver(0)
    told.unasked.look()
    assert not told.unasked._told_s
    assert set(told.texts) == {"p"}


def test_without_nodes_the_agent_is_suspected():
    told = Told()
    told.add("p", 40)
    told.unasked.look()
    assert told.texts["p"] == "no node reports GPUs; see whether the node agent runs on them"
