"""Which replica serves kube-scheduler: the lease, and the label by which the Service finds it."""

import logging
import threading
import uuid
from typing import Protocol

from aliquot.kubernetes.backoff import Backoff
from aliquot.kubernetes.client import ApiClient
from aliquot.kubernetes.errors import ApiServerError
from aliquot.kubernetes.lease import LeaderElection, LeaseTimes
from aliquot.kubernetes.paths import pod_path
from aliquot.protocol.names import DOMAIN

__all__ = ["LEADER_LABEL", "LEASE", "Alone", "Leader", "Leadership"]

log = logging.getLogger(__name__)

LEASE = "aliquot-extender"
LEADER_LABEL = f"{DOMAIN}/leader"
"""`true` on the pod that leads; the scheduler's Service selects it."""


class Leadership(Protocol):
    @property
    def leads(self) -> bool:
        """Asked right before each thing that only the leader may do."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Alone:
    """For one replica, which always leads."""

    leads = True

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass


class Leader:
    """The label follows the lease a little later, which does no harm: a replica that is asked
    without leading says so and closes the connection."""

    def __init__(
        self,
        client: ApiClient,
        namespace: str,
        pod_name: str,
        *,
        times: LeaseTimes | None = None,
        lease: str = LEASE,
    ) -> None:
        self._client = client
        self._path = pod_path(namespace, pod_name) if pod_name else ""
        self._changed = threading.Event()
        identity = f"{pod_name or 'extender'}_{uuid.uuid4().hex[:8]}"
        self._election = LeaderElection(
            client, namespace, lease, identity, self._changed.set, self._changed.set, times=times
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._label, name="leader label", daemon=True)

    @property
    def leads(self) -> bool:
        return self._election.is_leader

    @property
    def holder(self) -> str:
        """Who leads as far as we know."""
        return self._election.holder

    def start(self) -> None:
        self._election.start()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._election.stop()
        self._changed.set()
        if self._thread.is_alive():
            self._thread.join(15.0)

    def _label(self) -> None:
        """A pod that was restarted in place still has its old label: the first round sets it."""
        backoff = Backoff(most_s=5.0)
        labelled: bool | None = None
        while True:
            stopping = self._stopping.is_set()
            leads = self.leads
            try:
                if self._path and leads != labelled:
                    mark = "true" if leads else None
                    patch = {"metadata": {"labels": {LEADER_LABEL: mark}}}
                    self._client.patch(self._path, patch)
                    labelled = leads
                backoff.reset()
                pause_s = 60.0
            except ApiServerError as error:
                log.warning("our own pod cannot be labelled: %s", error)
                pause_s = backoff.next_s()
            if stopping:
                return
            self._changed.wait(pause_s)
            self._changed.clear()
