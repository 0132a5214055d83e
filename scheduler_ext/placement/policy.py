"""What a placement policy is, and the two that only count: pack and spread."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from scheduler_ext.placement.cluster import Cluster
from scheduler_ext.placement.devices import choose_devices, gpu_shares
from scheduler_ext.placement.request import Request


@dataclass(frozen=True, slots=True)
class Scores:
    """One entry per row: what the placement costs, on which GPUs, and their weakest link."""

    cost: NDArray[np.float64]
    devices: NDArray[np.bool_]
    weakest_link: NDArray[np.int64]


class Policy(Protocol):
    def observe(self, request: Request) -> None:
        """A pod that was not seen before asks for this."""

    def epoch(self, cluster: Cluster) -> Hashable:
        """Scores given in one epoch stay true for rows that do not change."""

    def score(
        self,
        cluster: Cluster,
        rows: NDArray[np.int64],
        request: Request,
        eligible: NDArray[np.bool_],
    ) -> Scores:
        """Costs for rows on which the request fits; the lowest cost wins."""


class _ByFreeShare:
    """Orders nodes by what they would have left; `sign` 1 fills them up, -1 levels them."""

    sign: float

    def observe(self, request: Request) -> None:
        """What else is asked for does not matter here."""

    def epoch(self, cluster: Cluster) -> Hashable:  # noqa: ARG002 (one interface for all)
        return None

    def score(
        self,
        cluster: Cluster,
        rows: NDArray[np.int64],
        request: Request,
        eligible: NDArray[np.bool_],
    ) -> Scores:
        share = gpu_shares(cluster, rows)
        chosen, weakest = choose_devices(cluster, rows, request, eligible, self.sign * share)
        capacity = np.maximum((cluster.model[rows] >= 0).sum(axis=1), 1)
        gpu_left = share.sum(axis=1) / capacity
        cpu_left = 1000 * cluster.cpu_free_milli[rows] / np.maximum(cluster.cpu_milli[rows], 1)
        on_device = np.where(chosen, share, 0.0).sum(axis=1) / max(request.gpus, 1)
        # A GPU in use before a fresh one, then the node; CPU only orders nodes that are equal.
        wanted = on_device + gpu_left + 1e-3 * cpu_left if request.gpus else cpu_left
        return Scores(self.sign * wanted, chosen, weakest)


class Pack(_ByFreeShare):
    """Fills GPUs and nodes that are in use before it touches others."""

    sign = 1.0


class Spread(_ByFreeShare):
    """Takes the GPU and the node with the most room, so that neighbours are few."""

    sign = -1.0
