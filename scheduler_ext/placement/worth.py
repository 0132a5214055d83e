"""What the free part of a node is worth to the workload that was learned, in milli GPU."""

from dataclasses import dataclass

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
GATHER_WEIGHT = 2.0


@dataclass(frozen=True, slots=True)
class Nodes:
    """What is free on some rows: B nodes with D devices."""

    compute: NDArray[np.int64]  # B x D
    memory: NDArray[np.int64]  # B x D
    total: NDArray[np.int64]  # B x D, the GPU's memory, 0 where there is none
    model: NDArray[np.int64]  # B x D
    cpu: NDArray[np.int64]  # B
    host_memory: NDArray[np.int64]  # B
    memory_milli: NDArray[np.float64]  # B x D, free memory as thousandths of the GPU's own

    @classmethod
    def of(cls, cluster: Cluster, rows: NDArray[np.int64]) -> "Nodes":
        free, total = cluster.gpu_memory_free.take(rows, 0), cluster.gpu_memory.take(rows, 0)
        return cls(
            cluster.compute_free_milli.take(rows, 0),
            free,
            total,
            cluster.model.take(rows, 0),
            cluster.cpu_free_milli.take(rows),
            cluster.memory_free_mib.take(rows),
            memory_milli(free, total),
        )

    def after(self, request: Request, devices: NDArray[np.bool_]) -> "Nodes":
        """With one share of the request taken from each of these devices."""
        asked = self.total if request.gpu_memory_units is None else request.gpu_memory_units
        memory = np.where(devices, self.memory - asked, self.memory)
        return Nodes(
            np.where(devices, self.compute - request.compute_milli, self.compute),
            memory,
            self.total,
            self.model,
            self.cpu - request.cpu_milli,
            self.host_memory - request.memory_mib,
            memory_milli(memory, self.total),
        )

    def shares(self) -> NDArray[np.float32]:
        share = (self.compute + self.memory_milli) / 2
        return share.astype(np.float32)

    def wholly_free(self) -> NDArray[np.bool_]:
        free: NDArray[np.bool_] = (
            (self.compute == WHOLE_GPU_MILLI) & (self.memory == self.total) & (self.total > 0)
        )
        return free


def hole_worth(lesson: Lesson, nodes: Nodes) -> NDArray[np.float64]:
    """B x D: the value of each hole, more where pinned pods compete for the model."""
    memory = nodes.memory_milli
    worth = np.zeros(nodes.compute.shape)
    for total, holes in lesson.holes.items():
        here = nodes.total == total
        if here.all():
            worth = holes.of(nodes.compute, memory)
        elif here.any():
            worth[here] = holes.of(nodes.compute[here], memory[here])
    result: NDArray[np.float64] = worth * (1 + SCARCITY_WEIGHT * lesson.scarcity.take(nodes.model))
    return result


def lost_by_each(
    lesson: Lesson,
    block_weights: dict[int, float],
    before: Nodes,
    after: Nodes,
    eligible: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """B x D: what is lost when only this device becomes what it is in `after`.

    Left at 0 for devices that are not eligible.
    """
    width = eligible.shape[1]
    twin = _first_twin(before, eligible)
    was = _able(lesson, before)
    share, left = before.shares(), after.shares()
    usable = np.einsum("bdk,bd->bk", was, share)
    count = was.sum(axis=1, dtype=np.int16)
    weight = _weights(lesson, before)
    enough = (count >= lesson.gpus) & _cpu_suffices(lesson, before)
    now = np.einsum("bk,bk,bk->b", weight, usable, enough)
    # From here on one line per candidate. Only its device differs from the node as it is, so that
    # device's part is exchanged instead of summing all devices anew.
    device = np.flatnonzero(eligible & (twin == np.arange(width)))
    node = device // width
    could, can = was.reshape(-1, was.shape[2]).take(device, 0), _able(lesson, after, device)
    share_then, share_now = left.take(device), share.take(device)
    nothing = np.float32(0)
    usable_then = (
        usable.take(node, 0)
        + np.where(can, share_then[:, None], nothing)
        - np.where(could, share_now[:, None], nothing)
    )
    enough_then = (count.take(node, 0) + can - could.astype(np.int16)) >= lesson.gpus
    enough_then &= _cpu_suffices(lesson, after).take(node, 0)
    then = np.einsum("xk,xk,xk->x", weight.take(node, 0), usable_then, enough_then)
    free = share.sum(axis=1)
    free_then = free.take(node) - (share_now - share_then)
    whole = before.wholly_free()
    blocks, there = whole.sum(axis=1), (before.total > 0).sum(axis=1)
    blocks_then = blocks.take(node) - (whole & ~after.wholly_free()).take(device)
    lost = np.zeros(eligible.shape)
    lost.ravel()[device] = (
        ((free_then - then) - (free - now).take(node))
        + _stranded(free_then, _supported(lesson, after).take(node))
        - _stranded(free, _supported(lesson, before)).take(node)
        + _blocks(lesson, block_weights, blocks, there).take(node)
        - _blocks(lesson, block_weights, blocks_then, there.take(node))
    )
    of_twin = lost.take(twin + width * np.arange(len(twin))[:, None])
    return np.where(eligible, of_twin, 0.0)


def _first_twin(nodes: Nodes, eligible: NDArray[np.bool_]) -> NDArray[np.int64]:
    """B x D: the node's first eligible device in the same state; they all cost the same."""
    # Compute has at most 1000 milli, and there are not a thousand models.
    kind = nodes.model + 1024 * nodes.total
    state = nodes.compute + 1024 * nodes.memory
    same: NDArray[np.bool_] = state[:, :, None] == state[:, None, :]
    same &= kind[:, :, None] == kind[:, None, :]
    same &= eligible[:, None, :]
    first: NDArray[np.int64] = same.argmax(axis=2)
    return first


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
    there = (nodes.total > 0).sum(axis=1)
    blocks = _blocks(lesson, block_weights, nodes.wholly_free().sum(axis=1), there)
    stranded = _stranded(free, _supported(lesson, nodes))
    loss: NDArray[np.float64] = (free - use) + stranded - blocks
    return loss


def _able(
    lesson: Lesson, nodes: Nodes, where: NDArray[np.int64] | None = None
) -> NDArray[np.bool_]:
    """... x K: each of all B x D devices, or those at these places, could carry one share of that
    class."""

    def pick(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        return numbers if where is None else numbers.take(where)

    memory = pick(nodes.memory)
    able: NDArray[np.bool_] = pick(nodes.compute)[..., None] >= lesson.compute_milli
    able &= memory[..., None] >= lesson.gpu_memory_units
    if lesson.whole.any():
        able &= (memory == pick(nodes.total))[..., None] | ~lesson.whole
    able &= lesson.access.take(pick(nodes.model), 0)
    return able


def _weights(lesson: Lesson, nodes: Nodes) -> NDArray[np.float32]:
    """B x K: among the classes that may run on the node at all; others do not miss it."""
    first = nodes.model[:, 0]
    alike = bool(((nodes.model == first[:, None]) | (nodes.model < 0)).all())
    # Nodes of one model, as most are, need not be looked at one by one.
    access = lesson.access if alike else lesson.access[nodes.model].any(axis=1)
    weight = lesson.weight * access
    scaled = weight / np.maximum(weight.sum(axis=1, keepdims=True), 1e-9)
    result: NDArray[np.float32] = (scaled[first] if alike else scaled).astype(np.float32)
    return result


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
    lesson: Lesson,
    block_weights: dict[int, float],
    wholly_free: NDArray[np.int64],
    gpus_of_node: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Whole blocks, and more for each free GPU the nearer the node is to its next block.

    Without the second part free GPUs lie scattered, one or two on many nodes, and no node ever
    becomes free enough for a pod that needs several, however much is free in all.
    """
    worth = np.zeros(wholly_free.shape)
    for gpus, demand in lesson.block_demand.items():
        weight = block_weights.get(gpus, 1.0) * demand * WHOLE_GPU_MILLI * gpus
        whole = wholly_free // gpus
        begun = np.where((whole + 1) * gpus <= gpus_of_node, (wholly_free % gpus) / gpus, 0.0)
        worth += weight * ((BLOCK_WEIGHT + GATHER_WEIGHT) * whole + GATHER_WEIGHT * begun * begun)
    return worth
