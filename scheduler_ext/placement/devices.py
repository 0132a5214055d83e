"""Free shares of GPUs, and the choice of devices on a node by cost and by links."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from scheduler_ext.placement.cluster import Cluster
from scheduler_ext.placement.inventory import Link
from scheduler_ext.placement.links import LinkTable, best_sets, device_sets
from scheduler_ext.placement.request import Request

# Small against any cost in milli GPU: it only decides between devices that cost the same.
_LINK_TIE_BREAK = 1e-3


def memory_milli(memory: NDArray[np.int64] | int, total: NDArray[np.int64]) -> NDArray[np.float64]:
    """Memory as thousandths of the GPU's own."""
    share: NDArray[np.float64] = memory * 1000.0 / np.maximum(total, 1)
    return share


def gpu_shares(cluster: Cluster, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """Rows x devices: the free share of each GPU in milli, compute and memory weighed equally."""
    memory = memory_milli(cluster.gpu_memory_free[rows], cluster.gpu_memory[rows])
    share: NDArray[np.float64] = (cluster.compute_free_milli[rows] + memory) / 2
    return share


def choose_devices(
    cluster: Cluster,
    rows: NDArray[np.int64],
    request: Request,
    eligible: NDArray[np.bool_],
    device_cost: NDArray[np.float64],
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Rows x devices: those the request takes, and the weakest link between them."""
    weakest = np.full(len(rows), int(Link.NVLINK), dtype=np.int64)
    chosen = np.zeros(eligible.shape, dtype=np.bool_)
    if request.gpus == 0 or not len(rows):
        return chosen, weakest
    if request.gpus == 1:
        cost = np.where(eligible, device_cost, np.inf) + _pull_of_partners(cluster, rows)
        chosen[np.arange(len(rows)), cost.argmin(axis=1)] = True
        return chosen, weakest
    for topology in np.unique(cluster.topology[rows]):
        links, count = cluster.topologies[topology]
        here = np.flatnonzero(cluster.topology[rows] == topology)
        sets = device_sets(links, count, request.gpus)
        chosen[here], weakest[here] = best_sets(sets, eligible[here], device_cost[here])
    return chosen, weakest


def _pull_of_partners(cluster: Cluster, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """A single share leaves well connected free GPUs together for those who need several."""
    pull = np.zeros(cluster.model[rows].shape)
    for topology, (links, count) in enumerate(cluster.topologies):
        if not links:
            continue
        here = np.flatnonzero(cluster.topology[rows] == topology)
        level = _link_levels(links)
        free = cluster.compute_free_milli[rows[here], :count] == 1000
        pull[here, :count] = _LINK_TIE_BREAK * (free @ level)
    return pull


@lru_cache(maxsize=256)
def _link_levels(links: LinkTable) -> NDArray[np.float64]:
    level = np.array(links, dtype=np.float64)
    np.fill_diagonal(level, 0)
    return level
