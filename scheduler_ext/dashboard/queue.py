"""Pods that wait, each with its reason: worked out for kinds of pods, and kept for some seconds."""

import time
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from aliquot.protocol.view import WaitingView
from scheduler_ext.explain import verdict
from scheduler_ext.placement import Cluster
from scheduler_ext.placement.fit import fitting
from scheduler_ext.reasons import asked_text, reasons_for
from scheduler_ext.records import PodRecord
from scheduler_ext.requests import Demand
from scheduler_ext.state import ClusterState

__all__ = ["WaitingQueue"]

_MOST_PODS = 1000
_MOST_KINDS = 32
"""Of which reasons are worked out at a time; the first in the queue come first."""
_KEEP_S = 5.0
_SHARE = 10
"""Reasons may take a tenth of the time at most: in a large cluster they are kept for longer."""


class WaitingQueue:
    """Used by one thread at a time."""

    def __init__(self, state: ClusterState, clock: Callable[[], float] = time.monotonic) -> None:
        self._state = state
        self._clock = clock
        self._sentences: dict[Demand, str] = {}
        self._valid_until_s = 0.0

    def show(self, pods: Sequence[PodRecord]) -> tuple[WaitingView, ...]:
        """The first thousand of them."""
        shown = pods[:_MOST_PODS]
        now_s = self._clock()
        if shown and now_s >= self._valid_until_s:
            self._sentences = self._explain(shown)
            spent_s = self._clock() - now_s
            self._valid_until_s = now_s + max(_KEEP_S, _SHARE * spent_s)
        return tuple(
            WaitingView(
                namespace=pod.namespace,
                pod=pod.name,
                since=pod.created_s,
                asks=asks(pod, self._state.unit_mib),
                reason=self._reason(pod),
            )
            for pod in shown
        )

    def _reason(self, pod: PodRecord) -> str:
        if pod.refusal or pod.demand is None:
            return pod.refusal
        sentence = self._sentences.get(pod.demand, "")
        request = pod.request
        if request is None or not request.group or request.group_size < 2 or not sentence:
            return sentence
        group = (
            f"group {request.group} starts when there is room for all {request.group_size} of it"
        )
        return f"{sentence}; {group}"

    def _explain(self, pods: Sequence[PodRecord]) -> dict[Demand, str]:
        kinds = dict.fromkeys(pod.demand for pod in pods if pod.demand is not None)
        by_demand = {pod.demand: pod for pod in reversed(pods)}
        with self._state.lock:
            trial = self._state.cluster.scratch()
            left_out = sum(
                bool(record.uuids) and name not in trial.row_of
                for name, record in self._state.nodes.items()
            )
        return {
            demand: _sentence(trial, by_demand[demand], demand, left_out, self._state.unit_mib)
            for demand in list(kinds)[:_MOST_KINDS]
        }


def asks(pod: PodRecord, unit_mib: int) -> str:
    if pod.demand is None:
        return "a request that cannot be read"
    parts = []
    for part in pod.demand.parts:
        of_each = asked_text(part.request, unit_mib)
        parts.append(of_each if part.request.gpus == 1 else f"{part.request.gpus} GPUs: {of_each}")
    return ", ".join(parts)


def _sentence(trial: Cluster, pod: PodRecord, demand: Demand, left_out: int, unit_mib: int) -> str:
    rows = np.flatnonzero(trial.present)
    fits = np.ones(len(rows), dtype=np.bool_)
    for request in demand.requests:
        fits &= fitting(trial, rows, request, host=False)
    told = verdict(pod, int(fits.sum()), len(rows) + left_out)
    if fits.any() or not len(rows):
        return told
    counted = Counter(reason.text for reason in reasons_for(trial, rows, demand, unit_mib))
    (reason, count), *_ = counted.most_common(1)
    where = "everywhere" if count == len(rows) > 1 else f"on {count}"
    return f"{told}; {where}: {reason}" if len(rows) > 1 else f"{told}: {reason}"
