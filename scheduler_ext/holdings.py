"""What we hold for pods between our choice and the API server's word that they are bound."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from aliquot.protocol.assignment import Assignment
from scheduler_ext.groups import Ticket
from scheduler_ext.ledger import Entry, Stage
from scheduler_ext.records import PodRecord
from scheduler_ext.state import ClusterState

__all__ = ["Choice", "Holdings", "RefusedError"]


class RefusedError(Exception):
    """A decision that cannot be; the text goes to the pod's event."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A node and GPUs for a pod, and the ledger's entry that keeps them for it."""

    pod: PodRecord
    node: str
    plan: Assignment
    entry: Entry
    ticket: Ticket[str] | None = None
    """For a member of a group: the barrier at which its bind call waits for the others."""


class Holdings:
    """A pod's way: assumed, decided, and then settled, doubtful or given back.

    Every method takes the state's lock.
    """

    def __init__(
        self,
        state: ClusterState,
        on_ended: Callable[[PodRecord, bool], bool],
        clock: Callable[[], float],
        *,
        settle_s: float,
    ) -> None:
        """`on_ended` is told when a bind call is over, and whether the pod is (or may be) bound;
        it answers whether what was chosen is to be kept for the pod all the same."""
        self._state = state
        self._on_ended = on_ended
        self._clock = clock
        self._settle_s = settle_s
        self._assumed: dict[str, Choice] = {}
        self._decided: dict[str, Choice] = {}
        self._binding: set[str] = set()
        self._doubtful: set[str] = set()

    @property
    def under_way(self) -> int:
        """Bind calls that have begun and not ended."""
        return len(self._binding)

    def assume(self, choice: Choice) -> None:
        with self._state.lock:
            self._hold(choice.pod.uid, choice.entry)
            self._assumed[choice.pod.uid] = choice

    def assumed(self, uid: str) -> Choice | None:
        """What is still kept for the pod."""
        with self._state.lock:
            choice = self._assumed.get(uid)
            if choice is None or self._state.ledger.entry(uid) is not choice.entry:
                return None
            return choice

    def decide(self, choice: Choice) -> Choice:
        """Its GPUs are the pod's from now on, until the end of its bind call and beyond."""
        uid = choice.pod.uid
        with self._state.lock:
            expires_s = self._clock() + self._settle_s
            entry = msgspec.structs.replace(choice.entry, stage=Stage.PLANNED, expires_s=expires_s)
            self._hold(uid, entry)
            self._binding.add(uid)
            self._assumed.pop(uid, None)
            self._decided[uid] = replace(choice, entry=entry)
            return self._decided[uid]

    def let_go(self, uid: str) -> None:
        with self._state.lock:
            self._assumed.pop(uid, None)
            self._state.ledger.let_go(uid)
            self._state.refresh()

    def release(self, uid: str) -> None:
        """The pod's group gave up its room. One whose bind call has begun is not the group's to
        give up: the call itself does that, or the pod has left the group since."""
        with self._state.lock:
            if uid not in self._decided:
                self.let_go(uid)

    def settle(self, uid: str) -> None:
        """The pod is bound: what was chosen stays until the watch tells."""
        with self._state.lock:
            self._end(uid, bound=True)

    def doubt(self, uid: str) -> None:
        """The pod may be bound: what was chosen stays until somebody has found out."""
        with self._state.lock:
            self._end(uid, bound=True)
            self._doubtful.add(uid)

    def abandon(self, uid: str) -> None:
        """The pod's bind call broke off, wherever that was."""
        with self._state.lock:
            if uid in self._binding:
                self.doubt(uid)

    def give_back(self, uid: str) -> None:
        """The pod is certainly not bound, or gone."""
        with self._state.lock:
            kept = self._end(uid, bound=False)
            choice = self._decided.pop(uid, None)
            if kept and choice is not None:
                entry = msgspec.structs.replace(
                    choice.entry, stage=Stage.ASSUMED, expires_s=math.inf
                )
                self.assume(replace(choice, entry=entry, ticket=None))
            else:
                self.let_go(uid)

    def keep(self, uid: str) -> None:
        """The pod is bound, only the watch is late: it is given more time."""
        with self._state.lock:
            self._end(uid, bound=True)
            entry = self._state.ledger.entry(uid)
            if entry is not None and not entry.bound:
                expires_s = self._clock() + self._settle_s
                self._hold(uid, msgspec.structs.replace(entry, expires_s=expires_s))

    def check_idle(self, pod: PodRecord) -> None:
        """Raises RefusedError when nothing new may be decided about the pod."""
        with self._state.lock:
            if pod.uid in self._binding:
                raise RefusedError(f"{pod.title} is being bound at this moment")
            if pod.uid in self._doubtful:
                raise RefusedError(f"whether {pod.title} is bound already is being found out")
            entry = self._state.ledger.entry(pod.uid)
            if entry is not None and entry.stage is not Stage.ASSUMED:
                raise RefusedError(f"{pod.title} is bound already")

    def expire(self) -> list[PodRecord]:
        """Takes back choices that nobody came for, and what pods have left; answers the pods to ask
        the API server about."""
        with self._state.lock:
            ledger = self._state.ledger
            for uid in ledger.overdue(self._clock()):
                entry = ledger.entry(uid)
                if entry is not None and entry.stage in (Stage.ASSUMED, Stage.TERMINATING):
                    self.let_go(uid)
            for uid in list(self._assumed):
                if self.assumed(uid) is None:
                    del self._assumed[uid]
            for uid in self._decided.keys() - self._binding:
                entry = ledger.entry(uid)
                if entry is None or entry.bound:
                    del self._decided[uid]
                    self._doubtful.discard(uid)
            overdue = set(ledger.overdue(self._clock())) - self._binding
            return [self._decided[uid].pod for uid in overdue & self._decided.keys()]

    def is_empty(self) -> bool:
        """Nothing is remembered of any pod: what a leak would break."""
        return not (self._assumed or self._decided or self._binding or self._doubtful)

    def _hold(self, uid: str, entry: Entry) -> None:
        self._state.ledger.hold(uid, entry)
        self._state.refresh()

    def _end(self, uid: str, *, bound: bool) -> bool:
        self._binding.discard(uid)
        self._doubtful.discard(uid)
        return uid in self._decided and self._on_ended(self._decided[uid].pod, bound)
