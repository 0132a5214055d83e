"""The simple policies that ours is compared with: random and best fit."""

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from scheduler_ext.placement import Cluster, Request
from scheduler_ext.placement.policy import Scores

# Best fit weighs CPU and GPU alike, each against the largest node there is.
_LARGEST_CPU_MILLI = 128_000
_LARGEST_GPU_MILLI = 8_000


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
