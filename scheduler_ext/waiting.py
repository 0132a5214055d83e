"""Pods that fit nowhere when they were last tried, and which of them would fit now; pure."""

from dataclasses import dataclass, replace

import numpy as np

from scheduler_ext.placement import Cluster, fitting
from scheduler_ext.placement.several import search_devices
from scheduler_ext.records import PodRecord

__all__ = ["Waiting", "WaitingPods", "who_fits"]


@dataclass(frozen=True, slots=True)
class Waiting:
    pod: PodRecord
    since_s: float


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
        self._pods[pod.uid] = replace(known, pod=pod) if known else Waiting(pod, now_s)

    def remove(self, uid: str) -> None:
        self._pods.pop(uid, None)

    def uids(self) -> list[str]:
        return list(self._pods)

    def since_s(self, uid: str) -> float | None:
        known = self._pods.get(uid)
        return known.since_s if known else None

    def in_order(self) -> list[Waiting]:
        """The important first, then those that have waited longest."""
        return sorted(
            self._pods.values(), key=lambda each: (-each.pod.priority, each.since_s, each.pod.uid)
        )


def who_fits(trial: Cluster, in_order: list[Waiting], most: int) -> list[PodRecord]:
    """As many as there is room for together. `trial` is a copy, and used up."""
    fit: list[PodRecord] = []
    hopeless: set[object] = set()
    for waiting in in_order:
        demand = waiting.pod.demand
        if len(fit) >= most:
            break
        if demand is None or demand.requests in hopeless:
            continue
        rows = np.arange(trial.rows)
        for request in demand.requests:
            rows = rows[fitting(trial, rows, request)]
        for row in rows:
            devices = search_devices(trial, int(row), demand.requests)
            if devices is not None:
                for request, chosen in zip(demand.requests, devices, strict=True):
                    trial.take(int(row), chosen, request)
                fit.append(waiting.pod)
                break
        else:
            hopeless.add(demand.requests)
    return fit
