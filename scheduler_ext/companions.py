"""Groups in the running extender: who belongs together, and bind calls that wait for each other."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from scheduler_ext.groups import Gate, GroupKey, Groups, GroupTimes, Member, Ticket, Verdict
from scheduler_ext.records import PodRecord
from scheduler_ext.state import ClusterState

__all__ = ["Companions", "key_of"]

Place = str
"""A node; which GPUs of it stands in the ledger."""


def key_of(pod: PodRecord) -> GroupKey | None:
    """None for a pod that starts alone."""
    request = pod.request
    if request is None or not request.group or request.group_size < 2:
        return None
    return GroupKey(pod.namespace, request.group)


class Companions:
    """What a bind call asks on its way takes the state's lock; the rest is called with it held."""

    def __init__(
        self,
        state: ClusterState,
        release: Callable[[str], None],
        times: GroupTimes | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.to_wake: set[str] = set()
        """Pods for which room is held from now on, and which have to come for it."""
        self._state = state
        self._clock = clock
        self._groups: Groups[Place] = Groups(release, times)
        self._moved = threading.Condition(state.lock)

    def consider(
        self,
        pod: PodRecord,
        key: GroupKey,
        place_all: Callable[[Sequence[str]], Mapping[str, Place] | None],
    ) -> Verdict[Place]:
        assert pod.request is not None
        verdict = self._groups.consider(
            key, pod.request.group_size, pod.uid, self._members(key), place_all, self._clock()
        )
        self.to_wake |= verdict.held.keys() - {pod.uid}
        self._moved.notify_all()
        return verdict

    def holds(self, pod: PodRecord) -> bool:
        key = key_of(pod)
        return key is not None and pod.uid in self._groups.held_for(key)

    def complete(self, pod: PodRecord) -> bool:
        """Whether all of its group are there, so that trying it can lead to anything."""
        key = key_of(pod)
        if key is None or pod.request is None:
            return True
        return len(self._state.group(key.namespace, key.name)) >= pod.request.group_size

    def has_started(self, pod: PodRecord, key: GroupKey) -> bool:
        """Whether as many as the group needs are bound, so that this one may come alone."""
        verdict = self.consider(pod, key, lambda _: None)
        return verdict.place is None and not verdict.reason

    def arrive(self, pod: PodRecord, key: GroupKey) -> Ticket[Place] | None:
        ticket = self._groups.arrive(key, pod.uid, self._clock())
        self._moved.notify_all()
        return ticket

    def look(self, ticket: Ticket[Place]) -> Gate:
        with self._moved:
            return self._groups.look(ticket, self._clock())

    def wait_while(self, ticket: Ticket[Place], gate: Gate) -> None:
        """Until the others have come, or have written their plans, or the time for it is over."""
        with self._moved:
            while self._groups.look(ticket, self._clock()) is gate:
                self._moved.wait(max(0.01, min(1.0, ticket.until_s - self._clock())))
            self._moved.notify_all()

    def plan_written(self, ticket: Ticket[Place]) -> None:
        with self._moved:
            self._groups.plan_written(ticket, self._clock())
            self._moved.notify_all()

    def settle(self, pod: PodRecord, *, bound: bool) -> bool:
        """Its bind call has ended; whether its room is still held for it."""
        key = key_of(pod)
        if key is None:
            return False
        held = self._groups.settle(key, pod.uid, self._clock(), bound=bound)
        self._moved.notify_all()
        return held

    def withdraw(self, pod: PodRecord) -> None:
        """It is gone, or cannot use the place held for it."""
        self.to_wake.discard(pod.uid)
        key = key_of(pod)
        if key is not None:
            self._groups.withdraw(key, pod.uid, self._clock())
            self._moved.notify_all()

    def expire(self) -> None:
        self._groups.expire(self._clock())
        self._moved.notify_all()

    def is_empty(self) -> bool:
        """Nothing is remembered of any group: what a leak would break."""
        return self._groups.is_empty() and not self.to_wake

    def _members(self, key: GroupKey) -> list[Member]:
        pods = [self._state.pods[uid] for uid in self._state.group(key.namespace, key.name)]
        pods.sort(key=lambda pod: (pod.created_s, pod.uid))
        return [Member(pod.uid, self._state.is_bound(pod.uid)) for pod in pods]
