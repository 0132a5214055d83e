"""Groups of pods that start all or none: who may pass, what is held for whom, who may bind.

An attempt holds room for every pod that the group still lacks, or for none: no group ever waits
while it holds a part, so two of them cannot wait for each other. First all bind calls come, then
all plans are written, then all pods are bound; until that last step any failure gives everything
back. A pod whose binding is refused even then keeps its room for a while, to come again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

__all__ = ["Gate", "GroupKey", "GroupTimes", "Groups", "Member", "Ticket", "Verdict"]

Place = TypeVar("Place")


@dataclass(frozen=True, slots=True)
class GroupTimes:
    hold_s: float = 60.0
    """From the moment the whole group fits until its first pod comes to be bound."""
    barrier_s: float = 20.0
    """From the first pod's bind call to the last one's; less than kube-scheduler waits for us."""
    plan_s: float = 6.0
    """From the last pod's bind call to the last plan."""


@dataclass(frozen=True, slots=True)
class GroupKey:
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Member:
    uid: str
    bound: bool = False


@dataclass(frozen=True, slots=True)
class Verdict(Generic[Place]):
    """What filter shall do: pass everywhere, pass only to `place`, or reject with `reason`."""

    place: Place | None = None
    reason: str = ""
    held: Mapping[str, Place] = field(default_factory=dict)
    """By uid, what is held from now on; book it, and wake those that are waiting."""


class Gate(Enum):
    """What a bind call that reached the barrier shall do."""

    WAIT = "wait for the others"
    PLAN = "write the plan"
    OPEN = "bind"
    SHUT = "give everything back"


@dataclass(slots=True, eq=False)
class _Attempt(Generic[Place]):
    key: GroupKey
    places: dict[str, Place]
    until_s: float
    arrived: set[str] = field(default_factory=set)
    planned: set[str] = field(default_factory=set)
    unbound: dict[str, Place] = field(default_factory=dict)
    """Those whose binding was refused behind the open gate."""
    gate: Gate = Gate.WAIT
    failure: str = ""
    """Why its gate was shut."""

    @property
    def is_undecided(self) -> bool:
        return self.gate in (Gate.WAIT, Gate.PLAN)


@dataclass(frozen=True, slots=True, eq=False)
class Ticket(Generic[Place]):
    """One bind call at the barrier of one attempt: a later attempt is none of its business."""

    uid: str
    attempt: _Attempt[Place]

    @property
    def until_s(self) -> float:
        """When to look again at the latest."""
        return self.attempt.until_s

    @property
    def failure(self) -> str:
        """Why the gate was shut, for the pods that stood before it."""
        return self.attempt.failure


class Groups(Generic[Place]):
    """Not thread-safe: used under the lock of whoever books the places.

    `release` is called with a uid when what was held for it is free again. It is not called for
    pods whose bind call found the gate open: those are bound or given back by their own call.
    """

    def __init__(self, release: Callable[[str], None], times: GroupTimes | None = None) -> None:
        self._release = release
        self._times = times or GroupTimes()
        self._attempts: dict[GroupKey, _Attempt[Place]] = {}
        # Bound by us, though whoever lists the members may not have heard of it yet.
        self._bound: dict[GroupKey, set[str]] = {}

    def consider(
        self,
        key: GroupKey,
        size: int,
        uid: str,
        members: Sequence[Member],
        place_all: Callable[[Sequence[str]], Mapping[str, Place] | None],
        now_s: float,
    ) -> Verdict[Place]:
        """Asked by filter about an unbound pod. `members` are the group's pods that exist, in an
        order that does not change; `place_all` finds room for all of these pods at once, or None.
        """
        self.expire(now_s)
        attempt = self._attempts.get(key)
        if attempt is not None and uid in attempt.places and attempt.is_undecided:
            return Verdict(attempt.places[uid])
        starting = set(attempt.places) if attempt is not None else set[str]()
        if attempt is not None and attempt.is_undecided:
            return Verdict(reason=f"group {key.name}: its first {size} pods are being started")
        started = starting | self._bound_of(key, members)
        lacking = size - len(started)
        if lacking <= 0:
            return Verdict()
        waiting = [each.uid for each in members if each.uid not in started and each.uid != uid]
        if len(waiting) + 1 < lacking:
            there = len(started) + len(waiting) + 1
            return Verdict(reason=f"group {key.name} has {there} of {size} pods; it waits for all")
        chosen = [uid, *waiting[: lacking - 1]]
        places = place_all(chosen)
        if attempt is not None:
            for each in [*attempt.unbound]:
                del attempt.unbound[each]
                if places is None or each not in places:
                    self._release(each)
        if places is None:
            return Verdict(
                reason=f"group {key.name}: {lacking} pods must start together, and not all fit now"
            )
        if attempt is not None:
            # The last members of the attempt before are on their own way, and need it no more.
            del self._attempts[key]
        held = {each: places[each] for each in chosen}
        self._attempts[key] = _Attempt(key, held, now_s + self._times.hold_s)
        return Verdict(held[uid], held=dict(held))

    def arrive(self, key: GroupKey, uid: str, now_s: float) -> Ticket[Place] | None:
        """A bind call for a pod that `consider` gave a place; None when that is gone."""
        self.expire(now_s)
        attempt = self._attempts.get(key)
        if attempt is None or uid not in attempt.places or attempt.gate is not Gate.WAIT:
            return None
        if not attempt.arrived:
            attempt.until_s = now_s + self._times.barrier_s
        attempt.arrived.add(uid)
        if len(attempt.arrived) == len(attempt.places):
            attempt.gate = Gate.PLAN
            attempt.until_s = now_s + self._times.plan_s
        return Ticket(uid, attempt)

    def plan_written(self, ticket: Ticket[Place], now_s: float) -> None:
        self.expire(now_s)
        attempt = ticket.attempt
        if attempt.gate is Gate.PLAN:
            attempt.planned.add(ticket.uid)
            if len(attempt.planned) == len(attempt.places):
                attempt.gate = Gate.OPEN

    def look(self, ticket: Ticket[Place], now_s: float) -> Gate:
        """Whether the call may bind now, has failed, or goes on waiting."""
        self.expire(now_s)
        return ticket.attempt.gate

    def settle(self, key: GroupKey, uid: str, now_s: float, *, bound: bool) -> bool:
        """A bind call has ended; whether the pod's room is still held for it."""
        if bound:
            self._bound.setdefault(key, set()).add(uid)
        else:
            self._forget_bound(key, {uid})
        attempt = self._attempts.get(key)
        if attempt is None or uid not in attempt.places:
            return False
        if attempt.is_undecided:
            self._fail(attempt, "another pod of its group could not be planned")
            return False
        place = attempt.places.pop(uid)
        if not bound:
            attempt.unbound[uid] = place
        self._end(attempt, now_s)
        return not bound

    def withdraw(self, key: GroupKey, uid: str, now_s: float) -> None:
        """The pod is gone, or cannot use the place held for it: nobody of the group starts."""
        self._forget_bound(key, {uid})
        attempt = self._attempts.get(key)
        if attempt is None:
            return
        if attempt.is_undecided and uid in attempt.places:
            self._fail(attempt, "another pod of its group has gone or lost its place")
        elif attempt.unbound.pop(uid, None) is not None:
            self._release(uid)
        elif attempt.places.pop(uid, None) is not None:
            self._end(attempt, now_s)

    def expire(self, now_s: float) -> None:
        for attempt in list(self._attempts.values()):
            if attempt.is_undecided and attempt.until_s <= now_s:
                missing = "came to be bound" if attempt.gate is Gate.WAIT else "could be planned"
                self._fail(attempt, f"not all of its group {missing} in time")

    def next_expiry_s(self) -> float | None:
        return min((a.until_s for a in self._attempts.values() if a.is_undecided), default=None)

    def held_for(self, key: GroupKey) -> Iterable[str]:
        """The pods of the group for which room is held."""
        attempt = self._attempts.get(key)
        return (*attempt.places, *attempt.unbound) if attempt is not None else ()

    def is_empty(self) -> bool:
        """Nothing is held and nothing remembered: what a leak would break."""
        return not (self._attempts or self._bound)

    def _bound_of(self, key: GroupKey, members: Sequence[Member]) -> set[str]:
        seen = {member.uid for member in members if member.bound}
        gone = self._bound.get(key, set()).difference(member.uid for member in members)
        self._forget_bound(key, seen | gone)
        return seen | self._bound.get(key, set())

    def _forget_bound(self, key: GroupKey, uids: set[str]) -> None:
        known = self._bound.get(key)
        if known is not None:
            known -= uids
            if not known:
                del self._bound[key]

    def _end(self, attempt: _Attempt[Place], now_s: float) -> None:
        """When the last call has ended, those that were not bound have some time to come again."""
        if attempt.places:
            return
        del self._attempts[attempt.key]
        if attempt.unbound:
            until_s = now_s + self._times.hold_s
            self._attempts[attempt.key] = _Attempt(attempt.key, attempt.unbound, until_s)

    def _fail(self, attempt: _Attempt[Place], failure: str) -> None:
        attempt.gate = Gate.SHUT
        attempt.failure = failure
        del self._attempts[attempt.key]
        for uid in attempt.places:
            self._release(uid)
