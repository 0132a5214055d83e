"""The arrays take in nodes, let them go, and refuse what cannot be."""

import pytest

from scheduler_ext.placement import Cluster, Gpu, Link, Node, Placer, Request, policy_named


def node(name: str, gpus: int = 2, model: str = "A", memory: int = 40) -> Node:
    devices = tuple(Gpu(f"{name}/{device}", model, memory) for device in range(gpus))
    return Node(name, 16_000, 32_768, devices)


def test_a_booking_beyond_what_is_free_is_refused_and_changes_nothing() -> None:
    cluster = Cluster([node("one")])
    half = Request(1_000, 1_000, 1, 600, 20)
    cluster.take(0, (0,), half)
    before = cluster.compute_free_milli.copy()
    with pytest.raises(ValueError, match="does not fit"):
        cluster.take(0, (0,), half)
    with pytest.raises(ValueError, match="does not fit"):
        cluster.take(0, (0,), Request(0, 0, 1, 100, 21))
    assert (cluster.compute_free_milli == before).all()


def test_giving_back_what_was_not_taken_is_refused() -> None:
    cluster = Cluster([node("one")])
    with pytest.raises(ValueError, match="was not booked"):
        cluster.give(0, (0,), Request(0, 0, 1, 100, 1))


@pytest.mark.parametrize("devices", [(0, 0), (0, 2), (0,), (-1, 0)])
def test_devices_must_be_as_many_as_asked_and_exist(devices: tuple[int, ...]) -> None:
    cluster = Cluster([node("one")])
    with pytest.raises(ValueError, match="are not 2 GPUs"):
        cluster.take(0, devices, Request(0, 0, 2, 100, 1))


def test_a_whole_gpu_takes_all_memory_and_needs_an_empty_gpu() -> None:
    cluster = Cluster([node("one", gpus=1)])
    placer = Placer(cluster, policy_named("fragmentation"))
    whole = Request(0, 0, 1, 1000, None)
    cluster.take(0, (0,), Request(0, 0, 1, 10, 1))
    assert placer.decide(whole) is None
    cluster.give(0, (0,), Request(0, 0, 1, 10, 1))
    assert placer.decide(whole) is not None
    cluster.take(0, (0,), whole)
    assert cluster.gpu_memory_free[0, 0] == 0


def test_memory_and_compute_are_separate_dimensions() -> None:
    cluster = Cluster([node("one", gpus=1, memory=40)])
    placer = Placer(cluster, policy_named("fragmentation"))
    cluster.take(0, (0,), Request(0, 0, 1, 100, 30))
    assert placer.decide(Request(0, 0, 1, 900, 10)) is not None
    assert placer.decide(Request(0, 0, 1, 100, 11)) is None


@pytest.mark.parametrize("policy", ["pack", "spread", "fragmentation"])
def test_nodes_come_and_go_while_decisions_are_made(policy: str) -> None:
    cluster = Cluster([node("one")])
    placer = Placer(cluster, policy_named(policy))
    request = Request(1_000, 1_000, 1, 1000, None)
    for number in range(40):
        placer.observe(request)
        cluster.add(node(f"more-{number}", gpus=number % 5, memory=40 + number % 3))
    pinned = Request(0, 0, 1, 500, 10, uuids=frozenset(["more-7/1"]))
    found = placer.decide(pinned)
    assert found is not None
    assert (found.node, found.devices) == ("more-7", (1,))
    cluster.remove("more-7")
    assert placer.decide(pinned) is None
    cluster.add(node("new", gpus=8, model="B", memory=99))
    wide = placer.decide(Request(0, 0, 8, 1000, None))
    assert wide is not None
    assert wide.node == "new"


def test_a_node_or_gpu_is_not_taken_in_twice() -> None:
    cluster = Cluster([node("one")])
    with pytest.raises(ValueError, match="already there"):
        cluster.add(node("one"))
    with pytest.raises(ValueError, match="listed twice"):
        cluster.add(Node("two", 1, 1, (Gpu("one/0", "A", 40),)))
    assert "two" not in cluster.row_of


def test_more_gpus_than_supported_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="node big has 17 GPUs"):
        Cluster([node("big", gpus=17)])


def test_a_link_table_of_the_wrong_size_is_refused() -> None:
    with pytest.raises(ValueError, match="must be 2 by 2"):
        Node("one", 1, 1, node("one").gpus, ((Link.NVLINK,),))


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"cpu_milli": -1}, "negative"),
        ({"gpus": 1, "compute_milli": 1001}, "1001 were asked"),
        ({"gpus": 1, "compute_milli": 500, "gpu_memory_units": None}, "whole GPU"),
        ({"gpus": 1}, "needs compute or memory"),
    ],
)
def test_requests_that_make_no_sense_are_refused(wrong: dict[str, int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Request(**wrong)  # type: ignore[arg-type]


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="pack, spread, fragmentation"):
        policy_named("tight")
