"""Pods about which kube-scheduler does not ask us, because it finds no node by its own sums.

It then says `Insufficient aliquot.dev/gpu-memory`, which is true and explains nothing. So such a
pod gets an event of ours with the sentences that it would have got from filter.
"""

import time
from collections import Counter
from collections.abc import Callable

import numpy as np

from scheduler_ext.placement import fitting
from scheduler_ext.reasons import reasons_for
from scheduler_ext.records import PodRecord
from scheduler_ext.verbs import Verbs

__all__ = ["Unasked"]

_MOST_AT_ONCE = 5
"""Pods a round: each is compared with all nodes under the state's lock."""
_MOST_REASONS = 3


class Unasked:
    def __init__(
        self,
        verbs: Verbs,
        tell: Callable[[PodRecord, str], None],
        *,
        after_s: float = 10.0,
        every_s: float = 3.0,
        again_s: float = 1800.0,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """`after_s`: how old a pod is before silence means anything. `every_s`: no two looks, each
        through all pods without a node, are closer than this. `again_s`: the API server drops
        events after an hour, so a pod that still waits is told again."""
        self._verbs = verbs
        self._tell = tell
        self._after_s = after_s
        self._every_s = every_s
        self._now_s = now_s
        self._next_look_s = 0.0
        self._again_s = again_s
        self._told_s: dict[str, float] = {}

    def look(self) -> None:
        """Tells each such pod what is missing, and again only after a long time."""
        if time.monotonic() < self._next_look_s:
            return
        self._next_look_s = time.monotonic() + self._every_s
        found: list[tuple[PodRecord, str]] = []
        state = self._verbs.state
        with state.lock:
            pending = state.pods_on("")
            now_s = self._now_s()
            waiting = {pod.uid for pod in pending}
            self._told_s = {
                uid: told_s
                for uid, told_s in self._told_s.items()
                if uid in waiting and now_s - told_s < self._again_s
            }
            old = now_s - self._after_s
            for pod in pending:
                if len(found) == _MOST_AT_ONCE:
                    break
                if pod.created_s > old or pod.uid in self._told_s or self._verbs.asked(pod.uid):
                    continue
                text = self._missing(pod)
                if text:
                    self._told_s[pod.uid] = now_s
                    found.append((pod, text))
        for pod, text in found:
            self._tell(pod, text)

    def _missing(self, pod: PodRecord) -> str:
        """Empty when there may be a node for it: then the reason is not ours to know."""
        state, demand = self._verbs.state, pod.demand
        if demand is None:
            return pod.refusal
        rows = np.flatnonzero(state.cluster.present[: state.cluster.rows])
        fits = np.ones(len(rows), dtype=np.bool_)
        for request in demand.requests:
            fits &= fitting(state.cluster, rows, request, host=False)
        if fits.any():
            return ""
        texts = Counter(
            reason.text for reason in reasons_for(state.cluster, rows, demand, state.unit_mib)
        )
        for name in state.nodes.keys() - state.cluster.row_of.keys():
            if state.gpus_of(name):
                texts[state.refusal(name)] += 1
        if not texts:
            return "no node reports GPUs; see whether the node agent runs on them"
        told = [
            f"{text} ({count} node{'s' if count > 1 else ''})"
            for text, count in texts.most_common(_MOST_REASONS)
        ]
        if len(texts) > _MOST_REASONS:
            told.append("`aliquot explain` lists them all")
        return f"its GPUs are free on no node: {'; '.join(told)}"
