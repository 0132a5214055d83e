"""Reasons by kind of pod and node, kept: they are found anew only where a node has changed."""

from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from scheduler_ext.placement import Cluster
from scheduler_ext.reasons import Reason, reasons_for
from scheduler_ext.requests import Demand

__all__ = ["Sentences"]

# Kinds of pods; at 5,000 nodes one takes some 130 KiB.
_KINDS_KEPT = 64
_NEVER_FOUND = -1


class _Kind:
    def __init__(self, rows: int) -> None:
        self.reason = np.full(rows, None, dtype=np.object_)
        self.version = np.full(rows, _NEVER_FOUND, dtype=np.int64)


class Sentences:
    """Used with the state's lock held; the cluster may change between calls."""

    def __init__(self, cluster: Cluster, unit_mib: int) -> None:
        self._cluster = cluster
        self._unit_mib = unit_mib
        self._kept: OrderedDict[Demand, _Kind] = OrderedDict()

    def of(self, demand: Demand, rows: NDArray[np.int64]) -> list[Reason]:
        """One for each row, of nodes that are there but on which the pod does not fit."""
        version = self._cluster.version
        kind = self._kept.pop(demand, None)
        if kind is None or len(kind.version) != len(version):
            kind = _Kind(len(version))
        self._kept[demand] = kind
        if len(self._kept) > _KINDS_KEPT:
            self._kept.popitem(last=False)
        stale = rows[kind.version[rows] != version[rows]]
        if len(stale):
            # Row by row: to an array of objects numpy would else give the list's own shape.
            for row, reason in zip(
                stale.tolist(),
                reasons_for(self._cluster, stale, demand, self._unit_mib),
                strict=True,
            ):
                kind.reason[row] = reason
            kind.version[stale] = version[stale]
        found: list[Reason] = kind.reason[rows].tolist()
        return found
