"""Pods of several containers: each gets GPUs of its own on one node, if there is any way."""

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_ext.placement import Cluster, Gpu, Node, Placer, PodPlacer, Request, policy_named

POLICIES = ("pack", "spread", "fragmentation")


def cluster(rows: list[list[tuple[int, int]]]) -> Cluster:
    made = Cluster(
        [
            Node(f"n{number}", 10**6, 10**6, tuple(Gpu(f"{number}-{i}", "m", 10) for i in range(3)))
            for number in range(len(rows))
        ]
    )
    for row, gpus in enumerate(rows):
        for device, (memory, compute) in enumerate(gpus):
            made.set_gpu_free(row, device, 100 * compute, memory)
    return made


def ways(free: list[tuple[int, int]], parts: tuple[Request, ...]) -> bool:
    """Whether there is any way at all, by trying every one."""
    for devices in product(range(len(free)), repeat=len(parts)):
        left = [list(each) for each in free]
        for device, part in zip(devices, parts, strict=True):
            left[device][0] -= part.gpu_memory_units or 0
            left[device][1] -= part.compute_milli // 100
        if min(min(each) for each in left) >= 0:
            return True
    return False


gpu = st.tuples(st.integers(0, 10), st.integers(0, 10))
part = st.builds(
    lambda memory, compute: Request(gpus=1, compute_milli=100 * compute, gpu_memory_units=memory),
    st.integers(1, 8),
    st.integers(1, 8),
)


@settings(max_examples=150)
@given(
    rows=st.lists(st.lists(gpu, min_size=3, max_size=3), min_size=1, max_size=3),
    parts=st.lists(part, min_size=2, max_size=4).map(tuple),
    policy=st.sampled_from(POLICIES),
)
def test_a_pod_fits_exactly_where_there_is_a_way(rows, parts, policy):
    made = cluster(rows)
    placer = PodPlacer(Placer(made, policy_named(policy), host=False))
    cost = placer.scores(parts).cost
    for row, free in enumerate(rows):
        assert bool(np.isfinite(cost[row])) == ways(free, parts)
        devices = placer.devices(parts, row)
        assert (devices is not None) == bool(np.isfinite(cost[row]))
        for number, chosen in enumerate(devices or ()):
            made.take(row, chosen, parts[number])
        for number, chosen in enumerate(devices or ()):
            made.give(row, chosen, parts[number])


def test_scores_follow_the_cluster():
    made = cluster([[(10, 10)] * 3, [(10, 10)] * 3])
    parts = tuple(Request(gpus=1, compute_milli=600, gpu_memory_units=6) for _ in range(3))
    placer = PodPlacer(Placer(made, policy_named("pack"), host=False))
    assert np.isfinite(placer.scores(parts).cost).all()
    made.set_gpu_free(0, 1, 0, 0)
    assert np.isfinite(placer.scores(parts).cost).tolist() == [False, True]
    assert placer.devices(parts, 0) is None
    assert sorted(placer.devices(parts, 1)) == [(0,), (1,), (2,)]


def test_the_first_pod_of_a_type_is_compared_on_the_fullest_nodes_at_once_and_others_later():
    many = 1500
    made = cluster([[(10, 10)] * 2 for _ in range(many)])
    for row in range(many):
        made.set_gpu_free(row, 0, 1000 - row % 900, 10 - row % 7)
    exact = Placer(made, policy_named("fragmentation"))
    eased = Placer(made, policy_named("fragmentation"), renewed_in=10)
    for asked in (
        Request(gpus=1, compute_milli=300, gpu_memory_units=5),
        Request(gpus=2, compute_milli=300, gpu_memory_units=5),
    ):
        wanted, first = exact.scores(asked), eased.scores(asked)
        assert np.array_equal(np.isfinite(wanted.cost), np.isfinite(first.cost))
        guessed = np.flatnonzero(first.guessed)
        assert 0 < len(guessed) < np.isfinite(first.cost).sum()
        assert (
            first.cost[guessed].min() > first.cost[~first.guessed & np.isfinite(first.cost)].max()
        )
        # Whoever is sent to such a node all the same gets the right GPU there.
        row = int(guessed[0])
        assert eased.scores_of_row(asked, row).devices[row].tolist() == (
            wanted.devices[row].tolist()
        )
        for _ in range(12):
            eased.scores(asked)
        assert np.array_equal(exact.costs(asked), eased.costs(asked))
        assert not eased.scores(asked).guessed.any()


def test_a_lesson_may_reach_the_rows_one_after_the_other():
    made = cluster([[(10, 10)] * 3 for _ in range(40)])
    exact = Placer(made, policy_named("fragmentation"))
    eased = Placer(made, policy_named("fragmentation"), renewed_in=8)
    asked = Request(gpus=1, compute_milli=300, gpu_memory_units=3)
    other = Request(gpus=1, compute_milli=700, gpu_memory_units=7)
    for placer in (exact, eased):
        placer.decide(asked)
        for _ in range(60):
            placer.observe(other)
    for _ in range(5):
        # Rows that change are always up to date, those that did not are within a few calls.
        eased.costs(asked)
    assert np.array_equal(exact.costs(asked), eased.costs(asked))
