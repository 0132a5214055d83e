"""What each policy promises, on clusters small enough to see it."""

import numpy as np

from scheduler_ext.placement import Cluster, Gpu, Link, Node, Placer, Request, policy_named
from scheduler_ext.placement.holes import learned_hole_values, unlearned_hole_values
from tests.unit.placement.placement_cases import hole_value, uniform_links


def cluster_of(*models: str, gpus: int = 1, cpu_milli: int = 64_000) -> Cluster:
    return Cluster(
        [
            Node(
                f"n{number}",
                cpu_milli,
                262_144,
                tuple(Gpu(f"g{number}-{device}", model, 1000) for device in range(gpus)),
            )
            for number, model in enumerate(models)
        ]
    )


def share(milli: int, **other: object) -> Request:
    return Request(1_000, 1_000, 1, milli, milli, **other)  # type: ignore[arg-type]


def test_pack_fills_the_gpu_in_use_and_spread_avoids_it() -> None:
    for policy, expected in (("pack", "n1"), ("spread", "n0")):
        cluster = cluster_of("A", "A")
        cluster.take(1, (0,), share(300))
        found = Placer(cluster, policy_named(policy)).decide(share(300))
        assert found is not None
        assert found.node == expected


def test_fragmentation_leaves_a_hole_that_somebody_can_use() -> None:
    cluster = cluster_of("A", "A")
    placer = Placer(cluster, policy_named("fragmentation"))
    for _ in range(40):
        placer.observe(share(300))
        placer.observe(share(700))
    cluster.take(0, (0,), share(600))
    cluster.take(1, (0,), share(700))
    found = placer.decide(share(300))
    assert found is not None
    assert found.node == "n1"


def test_fragmentation_gathers_free_gpus_where_a_block_is_nearest() -> None:
    cluster = cluster_of("A", "A", gpus=4)
    placer = Placer(cluster, policy_named("fragmentation"))
    for _ in range(40):
        placer.observe(share(1000))
        placer.observe(Request(1_000, 1_000, 4, 1000, 1000))
    cluster.take(0, (0,), share(1000))
    for device in (0, 1):
        cluster.take(1, (device,), share(1000))
    found = placer.decide(share(1000))
    assert found is not None
    assert found.node == "n1"


def test_fragmentation_keeps_wanted_models_for_those_who_need_them() -> None:
    cluster = cluster_of("A", "B")
    placer = Placer(cluster, policy_named("fragmentation"))
    for _ in range(60):
        placer.observe(share(1000, models=frozenset(["A"])))
        placer.observe(share(1000))
    found = placer.decide(share(1000))
    assert found is not None
    assert found.node == "n1"


def test_fragmentation_keeps_free_gpus_together() -> None:
    cluster = cluster_of("A", "A", gpus=4)
    placer = Placer(cluster, policy_named("fragmentation"))
    for _ in range(60):
        placer.observe(Request(1_000, 1_000, 4, 1000, 1000))
        placer.observe(share(1000))
    cluster.take(1, (0,), share(1000))
    found = placer.decide(share(1000))
    assert found is not None
    assert found.node == "n1"


def test_fragmentation_sends_hungry_pods_where_cpu_would_be_left_over() -> None:
    nodes = [
        Node("lean", 16_000, 262_144, (Gpu("a", "A", 1000), Gpu("b", "A", 1000))),
        Node("rich", 128_000, 262_144, (Gpu("c", "A", 1000), Gpu("d", "A", 1000))),
    ]
    placer = Placer(Cluster(nodes), policy_named("fragmentation"))
    for _ in range(60):
        placer.observe(Request(8_000, 1_000, 1, 1000, 1000))
        placer.observe(Request(14_000, 1_000, 1, 1000, 1000))
    found = placer.decide(Request(14_000, 1_000, 1, 1000, 1000))
    assert found is not None
    assert found.node == "rich"


def test_a_single_gpu_leaves_the_linked_pair_alone() -> None:
    fast, slow = Link.NVLINK, Link.SYSTEM
    links = (
        (fast, slow, slow),
        (slow, fast, fast),
        (slow, fast, fast),
    )
    node = Node("one", 64_000, 65_536, tuple(Gpu(f"g{d}", "A", 1000) for d in range(3)), links)
    for policy in ("pack", "spread", "fragmentation"):
        found = Placer(Cluster([node]), policy_named(policy)).decide(share(1000))
        assert found is not None
        assert found.devices == (0,)


def test_links_come_before_cost_between_nodes() -> None:
    def node(name: str, link: Link) -> Node:
        gpus = tuple(Gpu(f"{name}{device}", "A", 1000) for device in range(2))
        return Node(name, 64_000, 65_536, gpus, uniform_links(2, link))

    cluster = Cluster([node("numa", Link.NUMA), node("nvlink", Link.NVLINK)])
    found = Placer(cluster, policy_named("fragmentation")).decide(Request(0, 0, 2, 500, 500))
    assert found is not None
    assert found.node == "nvlink"


def test_holes_are_worth_what_the_sizes_seen_can_fill() -> None:
    sizes = np.array([[810, 810], [470, 470], [1000, 1000]])
    values = learned_hole_values(sizes, np.array([50.0, 100.0, 100.0]))
    worth = [round(hole_value(values, free, free)) for free in (190, 530, 1000)]
    assert worth == [0, 500, 1000]


def test_the_worth_of_a_hole_depends_on_how_many_could_fill_it() -> None:
    sizes = np.array([[600, 600], [400, 400], [400, 400]])
    few = learned_hole_values(sizes, np.array([100.0, 5.0, 5.0]))
    many = learned_hole_values(sizes, np.array([10.0, 50.0, 50.0]))
    assert round(hole_value(few, 400, 400)) == 0
    assert round(hole_value(many, 400, 400)) == 500


def test_hole_values_know_memory_apart_from_compute() -> None:
    sizes = np.array([[200, 500], [1000, 1000]])
    values = learned_hole_values(sizes, np.array([50.0, 10.0]))
    holes = [(800, 500), (800, 490), (150, 1000)]
    assert [round(hole_value(values, *hole)) for hole in holes] == [500, 0, 0]


def test_hole_values_never_fall_with_more_room() -> None:
    rng = np.random.default_rng(7)
    for _ in range(20):
        sizes = np.unique(rng.integers(1, 1001, (int(rng.integers(1, 20)), 2)), axis=0)
        values = learned_hole_values(sizes, rng.integers(1, 50, len(sizes)).astype(np.float64))
        assert (np.diff(values.table, axis=0) >= 0).all()
        assert (np.diff(values.table, axis=1) >= 0).all()
        assert values.table[-1, -1] == 1000
    assert unlearned_hole_values().table[-1, 0] == 1000
