"""FGD in arrays decides as its published definition, written down pod by pod and GPU by GPU."""

import math
from collections import Counter

import numpy as np
import pytest

from bench.placement_fgd import Fgd
from scheduler_ext.placement import Cluster, Gpu, Node, Placer, Request

SHARES = (1, 130, 470, 500, 810, 1000)


def _workload(rng: np.random.Generator) -> list[Request]:
    requests: list[Request] = []
    for _ in range(120):
        gpus = int(rng.choice([0, 1, 1, 1, 1, 2, 4]))
        milli = 1000 if gpus > 2 else int(rng.choice(SHARES)) if gpus else 0
        models = [frozenset[str](), frozenset({"A"}), frozenset({"A", "B"})][int(rng.integers(3))]
        cpu = 1000 * int(rng.integers(5))
        requests.append(Request(cpu, 0, gpus, milli, milli, models if gpus else frozenset()))
    return requests


def _typical(workload: list[Request]) -> list[tuple[Request, int]]:
    seen = Counter(workload).most_common()
    typical: list[tuple[Request, int]] = []
    while sum(count for _, count in typical) < 0.95 * len(workload):
        typical.append(seen[len(typical)])
    return typical


def _fragments(
    typical: list[tuple[Request, int]], model: str | None, cpu: int, free: list[int]
) -> float:
    lost = 0
    for pod, count in typical:
        able = [share for share in free if pod.gpus and share >= pod.compute_milli]
        admitted = model is not None and (not pod.models or model in pod.models)
        runs = pod.gpus and admitted and cpu >= pod.cpu_milli and len(able) >= pod.gpus
        lost += count * (sum(free) - (sum(able) if runs else 0))
    return lost / sum(count for _, count in typical)


def _points(typical: list[tuple[Request, int]], cluster: Cluster, row: int, pod: Request) -> int:
    count = len(cluster.uuids[row])
    free = cluster.compute_free_milli[row, :count].tolist()
    cpu = int(cluster.cpu_free_milli[row])
    model = cluster.model_names[cluster.model[row, 0]] if count else None
    fits = [device for device, share in enumerate(free) if share >= pod.compute_milli]
    if pod.gpus and (len(fits) < pod.gpus or (pod.models and model not in pod.models)):
        return -1
    if cpu < pod.cpu_milli:
        return -1
    sets = [[device] for device in fits] if pod.gpus == 1 else [fits[: pod.gpus]]
    now = _fragments(typical, model, cpu, free)
    best = -1
    for devices in sets:
        left = [s - pod.compute_milli * (device in devices) for device, s in enumerate(free)]
        growth = _fragments(typical, model, cpu - pod.cpu_milli, left) - now
        best = max(best, math.floor(100 / (1 + math.exp(growth / 1000))))
    return best


@pytest.mark.parametrize("seed", range(4))
def test_fgd_scores_every_node_by_the_published_formula(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes = [
        Node(
            f"n{n}",
            8_000,
            10_000,
            tuple(
                Gpu(f"{n}/{device}", "ABC"[n % 3], 1000) for device in range((0, 1, 4)[n % 4 % 3])
            ),
        )
        for n in range(12)
    ]
    workload = _workload(rng)
    typical = _typical(workload)
    cluster = Cluster(nodes)
    placer = Placer(cluster, Fgd(workload))
    placed = 0
    for pod in workload:
        expected = [_points(typical, cluster, row, pod) for row in range(len(nodes))]
        costs = placer.costs(pod)
        assert [-1 if np.isinf(cost) else int(-cost) for cost in costs] == expected
        decision = placer.decide(pod)
        if decision:
            assert decision.row == expected.index(max(expected))
            cluster.take(decision.row, decision.devices, pod)
            placed += 1
    assert 10 < placed < len(workload)
