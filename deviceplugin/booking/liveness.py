"""Whether an allocation's container still lives, judged by the kubelet's own list."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum

from deviceplugin.booking.ledger import Allocation, Owner
from deviceplugin.booking.sources import ContainerKey, Held

__all__ = ["Life", "Living"]

JUST_ANSWERED_S = 1.0
"""The kubelet lists a container's ids only some time after we answered."""


class Life(Enum):
    ALIVE = "alive"
    STARTING = "starting"
    """Not listed, but so young that the kubelet may not have written it down yet."""
    GONE = "gone"


@dataclass(slots=True)
class Living:
    """One answer of the kubelet, indexed. Plain init containers do not appear in it."""

    holders: dict[str, tuple[ContainerKey, frozenset[str]]] = field(default_factory=dict)
    """By device id: who has it, with what else. Of all resources; our ids differ by prefix."""
    containers: set[ContainerKey] = field(default_factory=set)
    pods: set[tuple[str, str]] = field(default_factory=set)

    @classmethod
    def of(cls, listing: Iterable[Held]) -> "Living":
        living = cls()
        for held in listing:
            living.containers.add(held.key)
            living.pods.add((held.key.namespace, held.key.pod))
            for some in held.ids.values():
                living.holders.update(dict.fromkeys(some, (held.key, some)))
        return living

    def lists(self, allocation: Allocation) -> bool:
        """Whether a container has exactly its ids, or one of the right pod some of them."""
        owner = allocation.owner
        for each in allocation.ids:
            if each not in self.holders:
                continue
            key, some = self.holders[each]
            if owner is None or some == allocation.ids:
                return True
            if (key.namespace, key.pod) == (owner.namespace, owner.pod):
                return True
        return False

    def life(
        self,
        allocation: Allocation,
        age_s: float,
        siblings: Callable[[], Iterable[Allocation]] = tuple,
        uid_of: Callable[[Owner], str] = lambda _: "",
    ) -> Life:
        """`siblings` are the pod's other allocations, `uid_of` who has the pod's name now."""
        if self.lists(allocation):
            return Life.ALIVE
        owner = allocation.owner
        young = allocation.starts == 0 and age_s < JUST_ANSWERED_S
        unlisted = Life.STARTING if young else Life.GONE
        if owner is None:
            return unlisted
        if (owner.namespace, owner.pod) not in self.pods:
            return Life.GONE
        uid = uid_of(owner)
        if owner.uid and uid and uid != owner.uid:
            return Life.GONE
        if owner.key in self.containers:
            return unlisted
        # An init container, which is never listed: it lives as its pod does. A pod of the same
        # name that came later is told by the app containers, whose ids are not the old ones.
        apps = [
            each
            for each in siblings()
            if each.owner is not None and each.owner.key in self.containers
        ]
        if apps and not any(map(self.lists, apps)):
            return unlisted
        return Life.ALIVE
