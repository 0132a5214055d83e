"""Decides where a request runs, re-scoring only the nodes that changed since it was last asked."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler_ext.placement.cluster import Cluster
from scheduler_ext.placement.devices import gpu_shares
from scheduler_ext.placement.fit import eligible_devices, fitting
from scheduler_ext.placement.policy import Policy
from scheduler_ext.placement.request import Request

# Pod types whose scores are kept; at 5,000 nodes and 8 GPUs one type takes some 160 KiB.
_TYPES_KEPT = 256
_NEVER_SCORED = -1
# Rows that cost hardly more time than one.
_LEAST_RENEWED = 32
# Rows that the first pod of a type is compared on in full, when time matters: some 3 ms.
_FIRST_ROWS = 512


@dataclass(frozen=True, slots=True)
class Decision:
    row: int
    node: str
    devices: tuple[int, ...]
    cost: float


class TypeScores:
    """What one pod type costs on every row, and the row versions for which that is true."""

    def __init__(self, shape: tuple[int, ...], epoch: Hashable) -> None:
        rows = shape[0]
        self.epoch = epoch
        self.cost = np.full(rows, np.inf)
        self.devices = np.zeros(shape, dtype=np.bool_)
        self.weakest = np.zeros(rows, dtype=np.int64)
        self.version = np.full(rows, _NEVER_SCORED, dtype=np.int64)
        # Rows whose score is of an earlier epoch, or only a guess; always empty unless that is
        # tolerated.
        self.outdated = np.zeros(0, dtype=np.int64)
        self.guessed = np.zeros(rows, dtype=np.bool_)


class Placer:
    """Holds the scores of one policy over one cluster; the cluster may change between calls.

    `host` says whether a node must have the CPU and the host memory to fit; kube-scheduler has
    looked at that already. With `renewed_in` no single pod costs much time: a new epoch renews the
    rows in about so many calls, and the others keep their earlier score meanwhile; and for the
    first pod of a type only the fullest nodes are scored at once, which then come before others.
    """

    def __init__(
        self,
        cluster: Cluster,
        policy: Policy,
        *,
        host: bool = True,
        renewed_in: int | None = None,
    ) -> None:
        self.cluster = cluster
        self.policy = policy
        self._host = host
        self._renewed_in = renewed_in
        self._kept: OrderedDict[Request, TypeScores] = OrderedDict()

    def observe(self, request: Request) -> None:
        """Tells the policy of a pod, once per pod however often it is decided about."""
        self.policy.observe(request)

    def decide(self, request: Request) -> Decision | None:
        """The node and GPUs the request should take, or None when it fits nowhere."""
        scores = self.scores(request)
        cost = scores.cost
        if request.gpus > 1:
            # How well the GPUs are connected comes before what the placement costs others.
            level = np.where(np.isfinite(cost), scores.weakest, _NEVER_SCORED)
            cost = np.where(level == level.max(), cost, np.inf)
        row = int(cost.argmin())
        if not np.isfinite(cost[row]):
            return None
        name = self.cluster.names[row]
        assert name is not None
        devices = tuple(int(device) for device in np.flatnonzero(scores.devices[row]))
        return Decision(row, name, devices, float(cost[row]))

    def costs(self, request: Request) -> NDArray[np.float64]:
        """What the request costs on every row, infinite where it does not fit."""
        return self.scores(request).cost[: self.cluster.rows].copy()

    def scores(self, request: Request) -> TypeScores:
        """The scores of all rows, up to date; the caller must not change them."""
        cluster = self.cluster
        epoch = self.policy.epoch(cluster)
        scores = self._kept.pop(request, None)
        if scores is None or scores.devices.shape != cluster.model.shape:
            scores = TypeScores(cluster.model.shape, epoch)
        elif scores.epoch != epoch:
            if self._renewed_in is None:
                scores = TypeScores(cluster.model.shape, epoch)
            else:
                scores.epoch = epoch
                scores.outdated = np.arange(cluster.rows)
        self._kept[request] = scores
        if len(self._kept) > _TYPES_KEPT:
            self._kept.popitem(last=False)
        if self._renewed_in and len(scores.outdated):
            count = max(-(-cluster.rows // self._renewed_in), _LEAST_RENEWED)
            count = min(count, _FIRST_ROWS)
            scores.version[scores.outdated[:count]] = _NEVER_SCORED
            scores.outdated = scores.outdated[count:]
        stale = np.flatnonzero(scores.version != cluster.version)
        if len(stale):
            self._rescore(scores, stale, request)
        return scores

    def scores_of_row(self, request: Request, row: int) -> TypeScores:
        """Like `scores`, but only this row has to be up to date."""
        kept = self._kept.get(request)
        if kept is None or kept.devices.shape != self.cluster.model.shape:
            return self.scores(request)
        if kept.version[row] != self.cluster.version[row]:
            kept = self.scores(request)
        if kept.guessed[row]:
            self._rescore(kept, np.array([row]), request)
        return kept

    def _rescore(self, scores: TypeScores, stale: NDArray[np.int64], request: Request) -> None:
        cluster = self.cluster
        eligible = eligible_devices(cluster, stale, request)
        fits = fitting(cluster, stale, request, eligible, host=self._host)
        scores.cost[stale] = np.inf
        scores.version[stale] = cluster.version[stale]
        scores.guessed[stale] = False
        rows, eligible = stale[fits], eligible[fits]
        if not len(rows):
            return
        now = np.arange(len(rows))
        if self._renewed_in and request.gpus and len(rows) > _FIRST_ROWS:
            room = np.where(eligible, gpu_shares(cluster, rows), np.inf).min(axis=1)
            fullest = np.argpartition(room, _FIRST_ROWS)
            now, later = np.sort(fullest[:_FIRST_ROWS]), fullest[_FIRST_ROWS:]
        fresh = self.policy.score(cluster, rows[now], request, eligible[now])
        scores.cost[rows[now]] = fresh.cost
        scores.devices[rows[now]] = fresh.devices
        scores.weakest[rows[now]] = fresh.weakest_link
        if len(now) < len(rows):
            scores.cost[rows[later]] = fresh.cost.max() + 1 + room[later]
            scores.weakest[rows[later]] = 0
            scores.guessed[rows[later]] = True
            scores.outdated = np.append(scores.outdated, rows[later])
