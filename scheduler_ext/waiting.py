"""Pods that fit nowhere when they were last tried, and which of them would fit now; pure."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from scheduler_ext.placement import Cluster, fitting
from scheduler_ext.placement.several import search_devices
from scheduler_ext.records import PodRecord
from scheduler_ext.requests import Demand

__all__ = ["Waiting", "WaitingPods", "who_fits"]


@dataclass(frozen=True, slots=True)
class Waiting:
    pod: PodRecord
    since_s: float
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

    def add(self, pod: PodRecord, now_s: float) -> None:
        self.rejections += 1
        known = self._pods.get(pod.uid)
        since_s = known.since_s if known else now_s
        self._pods[pod.uid] = Waiting(pod, since_s)

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


def who_fits(trial: Cluster, in_order: list[Waiting], most: int) -> list[PodRecord]:
    """As many as there is room for together. `trial` is a copy, and used up.

    Of a group only the first is named, and only if there is room for all of it: its turn is
    everybody's turn.
    """
    fit: list[PodRecord] = []
    hopeless: set[Demand] = set()
    groups: dict[object, list[PodRecord]] = {}
    for waiting in in_order:
        pod = waiting.pod
        groups.setdefault(_group(pod), []).append(pod)
    for pods in groups.values():
        if len(fit) >= most:
            break
        if all(_take(trial, pod, hopeless) for pod in pods):
            fit.append(pods[0])
    return fit


def _group(pod: PodRecord) -> object:
    if pod.request is not None and pod.request.group and pod.request.group_size > 1:
        return (pod.namespace, pod.request.group)
    return pod.uid


def _take(trial: Cluster, pod: PodRecord, hopeless: set[Demand]) -> bool:
    demand = pod.demand
    if demand is None or demand in hopeless:
        return False
    rows = np.arange(trial.rows)
    for request in demand.requests:
        rows = rows[fitting(trial, rows, request)]
    for row in rows:
        devices = search_devices(trial, int(row), demand.requests)
        if devices is not None:
            for request, chosen in zip(demand.requests, devices, strict=True):
                trial.take(int(row), chosen, request)
            return True
    hopeless.add(demand)
    return False
