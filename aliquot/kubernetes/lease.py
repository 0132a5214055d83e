"""Which of several replicas may act: leader election over a Lease of the API server."""

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec

from aliquot.kubernetes.client import ApiClient
from aliquot.kubernetes.errors import ApiError, ApiServerError
from aliquot.kubernetes.objects import ObjectMeta
from aliquot.kubernetes.paths import lease_path, leases_path

__all__ = ["LeaderElection", "LeaseTimes"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    lease_s: float = 15.0
    """How long the others wait after the leader's last sign."""
    renew_s: float = 10.0
    """How long the leader may act after its last successful renewal; less than `lease_s`."""
    retry_s: float = 2.0

    def __post_init__(self) -> None:
        if not self.retry_s < self.renew_s < self.lease_s:
            raise ValueError("a lease needs retry_s < renew_s < lease_s")


class _LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Lease(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _LeaseSpec = _LeaseSpec()


def _boot_clock_s() -> float:
    # Goes on while the machine sleeps: a laptop's lid or a paused VM must not prolong a term.
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LeaderElection:
    """Calls `on_started` when this replica begins to lead and `on_stopped` when it no longer does.

    Clocks of replicas are never compared: a foreign lease has lapsed when this replica has seen it
    unchanged for the lease's duration by its own clock, and a leader stops by its own clock before
    that can have happened. Whoever acts asks `is_leader` right before: the callbacks run in a
    thread, which can be late. `identity` must be new for each process.
    """

    def __init__(
        self,
        client: ApiClient,
        namespace: str,
        name: str,
        identity: str,
        on_started: Callable[[], None],
        on_stopped: Callable[[], None],
        *,
        times: LeaseTimes | None = None,
        clock: Callable[[], float] = _boot_clock_s,
    ) -> None:
        self._times = times or LeaseTimes()
        self._client = client.with_timeout(self._times.renew_s / 2)
        self._namespace = namespace
        self._name = name
        self.identity = identity
        self.holder = ""
        """Who leads as far as we know; empty when nobody does."""
        self._on_started = on_started
        self._on_stopped = on_stopped
        self._clock = clock
        self._leading_until_s = 0.0
        self._led = False
        self._seen: _Lease | None = None
        self._seen_at_s = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"lease {name}", daemon=True)

    @property
    def is_leader(self) -> bool:
        return self._clock() < self._leading_until_s

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 15.0) -> None:
        """Ends the term (`on_stopped` runs) and lets the next replica begin at once."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._try_to_lead()
            except ApiServerError as error:
                log.info("the lease %s cannot be had: %s", self._name, error)
            self._tell()
            self._stopping.wait(self._pause_s())
        self._leading_until_s, led = 0.0, self._led
        self._tell()
        if led:
            self._release()

    def _pause_s(self) -> float:
        pause_s = self._times.retry_s * random.uniform(1.0, 1.2)
        if not self._led:
            return pause_s
        # The end of the term must be told when it comes, not at the next try.
        return max(0.0, min(pause_s, self._leading_until_s - self._clock()))

    def _tell(self) -> None:
        leads = self.is_leader
        if leads == self._led:
            return
        self._led = leads
        log.info("%s %s %s", self.identity, "leads" if leads else "no longer leads", self._name)
        try:
            (self._on_started if leads else self._on_stopped)()
        except Exception:
            # Without this thread, nobody would notice the end of the term.
            log.exception("the change of leader could not be taken in")

    def _try_to_lead(self) -> None:
        path = lease_path(self._namespace, self._name)
        asked_at_s = self._clock()
        try:
            lease = self._client.get(path, _Lease)
        except ApiError as error:
            if not error.not_found:
                raise
            if self._seen is not None and not self._may_take(self._seen):
                # Somebody deleted it, and its holder need not know that yet.
                return
            self._client.create(leases_path(self._namespace), self._body(None))
            self._won(asked_at_s)
            return
        self._observe(lease)
        if not self._may_take(lease):
            self._leading_until_s = 0.0
            return
        self._client.update(path, self._body(lease))
        self._won(asked_at_s)

    def _observe(self, lease: _Lease) -> None:
        if self._seen is None or self._seen.metadata.resource_version != (
            lease.metadata.resource_version
        ):
            self._seen, self._seen_at_s = lease, self._clock()
        self.holder = lease.spec.holder_identity or ""

    def _may_take(self, lease: _Lease) -> bool:
        if self.holder in ("", self.identity):
            return True
        duration_s = max(self._times.lease_s, float(lease.spec.lease_duration_seconds or 0))
        return self._clock() >= self._seen_at_s + duration_s

    def _won(self, asked_at_s: float) -> None:
        # Counted from before the request: others may have seen the renewal that early.
        self.holder = self.identity
        self._leading_until_s = asked_at_s + self._times.renew_s

    def _release(self) -> None:
        path = lease_path(self._namespace, self._name)
        try:
            lease = self._client.get(path, _Lease)
            if lease.spec.holder_identity == self.identity:
                self._client.update(path, self._body(lease, release=True))
        except ApiServerError as error:
            log.info("the lease %s will lapse by itself: %s", self._name, error)

    def _body(self, before: _Lease | None, *, release: bool = False) -> dict[str, object]:
        spec = before.spec if before else _LeaseSpec()
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        ours = spec.holder_identity == self.identity
        metadata: dict[str, object] = {"name": self._name, "namespace": self._namespace}
        if before:
            metadata["resourceVersion"] = before.metadata.resource_version
            metadata["labels"] = before.metadata.labels
            metadata["annotations"] = before.metadata.annotations
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": "" if release else self.identity,
                "leaseDurationSeconds": max(1, round(self._times.lease_s)),
                "acquireTime": spec.acquire_time if ours and spec.acquire_time else now,
                "renewTime": now,
                "leaseTransitions": (spec.lease_transitions or 0) + (not ours),
            },
        }
