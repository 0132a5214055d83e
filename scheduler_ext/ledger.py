"""What is taken of every GPU and node, and by whom; pure, told by others what they see and plan.

A pod has at most two entries. What the API server says of it (`see`) counts as soon as the pod is
bound; until then what we hold for it ourselves (`hold`) does. So nothing is free between our
decision and the moment in which we see it carried out, whoever is slow or fails in between.
"""

import math
from collections import defaultdict
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from scheduler_ext.footprint import Amount, Footprint

__all__ = ["Entry", "HostUse", "Ledger", "Stage", "StageTotal"]

NOTHING = Amount()


class Stage(StrEnum):
    ASSUMED = "assumed"
    """Ours to take back: chosen, but not (yet) written down as bound."""
    PLANNED = "planned"
    """Bound with our plan, or about to be; the node has not said what it gave."""
    ACTUAL = "actual"
    """As the node gave it."""
    TERMINATING = "terminating"
    """Still held: the node frees it when the containers have ended."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    node: str
    footprint: Footprint = ()
    unlocated: Amount = NOTHING
    """Taken on the node, though nobody knows on which GPU: counted on each of them."""
    cpu_milli: int = 0
    memory_mib: int = 0
    stage: Stage = Stage.ASSUMED
    bound: bool = False
    """Whether the API server says so."""
    expires_s: float = math.inf

    @property
    def takes_gpus(self) -> bool:
        return bool(self.footprint) or self.unlocated != NOTHING


@dataclass(slots=True)
class HostUse:
    cpu_milli: int = 0
    memory_mib: int = 0


@dataclass(slots=True)
class StageTotal:
    """Of pods that take GPUs."""

    pods: int = 0
    memory_units: int = 0
    compute_percent: int = 0


@dataclass(slots=True)
class Ledger:
    totals: dict[Stage, StageTotal] = field(
        default_factory=lambda: {stage: StageTotal() for stage in Stage}
    )
    releases: int = 0
    """Grows whenever something of a GPU is given back."""
    touched_gpus: set[str] = field(default_factory=set)
    touched_hosts: set[str] = field(default_factory=set)
    """Nodes of whose CPU and memory something changed."""
    touched_nodes: set[str] = field(default_factory=set)
    """Nodes of which every GPU changed. All three are emptied by whoever brings its own picture up
    to date with us."""
    _seen: dict[str, Entry] = field(default_factory=dict)
    _held: dict[str, Entry] = field(default_factory=dict)
    _gpus: dict[str, Amount] = field(default_factory=dict)
    _unlocated: dict[str, Amount] = field(default_factory=dict)
    _hosts: defaultdict[str, HostUse] = field(default_factory=lambda: defaultdict(HostUse))
    _expiring: dict[str, float] = field(default_factory=dict)

    def see(self, uid: str, entry: Entry | None) -> None:
        """What the API server says of a pod that exists; None when it takes nothing."""
        before = self.entry(uid)
        if entry is None:
            self._seen.pop(uid, None)
        else:
            self._seen[uid] = entry
            if entry.bound:
                self._held.pop(uid, None)
        self._move(uid, before)

    def hold(self, uid: str, entry: Entry) -> None:
        """What we have decided, in place of what we held for the pod before."""
        before = self.entry(uid)
        self._held[uid] = entry
        self._move(uid, before)

    def let_go(self, uid: str) -> None:
        """Takes back what we held, and what was left of an earlier, unfinished decision."""
        before = self.entry(uid)
        self._held.pop(uid, None)
        seen = self._seen.get(uid)
        if seen is not None and not seen.bound:
            del self._seen[uid]
        self._move(uid, before)

    def end(self, uid: str, until_s: float) -> None:
        """The pod is gone, or will never run again. GPUs that it had as a whole stay taken until
        then: their node withdrew them, and has to notice the end before it offers them again."""
        before = self.entry(uid)
        if before is not None and before.stage is Stage.TERMINATING and not before.bound:
            # It has ended before: finished first, and deleted then.
            return
        self._seen.pop(uid, None)
        self._held.pop(uid, None)
        if before is not None and before.stage is not Stage.ASSUMED:
            wholes = tuple(share for share in before.footprint if share.amount.wholes)
            if wholes:
                self._held[uid] = Entry(
                    before.node, wholes, stage=Stage.TERMINATING, expires_s=until_s
                )
        self._move(uid, before)

    def entry(self, uid: str) -> Entry | None:
        seen = self._seen.get(uid)
        if seen is not None and seen.bound:
            return seen
        return self._held.get(uid) or seen

    def entries(self) -> dict[str, Entry]:
        """What counts of every pod, by uid; a copy."""
        found = dict(self._seen)
        for uid, held in self._held.items():
            seen = found.get(uid)
            if seen is None or not seen.bound:
                found[uid] = held
        return found

    def overdue(self, now_s: float) -> list[str]:
        """Pods whose entry was to be settled by now."""
        return [uid for uid, expires_s in self._expiring.items() if expires_s <= now_s]

    def resting(self) -> dict[str, str]:
        """Pods that are gone and whose GPUs are not free yet, with their nodes."""
        held = ((uid, self._held.get(uid)) for uid in self._expiring)
        return {uid: one.node for uid, one in held if one and one.stage is Stage.TERMINATING}

    def seen(self) -> set[str]:
        return set(self._seen)

    def taken_of(self, uuid: str) -> Amount:
        return self._gpus.get(uuid, NOTHING)

    def unlocated_on(self, node: str) -> Amount:
        return self._unlocated.get(node, NOTHING)

    def host_use(self, node: str) -> HostUse:
        return self._hosts.get(node) or HostUse()

    def is_empty(self) -> bool:
        """Nothing is booked and no counter remembers anything: what a leak would break."""
        return not (
            self._seen
            or self._held
            or self._gpus
            or self._unlocated
            or self._hosts
            or self._expiring
            or any(total != StageTotal() for total in self.totals.values())
        )

    def _move(self, uid: str, before: Entry | None) -> None:
        after = self.entry(uid)
        if after is before:
            return
        if after is not None and after.expires_s < math.inf:
            self._expiring[uid] = after.expires_s
        else:
            self._expiring.pop(uid, None)
        if before is not None:
            self._count(before, -1)
        if after is not None:
            self._count(after, 1)
        if before is not None and before.takes_gpus and not _covers(after, before):
            self.releases += 1

    def _count(self, entry: Entry, sign: int) -> None:
        self.touched_hosts.add(entry.node)
        total = self.totals[entry.stage]
        total.pods += sign * entry.takes_gpus
        for share in entry.footprint:
            self.touched_gpus.add(share.uuid)
            total.memory_units += sign * share.amount.memory_units
            total.compute_percent += sign * share.amount.compute_percent
            _add(self._gpus, share.uuid, share.amount, sign)
        if entry.unlocated != NOTHING:
            self.touched_nodes.add(entry.node)
            _add(self._unlocated, entry.node, entry.unlocated, sign)
        host = self._hosts[entry.node]
        host.cpu_milli += sign * entry.cpu_milli
        host.memory_mib += sign * entry.memory_mib
        if host == HostUse():
            del self._hosts[entry.node]


def _add(amounts: dict[str, Amount], key: str, amount: Amount, sign: int) -> None:
    total = amounts.get(key, NOTHING).plus(amount, sign)
    if total == NOTHING:
        amounts.pop(key, None)
    else:
        amounts[key] = total


def _covers(after: Entry | None, before: Entry) -> bool:
    """Whether everything that was taken still is."""
    if after is None:
        return False
    taken = {share.uuid: share.amount for share in after.footprint}
    return after.unlocated.at_least(before.unlocated) == after.unlocated and all(
        taken.get(share.uuid, NOTHING).at_least(share.amount) == taken.get(share.uuid, NOTHING)
        for share in before.footprint
    )
