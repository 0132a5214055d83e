"""Pods of several containers: each one's GPUs on one node, found together for all rows at once."""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from scheduler_ext.placement.cluster import Cluster
from scheduler_ext.placement.decision import Placer, TypeScores
from scheduler_ext.placement.fit import eligible_devices, fitting
from scheduler_ext.placement.request import Request

__all__ = ["Devices", "PodPlacer", "PodScores", "search_devices"]

Devices = tuple[tuple[int, ...], ...]

_TYPES_KEPT = 64
# The search by trial stops here on a node; so many tries are needed only by contrived pods.
_MOST_TRIES = 5_000


class PodScores:
    """One entry per row: what the pod costs there, infinite where it does not fit."""

    def __init__(self, cost: NDArray[np.float64], weakest: NDArray[np.int64]) -> None:
        self.cost = cost
        self.weakest = weakest

    def order(self) -> NDArray[np.float64]:
        """Costs by which rows can be compared: better connected GPUs come before cheaper ones."""
        finite = np.isfinite(self.cost)
        if not finite.any():
            return self.cost
        weakest = np.where(finite, self.weakest, -1)
        if weakest.max() == weakest[finite].min():
            return self.cost
        span = np.ptp(self.cost[finite]) + 1.0
        ordered: NDArray[np.float64] = self.cost + span * (weakest.max() - weakest)
        return ordered


class PodPlacer:
    """Like `Placer`, for pods whose containers ask for GPUs separately.

    The parts are placed one after the other, the first part's choice seen by the second, on all
    rows at once. Where that fails although the sums would fit, all ways are tried.
    """

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self._kept: OrderedDict[tuple[Request, ...], tuple[TypeScores, list[Devices | None]]] = (
            OrderedDict()
        )

    def scores(self, parts: tuple[Request, ...]) -> PodScores:
        single = self._placer.scores(parts[0]) if len(parts) == 1 else self._several(parts)[0]
        rows = self._placer.cluster.rows
        return PodScores(single.cost[:rows], single.weakest[:rows])

    def devices(self, parts: tuple[Request, ...], row: int) -> Devices | None:
        """Each part's GPUs on that row, or None when the pod does not fit there."""
        if len(parts) == 1:
            single = self._placer.scores_of_row(parts[0], row)
            if not np.isfinite(single.cost[row]):
                return None
            return (tuple(int(device) for device in np.flatnonzero(single.devices[row])),)
        return self._several(parts)[1][row]

    def _several(self, parts: tuple[Request, ...]) -> tuple[TypeScores, list[Devices | None]]:
        cluster = self._placer.cluster
        epoch = self._placer.policy.epoch(cluster)
        kept = self._kept.pop(parts, None)
        if kept is None or kept[0].epoch != epoch or len(kept[0].cost) != len(cluster.present):
            kept = (TypeScores(cluster.model.shape, epoch), [None] * len(cluster.present))
        self._kept[parts] = kept
        if len(self._kept) > _TYPES_KEPT:
            self._kept.popitem(last=False)
        stale = np.flatnonzero(kept[0].version != cluster.version)
        if len(stale):
            self._rescore(kept, stale, parts)
        return kept

    def _rescore(
        self,
        kept: tuple[TypeScores, list[Devices | None]],
        stale: NDArray[np.int64],
        parts: tuple[Request, ...],
    ) -> None:
        scores, chosen = kept
        cluster = self._placer.cluster
        scores.version[stale] = cluster.version[stale]
        scores.cost[stale] = np.inf
        for row in stale:
            chosen[row] = None
        possible = stale[_could_fit(cluster, stale, parts)]
        if not len(possible):
            return
        cost, weakest, devices = self._one_after_the_other(possible, parts)
        scores.cost[possible] = cost
        scores.weakest[possible] = weakest
        for number, row in enumerate(possible):
            chosen[row] = devices[number]
            if devices[number] is None:
                found = search_devices(cluster, int(row), parts)
                if found is not None:
                    chosen[row] = found
                    # Dearer than any row on which the parts went where the policy wanted them.
                    scores.cost[row] = 1000.0 * sum(part.gpus for part in parts)

    def _one_after_the_other(
        self, rows: NDArray[np.int64], parts: tuple[Request, ...]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], list[Devices | None]]:
        trial = self._placer.cluster.scratch(rows)
        cost = np.zeros(len(rows))
        weakest = np.full(len(rows), 99, dtype=np.int64)
        chosen: list[Devices | None] = [()] * len(rows)
        for part in parts:
            left = np.flatnonzero(np.isfinite(cost))
            eligible = eligible_devices(trial, left, part)
            fits = fitting(trial, left, part, eligible, host=False)
            for row in left[~fits]:
                chosen[row] = None
            cost[left[~fits]] = np.inf
            left, eligible = left[fits], eligible[fits]
            if not len(left):
                break
            fresh = self._placer.policy.score(trial, left, part, eligible)
            cost[left] += fresh.cost
            weakest[left] = np.minimum(weakest[left], fresh.weakest_link)
            _take(trial, left, fresh.devices, part)
            for number, row in enumerate(left):
                before = chosen[row]
                assert before is not None
                taken = tuple(int(device) for device in np.flatnonzero(fresh.devices[number]))
                chosen[row] = (*before, taken)
        return cost, weakest, chosen


def _take(
    trial: Cluster, rows: NDArray[np.int64], devices: NDArray[np.bool_], part: Request
) -> None:
    memory = trial.gpu_memory[rows] if part.gpu_memory_units is None else part.gpu_memory_units
    trial.compute_free_milli[rows] -= np.where(devices, part.compute_milli, 0)
    trial.gpu_memory_free[rows] -= np.where(devices, memory, 0)
    trial.cpu_free_milli[rows] -= part.cpu_milli
    trial.memory_free_mib[rows] -= part.memory_mib


def _could_fit(
    cluster: Cluster, rows: NDArray[np.int64], parts: tuple[Request, ...]
) -> NDArray[np.bool_]:
    """Each part alone, and all parts in sum: cheap to ask, and most full nodes end here."""
    could = np.ones(len(rows), dtype=np.bool_)
    compute = np.zeros(len(rows), dtype=np.int64)
    memory = np.zeros(len(rows), dtype=np.int64)
    for part in parts:
        could &= fitting(cluster, rows, part, host=False)
        compute += part.gpus * part.compute_milli
        memory += part.gpus * (part.gpu_memory_units or 0)
    could &= cluster.compute_free_milli[rows].sum(axis=1) >= compute
    could &= cluster.gpu_memory_free[rows].sum(axis=1) >= memory
    return could


def search_devices(cluster: Cluster, row: int, parts: tuple[Request, ...]) -> Devices | None:
    """All ways to put the parts on one node, the fullest GPUs first."""
    trial = cluster.scratch(np.array([row]))
    tries = iter(range(_MOST_TRIES))
    return next(_ways(trial, parts, tries), None)


def _ways(trial: Cluster, parts: tuple[Request, ...], tries: Iterator[int]) -> Iterator[Devices]:
    if not parts:
        yield ()
        return
    part, rest = parts[0], parts[1:]
    here = np.zeros(1, dtype=np.int64)
    eligible = np.flatnonzero(eligible_devices(trial, here, part)[0])
    fullest = sorted(eligible.tolist(), key=lambda device: int(trial.gpu_memory_free[0, device]))
    for devices in combinations(fullest, part.gpus):
        if next(tries, None) is None:
            return
        mask = np.zeros(trial.model[here].shape, dtype=np.bool_)
        mask[0, list(devices)] = True
        after = trial.scratch(here)
        _take(after, here, mask, part)
        for others in _ways(after, rest, tries):
            yield (devices, *others)
