"""Chooses the best connected GPUs of a node for a request that spans several."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from scheduler_ext.placement.inventory import Link

# All sets of 8 out of 16 are 12,870 rows; past that, trying all of them no longer pays.
MOST_GPUS_PER_NODE = 16
# Sets times nodes examined at once, so that memory stays below some 20 MiB.
_CHUNK = 500_000

LinkTable = tuple[tuple[Link, ...], ...]


@dataclass(frozen=True, slots=True)
class DeviceSets:
    """All sets of `size` GPUs of one link table, and how well each is connected."""

    size: int
    members: NDArray[np.float64]  # sets x devices, 1 where the set has the device
    rank: NDArray[np.int64]  # 0 is the best connected
    weakest: NDArray[np.int64]  # the set's weakest link


@lru_cache(maxsize=256)
def device_sets(links: LinkTable, devices: int, size: int) -> DeviceSets:
    """A set's weakest link decides first: the slowest pair sets the pace of a collective."""
    sets = list(combinations(range(devices), size))
    members = np.zeros((len(sets), devices))
    members[np.repeat(np.arange(len(sets)), size), np.array(sets, dtype=np.int64).ravel()] = 1
    keys = [_connection(links, chosen) for chosen in sets]
    order = {key: rank for rank, key in enumerate(sorted(set(keys), reverse=True))}
    return DeviceSets(
        size,
        members,
        np.array([order[key] for key in keys], dtype=np.int64),
        np.array([key[0] for key in keys], dtype=np.int64),
    )


def _connection(links: LinkTable, chosen: tuple[int, ...]) -> tuple[int, int]:
    if not links or len(chosen) < 2:
        return (int(Link.SYSTEM), 0)
    pairs = [int(links[a][b]) for a, b in combinations(chosen, 2)]
    return (min(pairs), sum(pairs))


def best_sets(
    sets: DeviceSets, eligible: NDArray[np.bool_], device_cost: NDArray[np.float64]
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """For each row: the best connected eligible set, the cheapest of equals; its weakest link.

    Every row must have at least `sets.size` eligible devices.
    """
    devices = sets.members.shape[1]
    chosen = np.zeros(eligible.shape, dtype=np.bool_)
    weakest = np.zeros(len(eligible), dtype=np.int64)
    usable = eligible[:, :devices]
    cost = np.where(usable, device_cost[:, :devices], 0.0)
    step = max(1, _CHUNK // len(sets.members))
    for start in range(0, len(eligible), step):
        rows = slice(start, start + step)
        whole = (usable[rows].astype(np.float64) @ sets.members.T) >= sets.size
        rank = np.where(whole, sets.rank, np.iinfo(np.int64).max)
        best = rank == rank.min(axis=1, keepdims=True)
        price = np.where(best, cost[rows] @ sets.members.T, np.inf)
        first = price.argmin(axis=1)
        chosen[rows, :devices] = sets.members[first] > 0
        weakest[rows] = sets.weakest[first]
    return chosen, weakest
