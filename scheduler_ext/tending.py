"""What is done from time to time: choices run out, doubts are settled, waiting pods are woken."""

import logging
import math
import threading
import time
from collections.abc import Callable

from aliquot.kubernetes.client import ApiClient
from aliquot.kubernetes.errors import ApiError, ApiServerError
from aliquot.kubernetes.paths import pod_path
from aliquot.protocol.names import RETRY
from scheduler_ext.binding import Binder
from scheduler_ext.records import PodRecord
from scheduler_ext.unasked import Unasked
from scheduler_ext.verbs import Verbs
from scheduler_ext.waiting import who_fits

__all__ = ["Tender"]

log = logging.getLogger(__name__)

_UNKNOWN_S = 60.0
_HEIR_AFTER_S = 5.0
"""By then kube-scheduler has asked a new leader about all pods that it has not given up."""
_MOST_WOKEN = 20
"""In one go. Those that are woken take their room first; whoever still fits is woken next."""


class Tender:
    """Acts only while `leads`; what it does not do then, another leader's one does."""

    def __init__(
        self,
        client: ApiClient,
        verbs: Verbs,
        binder: Binder,
        leads: Callable[[], bool],
        *,
        period_s: float = 0.5,
        again_s: float = 5.0,
        on_woken: Callable[[], None] = lambda: None,
        tell: Callable[[PodRecord, str], None] = lambda *_: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`again_s`: no pod is woken more often than this. `tell` reaches the pod's user."""
        self._on_woken = on_woken
        self._client = client
        self._verbs = verbs
        self._binder = binder
        self._leads = leads
        self._period_s = period_s
        self._clock = clock
        self._again_s = again_s
        self._heir_at_s: float | None = None
        """When to take over whom another leader rejected; None for who does not lead."""
        self._woken_s: dict[str, float] = {}
        self._unasked = Unasked(verbs, tell)
        self._searched_for: tuple[int, int, int] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tending", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(15.0)

    def tend(self) -> None:
        """One round."""
        for pod in self._verbs.expire():
            self._binder.settle_doubtful(pod)
        if not self._leads():
            self._heir_at_s = None
            return
        if self._heir_at_s is None:
            self._heir_at_s = self._clock() + _HEIR_AFTER_S
        if self._heir_at_s <= self._clock():
            self._heir_at_s = math.inf
            self._inherit()
        for pod in self._to_wake():
            self._wake(pod)
        self._unasked.look()

    def _run(self) -> None:
        while not self._stopping.wait(self._period_s):
            try:
                self.tend()
            except Exception:
                log.exception("a round of tending failed; the next one follows")

    def _inherit(self) -> None:
        """Whom the leader before us rejected is not written down anywhere."""
        state = self._verbs.state
        with state.lock:
            pending = [pod for pod in state.pods_on("") if state.ledger.entry(pod.uid) is None]
            self._verbs.waiting.inherit(pending, self._clock())

    def _to_wake(self) -> list[PodRecord]:
        """Nothing is searched as long as nothing was freed or added, and nobody new waits."""
        state, waiting, companions = self._verbs.state, self._verbs.waiting, self._verbs.companions
        with state.lock:
            for each in waiting.in_order():
                # kube-scheduler may have heard of a pod before us; but not for long.
                unknown = each.pod.uid not in state.pods
                if state.is_bound(each.pod.uid) or (
                    unknown and self._clock() - each.since_s > _UNKNOWN_S
                ):
                    waiting.remove(each.pod.uid)
            called = companions.to_wake.union(self._verbs.patience.over())
            expected = [state.pods[uid] for uid in called if uid in state.pods]
            companions.to_wake.clear()
            now = (state.ledger.releases, state.additions, waiting.rejections)
            if now == self._searched_for or not len(waiting):
                return expected
            trial = state.cluster.scratch()
            in_order = [each for each in waiting.in_order() if companions.complete(each.pod)]
        fit = who_fits(trial, in_order, _MOST_WOKEN)
        if not fit:
            self._searched_for = now
        now_s = self._clock()
        self._woken_s = {
            uid: at_s for uid, at_s in self._woken_s.items() if now_s - at_s < self._again_s
        }
        sleepers = [pod for pod in fit if pod.uid not in self._woken_s]
        self._woken_s.update((pod.uid, now_s) for pod in sleepers)
        with state.lock:
            for pod in sleepers:
                waiting.woken(pod.uid)
        return expected + sleepers

    def _wake(self, pod: PodRecord) -> None:
        """kube-scheduler leaves a pod that we rejected alone until something happens in the
        cluster, and what happens may reach it before us. A change of the pod's own metadata makes
        every version try it again at once, and no other pod with it."""
        metadata = {"uid": pod.uid, "annotations": {RETRY: f"{time.time():.3f}"}}
        try:
            self._client.patch(pod_path(pod.namespace, pod.name), {"metadata": metadata})
            self._on_woken()
        except ApiError as error:
            if error.not_found or error.conflict:
                with self._verbs.state.lock:
                    self._verbs.waiting.remove(pod.uid)
            log.info("%s could not be woken: %s", pod.title, error)
        except ApiServerError as error:
            log.info("%s could not be woken: %s", pod.title, error)
