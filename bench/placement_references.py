"""The published policies that ours is compared with: random, best fit, and FGD."""

from collections import Counter
from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import NDArray

from scheduler_ext.placement import Cluster, Request
from scheduler_ext.placement.policy import Scores

# Best fit weighs CPU and GPU alike, each against the largest node there is.
_LARGEST_CPU_MILLI = 128_000
_LARGEST_GPU_MILLI = 8_000
_TYPICAL_SHARE = 0.95
_BATCH_ROWS = 256


def _first(eligible: NDArray[np.bool_], count: int) -> NDArray[np.bool_]:
    first: NDArray[np.bool_] = eligible & (eligible.cumsum(axis=1) <= count)
    return first


def _only(devices: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    chosen = np.zeros(shape, dtype=np.bool_)
    chosen[np.arange(len(devices)), devices] = True
    return chosen


def _scores(cost: NDArray[np.float64], devices: NDArray[np.bool_]) -> Scores:
    return Scores(cost, devices, np.zeros(len(cost), dtype=np.int64))


class Random:
    """Any node that fits, any GPU of it."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._asked = 0

    def observe(self, request: Request) -> None:
        """Chance learns nothing."""

    def epoch(self, cluster: Cluster) -> Hashable:  # noqa: ARG002 (one interface for all)
        self._asked += 1
        return self._asked

    def score(
        self,
        cluster: Cluster,  # noqa: ARG002 (one interface for all)
        rows: NDArray[np.int64],
        request: Request,
        eligible: NDArray[np.bool_],
    ) -> Scores:
        luck = np.where(eligible, self._rng.random(eligible.shape), np.inf)
        rank = luck.argsort(axis=1).argsort(axis=1)
        return _scores(self._rng.random(len(rows)), eligible & (rank < request.gpus))


class BestFit:
    """The node with the least CPU and GPU left, in whole percent; the tightest GPU of it."""

    def observe(self, request: Request) -> None:
        """Best fit looks at nodes only."""

    def epoch(self, cluster: Cluster) -> Hashable:  # noqa: ARG002 (one interface for all)
        return None

    def score(
        self,
        cluster: Cluster,
        rows: NDArray[np.int64],
        request: Request,
        eligible: NDArray[np.bool_],
    ) -> Scores:
        free = cluster.compute_free_milli[rows]
        cpu = (cluster.cpu_free_milli[rows] - request.cpu_milli) / _LARGEST_CPU_MILLI
        gpu = (free.sum(axis=1) - request.gpus * request.compute_milli) / _LARGEST_GPU_MILLI
        points = np.floor(100 * (1 - (cpu + gpu) / 2))
        if request.gpus == 1:
            tightest = np.where(eligible, free, np.iinfo(np.int64).max).argmin(axis=1)
            return _scores(-points, _only(tightest, eligible.shape))
        return _scores(-points, _first(eligible, request.gpus))


class Fgd:
    """Fragmentation gradient descent (USENIX ATC'23), told the whole workload beforehand."""

    def __init__(self, workload: Iterable[Request]) -> None:
        # As published, a class is CPU, share, count and models; host memory is left out.
        seen = Counter(
            (r.cpu_milli, r.compute_milli, r.gpus, tuple(sorted(r.models))) for r in workload
        )
        typical: list[tuple[tuple[int, int, int, tuple[str, ...]], int]] = []
        covered = 0
        for kind, count in seen.most_common():
            if covered >= _TYPICAL_SHARE * seen.total():
                break
            typical.append((kind, count))
            covered += count
        self._weight = np.array([count / max(covered, 1) for _, count in typical])
        self._cpu = np.array([kind[0] for kind, _ in typical])
        self._compute = np.array([kind[1] for kind, _ in typical])
        self._gpus = np.array([kind[2] for kind, _ in typical])
        self._models = [kind[3] for kind, _ in typical]
        self._access = np.zeros((0, len(typical)), dtype=np.bool_)

    def observe(self, request: Request) -> None:
        """It was told everything."""

    def epoch(self, cluster: Cluster) -> Hashable:
        names = [*cluster.model_names, None]
        self._access = np.array(
            [[name is not None and (not m or name in m) for m in self._models] for name in names]
        )
        return len(names)

    def score(
        self,
        cluster: Cluster,
        rows: NDArray[np.int64],
        request: Request,
        eligible: NDArray[np.bool_],
    ) -> Scores:
        parts = [
            self._score_batch(cluster, rows[batch], request, eligible[batch])
            for start in range(0, len(rows), _BATCH_ROWS)
            for batch in [slice(start, start + _BATCH_ROWS)]
        ]
        return _scores(
            np.concatenate([cost for cost, _ in parts]), np.concatenate([d for _, d in parts])
        )

    def _score_batch(
        self,
        cluster: Cluster,
        rows: NDArray[np.int64],
        request: Request,
        eligible: NDArray[np.bool_],
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        free = cluster.compute_free_milli[rows]
        cpu = cluster.cpu_free_milli[rows]
        access: NDArray[np.bool_] = np.any(self._access[cluster.model[rows]], axis=1)
        now = self._fragments(free, cpu, access)
        if request.gpus != 1 or request.compute_milli == 1000:
            devices = _first(eligible, request.gpus)
            left = free - devices * request.compute_milli
            growth = self._fragments(left, cpu - request.cpu_milli, access) - now
            return -_points(growth), devices
        points = np.full(eligible.shape, -1.0)
        for device in range(eligible.shape[1]):
            left = free.copy()
            left[:, device] -= request.compute_milli
            growth = self._fragments(left, cpu - request.cpu_milli, access) - now
            points[:, device] = np.where(eligible[:, device], _points(growth), -1.0)
        best = points.argmax(axis=1)
        return -points[np.arange(len(rows)), best], _only(best, eligible.shape)

    def _fragments(
        self, free: NDArray[np.int64], cpu: NDArray[np.int64], access: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        able = free[:, :, None] >= np.maximum(self._compute, 1)
        runs = (able.sum(axis=1) >= self._gpus) & (cpu[:, None] >= self._cpu)
        runs &= access & (self._compute > 0)
        usable = np.einsum("bdk,bd->bk", able, free.astype(np.float64))
        fragments: NDArray[np.float64] = free.sum(axis=1) - (usable * runs) @ self._weight
        return fragments


def _points(growth: NDArray[np.float64]) -> NDArray[np.float64]:
    """Whole numbers: as published, much of what FGD is worth comes from its ties."""
    points: NDArray[np.float64] = np.floor(100 / (1 + np.exp(growth / 1000)))
    return points
