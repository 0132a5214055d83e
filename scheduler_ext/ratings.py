"""Prioritize's answer, put together from pieces that are made once for each node and score."""

import msgspec
import numpy as np
from numpy.typing import NDArray

from scheduler_ext.placement import Cluster
from scheduler_ext.verbs import BEST_SCORE
from scheduler_ext.wire import HostPriority

__all__ = ["Ratings"]

_encode = msgspec.json.Encoder().encode


class Ratings:
    """Used with the state's lock held: which node has a row may change."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._names: list[str | None] = []
        self._shape_version = -1
        self._pieces = np.full((0, BEST_SCORE + 1), b"", dtype=np.object_)

    def encode(self, names: list[str], rows: NDArray[np.int64], scores: NDArray[np.int64]) -> bytes:
        """A list of `HostPriority`; a node that is not there has the row -1."""
        if len(rows) and rows.min() < 0:
            return _encode(list(map(HostPriority, names, scores.tolist())))
        if self._shape_version != self._cluster.shape_version:
            self._follow()
        pieces = self._pieces.take(rows * (BEST_SCORE + 1) + scores)
        return b"[" + b",".join(pieces.tolist()) + b"]"

    def _follow(self) -> None:
        """Takes in who has come or gone, which is seldom more than one node."""
        now = self._cluster.names
        if len(now) > len(self._pieces):
            more = np.full((2 * len(now) - len(self._pieces), BEST_SCORE + 1), b"", np.object_)
            self._pieces = np.concatenate([self._pieces, more])
        self._names += [None] * (len(now) - len(self._names))
        for row, (before, name) in enumerate(zip(self._names, now, strict=True)):
            if name is not before and name is not None:
                for score in range(BEST_SCORE + 1):
                    self._pieces[row, score] = _encode(HostPriority(name, score))
        self._names = now.copy()
        self._shape_version = self._cluster.shape_version
