"""FGD, the best published policy for shares of GPUs: the reference that ours is compared with.

Fragments are counted in whole numbers, milli GPU times pods: no rounding decides between nodes, and
pods for one GPU, which are most, are looked up in a table instead of asked one by one.
"""

from collections import Counter
from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import NDArray

from scheduler_ext.placement import Cluster, Request
from scheduler_ext.placement.policy import Scores
from scheduler_ext.placement.request import WHOLE_GPU_MILLI

_TYPICAL_SHARE = 0.95


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
        self._pods = max(covered, 1)
        # Pods without a GPU can use none of the free share: they only count among `_pods`.
        asking = [(kind, count) for kind, count in typical if kind[2]]
        self._one = [(kind, count) for kind, count in asking if kind[2] == 1]
        several = [(kind, count) for kind, count in asking if kind[2] > 1]
        self._cpu_steps = np.array(sorted({kind[0] for kind, _ in asking}), dtype=np.int64)
        self._several_step = np.searchsorted(self._cpu_steps, [kind[0] for kind, _ in several])
        self._several_compute = np.array([kind[1] for kind, _ in several], dtype=np.int64)
        self._several_gpus = np.array([kind[2] for kind, _ in several], dtype=np.int64)
        self._several_count = np.array([count for _, count in several], dtype=np.int64)
        self._several_models = [kind[3] for kind, _ in several]
        self._known_models: list[str] | None = None

    def observe(self, request: Request) -> None:
        """It was told everything."""

    def epoch(self, cluster: Cluster) -> Hashable:
        if cluster.model_names != self._known_models:
            self._known_models = list(cluster.model_names)
            self._usable = self._usable_by_one()
            able = [[_admits(m, name) for m in self._several_models] for name in self._model_rows()]
            self._several_access = np.array(able, dtype=np.bool_)
        return len(cluster.model_names)

    def score(
        self,
        cluster: Cluster,
        rows: NDArray[np.int64],
        request: Request,
        eligible: NDArray[np.bool_],
    ) -> Scores:
        free = cluster.compute_free_milli[rows]
        # A list of nodes has one model in each line, and absent GPUs are -1.
        model = cluster.model[rows].max(axis=1)
        cpu = cluster.cpu_free_milli[rows]
        step = np.searchsorted(self._cpu_steps, cpu, side="right")
        step_then = np.searchsorted(self._cpu_steps, cpu - request.cpu_milli, side="right")
        usable = self._usable_free(free, model, step)
        if request.gpus == 1:
            usable_then = self._usable_without(free, model, step_then, request.compute_milli)
            # What a placement takes from the free share and what it takes from the usable one.
            growth = usable[:, None] - usable_then - self._pods * request.compute_milli
            points = np.where(eligible, _points(growth / self._pods), -1.0)
            best = points.argmax(axis=1)
            devices = np.zeros(eligible.shape, dtype=np.bool_)
            devices[np.arange(len(rows)), best] = True
            cost = -points[np.arange(len(rows)), best]
        else:
            devices = eligible & (eligible.cumsum(axis=1) <= request.gpus)
            left = free - devices * request.compute_milli
            growth = usable - self._usable_free(left, model, step_then)
            growth -= self._pods * request.gpus * request.compute_milli
            cost = -_points(growth / self._pods)
        return Scores(cost, devices, np.zeros(len(rows), dtype=np.int64))

    def _usable_free(
        self, free: NDArray[np.int64], model: NDArray[np.int64], step: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Rows: the free share that typical pods can use, times how many of them can."""
        usable: NDArray[np.int64] = self._usable[model[:, None], step[:, None], free].sum(axis=1)
        if len(self._several_count):
            able = free[:, :, None] >= self._several_compute
            usable += self._by_several(
                able.sum(axis=1), (able * free[:, :, None]).sum(axis=1), model, step
            )
        return usable

    def _usable_without(
        self,
        free: NDArray[np.int64],
        model: NDArray[np.int64],
        step: NDArray[np.int64],
        asked: int,
    ) -> NDArray[np.int64]:
        """Rows x devices: the same, after this device alone has given what is asked."""
        left = np.maximum(free - asked, 0)
        where = (model[:, None], step[:, None])
        before = self._usable[(*where, free)]
        usable: NDArray[np.int64] = before.sum(axis=1, keepdims=True) - before
        usable += self._usable[(*where, left)]
        if len(self._several_count):
            able = free[:, :, None] >= self._several_compute
            able_then = left[:, :, None] >= self._several_compute
            share, share_then = able * free[:, :, None], able_then * left[:, :, None]
            count = able.sum(axis=1, keepdims=True) - able + able_then
            summed = share.sum(axis=1, keepdims=True) - share + share_then
            usable += self._by_several(count, summed, model[:, None], step[:, None])
        return usable

    def _by_several(
        self,
        able: NDArray[np.int64],
        share: NDArray[np.int64],
        model: NDArray[np.int64],
        step: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """By pods for several GPUs: all that is on able GPUs, if these are enough for one pod."""
        runs = able >= self._several_gpus
        runs &= (step[..., None] > self._several_step) & self._several_access[model]
        usable: NDArray[np.int64] = (share * runs) @ self._several_count
        return usable

    def _usable_by_one(self) -> NDArray[np.int64]:
        """Models x CPU steps x free share: what pods for one GPU can use of a GPU so free."""
        names = self._model_rows()
        pods = np.zeros((len(names), len(self._cpu_steps) + 1, WHOLE_GPU_MILLI + 1), dtype=np.int64)
        for (cpu, compute, _, models), count in self._one:
            able = np.array([_admits(models, name) for name in names])
            pods[able, np.searchsorted(self._cpu_steps, cpu) + 1, compute] += count
        able_pods: NDArray[np.int64] = pods.cumsum(axis=1).cumsum(axis=2)
        return able_pods * np.arange(WHOLE_GPU_MILLI + 1)

    def _model_rows(self) -> list[str | None]:
        """One row more, for nodes without a GPU, found by their model id of -1."""
        return [*(self._known_models or ()), None]


def _admits(models: tuple[str, ...], name: str | None) -> bool:
    return name is not None and (not models or name in models)


def _points(growth: NDArray[np.float64]) -> NDArray[np.float64]:
    """Whole numbers: as published, much of what FGD is worth comes from its ties."""
    points: NDArray[np.float64] = np.floor(100 / (1 + np.exp(growth / 1000)))
    return points
