"""What the free part of a node is worth to the workload that was learned, in milli GPU."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scheduler_ext.placement.cluster import Cluster
from scheduler_ext.placement.devices import memory_milli
from scheduler_ext.placement.request import WHOLE_GPU_MILLI, Request
from scheduler_ext.placement.workload import Lesson

# One setting for all clusters; docs/placement.md says how flat the results are around it.
SCARCITY_WEIGHT = 0.75
STRANDED_SCALE_MILLI = 4000.0
BLOCK_WEIGHT = 0.5


@dataclass(frozen=True, slots=True)
class Nodes:
    """What is free on some rows: B nodes with D devices."""

    compute: NDArray[np.int64]  # B x D
    memory: NDArray[np.int64]  # B x D
    total: NDArray[np.int64]  # B x D, the GPU's memory, 0 where there is none
    model: NDArray[np.int64]  # B x D
    cpu: NDArray[np.int64]  # B
    host_memory: NDArray[np.int64]  # B

    @classmethod
    def of(cls, cluster: Cluster, rows: NDArray[np.int64]) -> "Nodes":
        return cls(
            cluster.compute_free_milli[rows],
            cluster.gpu_memory_free[rows],
            cluster.gpu_memory[rows],
            cluster.model[rows],
            cluster.cpu_free_milli[rows],
            cluster.memory_free_mib[rows],
        )

    def after(self, request: Request, devices: NDArray[np.bool_]) -> "Nodes":
        """With one share of the request taken from each of these devices."""
        asked = request.gpu_memory_units
        memory = self.total if asked is None else np.full_like(self.total, asked)
        return replace(
            self,
            compute=np.where(devices, self.compute - request.compute_milli, self.compute),
            memory=np.where(devices, self.memory - memory, self.memory),
            cpu=self.cpu - request.cpu_milli,
            host_memory=self.host_memory - request.memory_mib,
        )

    def shares(self) -> NDArray[np.float32]:
        share = (self.compute + memory_milli(self.memory, self.total)) / 2
        return share.astype(np.float32)

    def wholly_free(self) -> NDArray[np.bool_]:
        free: NDArray[np.bool_] = (
            (self.compute == WHOLE_GPU_MILLI) & (self.memory == self.total) & (self.total > 0)
        )
        return free


def hole_worth(lesson: Lesson, nodes: Nodes) -> NDArray[np.float64]:
    """B x D: the value of each hole, more where pinned pods compete for the model."""
    memory = memory_milli(nodes.memory, nodes.total)
    worth = np.zeros(nodes.compute.shape)
    for total, holes in lesson.holes.items():
        here = nodes.total == total
        if here.all():
            worth = holes.of(nodes.compute, memory)
        elif here.any():
            worth[here] = holes.of(nodes.compute[here], memory[here])
    result: NDArray[np.float64] = worth * (1 + SCARCITY_WEIGHT * lesson.scarcity[nodes.model])
    return result


def lost_by_each(
    lesson: Lesson, block_weights: dict[int, float], before: Nodes, after: Nodes
) -> NDArray[np.float64]:
    """B x D: what is lost when only this device becomes what it is in `after`."""
    was, can = _able(lesson, before), _able(lesson, after)
    share, left = before.shares(), after.shares()
    usable = np.einsum("bdk,bd->bk", was, share)
    count = was.sum(axis=1)
    weight = _weights(lesson, before)
    now = np.einsum(
        "bk,bk,bk->b", weight * _cpu_suffices(lesson, before), usable, count >= lesson.gpus
    )
    # Only one device differs, so its part is exchanged instead of summing all devices anew.
    usable_then = usable[:, None, :] + can * left[:, :, None] - was * share[:, :, None]
    usable_then *= (count[:, None, :] + can.astype(np.int8) - was) >= lesson.gpus
    then = np.einsum("bdk,bk->bd", usable_then, weight * _cpu_suffices(lesson, after))
    free = share.sum(axis=1)
    free_then = free[:, None] - (share - left)
    whole = before.wholly_free()
    whole_then = whole.sum(axis=1)[:, None] - (whole & ~after.wholly_free())
    lost: NDArray[np.float64] = (
        ((free_then - then) - (free - now)[:, None])
        + _stranded(free_then, _supported(lesson, after)[:, None])
        - _stranded(free, _supported(lesson, before))[:, None]
        + _blocks(lesson, block_weights, whole.sum(axis=1))[:, None]
        - _blocks(lesson, block_weights, whole_then)
    )
    return lost


def lost_by_all(
    lesson: Lesson, block_weights: dict[int, float], before: Nodes, after: Nodes
) -> NDArray[np.float64]:
    """B: what is lost when the node becomes `after`, all devices together."""
    return _loss(lesson, block_weights, after) - _loss(lesson, block_weights, before)


def _loss(lesson: Lesson, block_weights: dict[int, float], nodes: Nodes) -> NDArray[np.float64]:
    able, share = _able(lesson, nodes), nodes.shares()
    enough = (able.sum(axis=1) >= lesson.gpus) & _cpu_suffices(lesson, nodes)
    usable = np.einsum("bdk,bd->bk", able, share)
    use = np.einsum("bk,bk,bk->b", _weights(lesson, nodes), usable, enough)
    free = share.sum(axis=1)
    blocks = _blocks(lesson, block_weights, nodes.wholly_free().sum(axis=1))
    stranded = _stranded(free, _supported(lesson, nodes))
    loss: NDArray[np.float64] = (free - use) + stranded - blocks
    return loss


def _able(lesson: Lesson, nodes: Nodes) -> NDArray[np.bool_]:
    """B x D x K: this device could carry one share of that class."""
    able: NDArray[np.bool_] = nodes.compute[:, :, None] >= lesson.compute_milli
    able &= nodes.memory[:, :, None] >= lesson.gpu_memory_units
    able &= (nodes.memory == nodes.total)[:, :, None] | ~lesson.whole
    able &= lesson.access[nodes.model]
    return able


def _weights(lesson: Lesson, nodes: Nodes) -> NDArray[np.float32]:
    """B x K: among the classes that may run on the node at all; others do not miss it."""
    weight = lesson.weight * lesson.access[nodes.model].any(axis=1)
    scaled: NDArray[np.float32] = weight / np.maximum(weight.sum(axis=1, keepdims=True), 1e-9)
    return scaled.astype(np.float32)


def _cpu_suffices(lesson: Lesson, nodes: Nodes) -> NDArray[np.bool_]:
    suffices: NDArray[np.bool_] = nodes.cpu[:, None] >= lesson.cpu_milli
    return suffices


def _supported(lesson: Lesson, nodes: Nodes) -> NDArray[np.float64]:
    """B: the GPU share that the node's CPU and host memory suffice for, at the usual ratio."""
    cpu = nodes.cpu / max(lesson.cpu_per_share, 1e-9)
    memory = nodes.host_memory / max(lesson.memory_per_share, 1e-9)
    smaller: NDArray[np.float64] = np.minimum(cpu, memory)
    return smaller


def _stranded(free: NDArray[np.floating], supported: NDArray[np.float64]) -> NDArray[np.float64]:
    """Squared: shortage spread thinly over many nodes is better than a few nodes without use."""
    stranded = np.maximum(free - supported, 0.0)
    cost: NDArray[np.float64] = stranded * stranded / (2 * STRANDED_SCALE_MILLI)
    return cost


def _blocks(
    lesson: Lesson, block_weights: dict[int, float], wholly_free: NDArray[np.int64]
) -> NDArray[np.float64]:
    worth = np.zeros(wholly_free.shape)
    for gpus, demand in lesson.block_demand.items():
        weight = BLOCK_WEIGHT * block_weights.get(gpus, 1.0) * demand * WHOLE_GPU_MILLI * gpus
        worth += weight * (wholly_free // gpus)
    return worth
