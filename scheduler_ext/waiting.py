"""Pods that fit nowhere when they were last tried, and which of them would fit now; pure."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler_ext.placement import Cluster, fitting
from scheduler_ext.placement.several import search_devices
from scheduler_ext.records import PodRecord
from scheduler_ext.requests import Demand

__all__ = ["Waiting", "WaitingPods", "Withheld", "who_fits", "withheld_from"]


@dataclass(frozen=True, slots=True)
class Withheld:
    """Nodes that kube-scheduler did not offer for a pod: cordoned ones, or another pool's. When one
    of those becomes fit for the pod, it is kube-scheduler who notices."""

    shape_version: int
    """Of the cluster; with other nodes the rows are others, too."""
    rows: bytes
    """A bit for each."""

    def among(self, trial: Cluster) -> NDArray[np.bool_] | None:
        if trial.shape_version != self.shape_version:
            return None
        bits = np.unpackbits(np.frombuffer(self.rows, dtype=np.uint8), count=trial.rows)
        return bits.astype(np.bool_)


@dataclass(frozen=True, slots=True)
class Waiting:
    pod: PodRecord
    since_s: float
    withheld: Withheld | None = None
    inherited: bool = False
    """Another leader may have rejected it; we have not been asked about it ourselves."""


class WaitingPods:
    """Used with the state's lock held."""

    def __init__(self) -> None:
        self.rejections = 0
        """Grows with each pod that fits nowhere."""
        self._pods: dict[str, Waiting] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def add(self, pod: PodRecord, now_s: float, withheld: Withheld | None = None) -> None:
        self.rejections += 1
        known = self._pods.get(pod.uid)
        since_s = known.since_s if known else now_s
        self._pods[pod.uid] = Waiting(pod, since_s, withheld)

    def keep(self, pod: PodRecord, now_s: float) -> None:
        """The same, when the nodes for it are those that were offered last."""
        known = self._pods.get(pod.uid)
        self.add(pod, now_s, known.withheld if known else None)

    def inherit(self, pods: Iterable[PodRecord], now_s: float) -> None:
        """Pods without a node, which kube-scheduler may believe to fit nowhere."""
        self.rejections += 1
        for pod in pods:
            self._pods.setdefault(pod.uid, Waiting(pod, now_s, inherited=True))

    def woken(self, uid: str) -> None:
        """Whoever waits in earnest is rejected by us next, if it still fits nowhere; others, such
        as pods of another scheduler or behind a gate, are not to be called again and again."""
        known = self._pods.get(uid)
        if known is not None and known.inherited:
            del self._pods[uid]

    def remove(self, uid: str) -> None:
        self._pods.pop(uid, None)

    def since_s(self, uid: str) -> float | None:
        known = self._pods.get(uid)
        return known.since_s if known else None

    def in_order(self) -> list[Waiting]:
        """The important first, then those that have waited longest."""
        return sorted(
            self._pods.values(), key=lambda each: (-each.pod.priority, each.since_s, each.pod.uid)
        )


def withheld_from(cluster: Cluster, offered: NDArray[np.int64]) -> Withheld | None:
    """`offered` are rows, -1 for nodes that we do not know; None when all were offered."""
    withheld = cluster.present[: cluster.rows].copy()
    withheld[offered[offered >= 0]] = False
    if not withheld.any():
        return None
    return Withheld(cluster.shape_version, np.packbits(withheld).tobytes())


def who_fits(trial: Cluster, in_order: list[Waiting], most: int) -> list[PodRecord]:
    """As many as there is room for together. `trial` is a copy, and used up.

    Of a group only the first is named, and only if there is room for all of it: its turn is
    everybody's turn.
    """
    fit: list[PodRecord] = []
    hopeless: set[tuple[Demand, Withheld | None]] = set()
    groups: dict[object, list[Waiting]] = {}
    for waiting in in_order:
        groups.setdefault(_group(waiting.pod), []).append(waiting)
    for members in groups.values():
        if len(fit) >= most:
            break
        if all(_take(trial, each, hopeless) for each in members):
            fit.append(members[0].pod)
    return fit


def _group(pod: PodRecord) -> object:
    if pod.request is not None and pod.request.group and pod.request.group_size > 1:
        return (pod.namespace, pod.request.group)
    return pod.uid


def _take(trial: Cluster, waiting: Waiting, hopeless: set[tuple[Demand, Withheld | None]]) -> bool:
    demand, withheld = waiting.pod.demand, waiting.withheld
    if demand is None or (demand, withheld) in hopeless:
        return False
    rows = np.arange(trial.rows)
    mask = withheld.among(trial) if withheld else None
    if mask is not None:
        rows = rows[~mask]
    for request in demand.requests:
        rows = rows[fitting(trial, rows, request)]
    for row in rows:
        devices = search_devices(trial, int(row), demand.requests)
        if devices is not None:
            for request, chosen in zip(demand.requests, devices, strict=True):
                trial.take(int(row), chosen, request)
            return True
    hopeless.add((demand, withheld))
    return False
