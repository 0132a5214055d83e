"""Learns from the pods seen so far what the free parts of a cluster are good for."""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scheduler_ext.placement.cluster import Cluster
from scheduler_ext.placement.fit import allowed_models
from scheduler_ext.placement.holes import FULL_MILLI, HoleValues, learned_hole_values
from scheduler_ext.placement.request import Request

# The rest are one-off requests: counting them in costs time and changes no decision.
_TYPICAL_SHARE = 0.95
_MOST_CLASSES = 128
_MOST_SIZES = 64
_FIRST_LESSON_PODS = 20
_PODS_BETWEEN_LESSONS = (50, 5_000)
_GROWTH_BETWEEN_LESSONS = 0.25
# Past this many pods all counts are halved, so that a workload that changes is followed.
_MEMORY_PODS = 100_000


@dataclass(frozen=True, slots=True)
class Lesson:
    """What the workload was when it was last looked at. K typical classes, M GPU models."""

    weight: NDArray[np.float32]  # K, sums to 1
    cpu_milli: NDArray[np.int64]  # K
    gpus: NDArray[np.int64]  # K
    compute_milli: NDArray[np.int64]  # K
    gpu_memory_units: NDArray[np.int64]  # K, 0 for whole GPUs
    whole: NDArray[np.bool_]  # K, asks for all memory of its GPUs
    access: NDArray[np.bool_]  # (M + 1) x K, the last row for GPUs that are not there
    cpu_per_share: float  # CPU milli asked for with each milli of GPU
    memory_per_share: float  # host MiB asked for with each milli of GPU
    block_demand: dict[int, float]  # GPUs of one pod -> part of the GPU demand
    scarcity: NDArray[np.float64]  # M + 1, 0 for the least wanted model, below 1
    holes: dict[int, HoleValues]  # by the GPU's memory units


class Workload:
    """Counts requests; a lesson is drawn at growing intervals, because it makes scores stale."""

    def __init__(self) -> None:
        self._counts: Counter[Request] = Counter()
        self._pods = 0
        self._since_lesson = 0
        self._next_lesson = _FIRST_LESSON_PODS

    def observe(self, request: Request) -> None:
        if request.pins_devices:
            # Which device somebody named says nothing about what others will ask for.
            request = replace(request, uuids=frozenset(), excluded_uuids=frozenset())
        if self._pods >= _MEMORY_PODS:
            self._counts = Counter({seen: n // 2 for seen, n in self._counts.items() if n > 1})
            self._pods = sum(self._counts.values())
        self._counts[request] += 1
        self._pods += 1
        self._since_lesson += 1

    @property
    def lesson_is_due(self) -> bool:
        return self._since_lesson >= self._next_lesson

    @property
    def can_teach(self) -> bool:
        return any(request.gpus for request in self._counts)

    def learn(self, cluster: Cluster) -> Lesson:
        low, high = _PODS_BETWEEN_LESSONS
        self._since_lesson = 0
        self._next_lesson = int(min(max(_GROWTH_BETWEEN_LESSONS * self._pods, low), high))
        totals, devices = np.unique(cluster.gpu_memory[cluster.model >= 0], return_counts=True)
        typical_memory = int(np.average(totals, weights=devices)) if len(totals) else 1
        classes = self._typical()
        shares = {seen: _share(seen, typical_memory) for seen in self._counts}
        demand = sum(shares[seen] * n for seen, n in self._counts.items())
        blocks: dict[int, float] = {}
        for seen, n in self._counts.items():
            if seen.gpus > 1:
                blocks[seen.gpus] = blocks.get(seen.gpus, 0.0) + n * shares[seen] / demand
        weight = np.array([n for _, n in classes], dtype=np.float32)
        memory = [request.gpu_memory_units for request, _ in classes]
        return Lesson(
            weight=weight / weight.sum(),
            cpu_milli=np.array([request.cpu_milli for request, _ in classes]),
            gpus=np.array([request.gpus for request, _ in classes]),
            compute_milli=np.array([request.compute_milli for request, _ in classes]),
            gpu_memory_units=np.array([units or 0 for units in memory]),
            whole=np.array([units is None for units in memory]),
            access=np.stack([allowed_models(cluster, request) for request, _ in classes], axis=1),
            cpu_per_share=sum(r.cpu_milli * n for r, n in self._counts.items()) / demand,
            memory_per_share=sum(r.memory_mib * n for r, n in self._counts.items()) / demand,
            block_demand=blocks,
            scarcity=self._scarcity(cluster, shares),
            holes={int(total): self._hole_values(int(total)) for total in totals},
        )

    def _typical(self) -> list[tuple[Request, int]]:
        """GPU requests without their host memory, most frequent first, until most are covered."""
        merged: Counter[Request] = Counter()
        for seen, n in self._counts.items():
            if seen.gpus:
                merged[replace(seen, memory_mib=0)] += n
        enough = _TYPICAL_SHARE * sum(merged.values())
        classes: list[tuple[Request, int]] = []
        covered = 0
        for request, n in merged.most_common(_MOST_CLASSES):
            if covered >= enough:
                break
            classes.append((request, n))
            covered += n
        return classes

    def _scarcity(self, cluster: Cluster, shares: dict[Request, float]) -> NDArray[np.float64]:
        """How much more is asked of a model than of the least wanted one, with all demand spread
        evenly over the GPUs it may use: pods that can only use one model press on it alone."""
        models = len(cluster.model_names)
        capacity = np.bincount(cluster.model[cluster.model >= 0], minlength=models).astype(float)
        by_choice: dict[bytes, tuple[NDArray[np.bool_], float]] = {}
        for seen, n in self._counts.items():
            if seen.gpus:
                allowed = allowed_models(cluster, seen)[:-1]
                before = by_choice.get(allowed.tobytes(), (allowed, 0.0))[1]
                by_choice[allowed.tobytes()] = (allowed, before + n * shares[seen])
        pressure = np.zeros(models)
        for allowed, demand in by_choice.values():
            room = capacity[allowed].sum()
            if room:
                pressure[allowed] += demand / room
        there = capacity > 0
        least = pressure[there].min() if there.any() else 0.0
        scarcity = np.zeros(models + 1)
        pressed = there & (pressure > 0)
        scarcity[:-1][pressed] = 1 - least / pressure[pressed]
        return scarcity

    def _hole_values(self, gpu_memory_units: int) -> HoleValues:
        sizes: Counter[tuple[int, int]] = Counter()
        for seen, n in self._counts.items():
            units = gpu_memory_units if seen.gpu_memory_units is None else seen.gpu_memory_units
            if seen.gpus and units <= gpu_memory_units:
                memory = -(-units * FULL_MILLI // gpu_memory_units)
                sizes[max(seen.compute_milli, 1), max(memory, 1)] += n * seen.gpus
        # Whole GPUs are always a size: a hole never becomes worth more than a free GPU.
        sizes[FULL_MILLI, FULL_MILLI] += 1
        most = sizes.most_common(_MOST_SIZES - 1)
        if (FULL_MILLI, FULL_MILLI) not in dict(most):
            most.append(((FULL_MILLI, FULL_MILLI), 1))
        return learned_hole_values(
            np.array([size for size, _ in most]), np.array([float(n) for _, n in most])
        )


def _share(request: Request, typical_memory: int) -> float:
    """Milli GPU a request asks for in all, compute and memory weighed equally."""
    units = typical_memory if request.gpu_memory_units is None else request.gpu_memory_units
    memory = min(units * FULL_MILLI / typical_memory, FULL_MILLI)
    return request.gpus * (request.compute_milli + memory) / 2
