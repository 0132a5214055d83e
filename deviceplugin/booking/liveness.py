"""Whether an allocation's container still lives, judged by the kubelet's own list."""

from collections.abc import Callable, Iterable, Sequence
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

    exact: set[frozenset[str]] = field(default_factory=set)
    """What containers have, each with all its ids of a resource."""
    pods: dict[tuple[str, str], list[Held]] = field(default_factory=dict)
    """What each pod's containers have."""
    _listing: Sequence[Held] = ()
    _holders: dict[str, ContainerKey] | None = None

    @classmethod
    def of(cls, listing: Sequence[Held]) -> "Living":
        living = cls(_listing=listing)
        for held in listing:
            living.pods.setdefault((held.key.namespace, held.key.pod), []).append(held)
            living.exact.update(held.ids.values())
        return living

    @property
    def holders(self) -> dict[str, ContainerKey]:
        """By device id: who has it. Of all resources; our ids differ by prefix. Made only when
        somebody asks, for it is much longer than all the rest."""
        if self._holders is None:
            self._holders = {}
            for held in self._listing:
                for some in held.ids.values():
                    self._holders.update(dict.fromkeys(some, held.key))
        return self._holders

    def has(self, key: ContainerKey) -> bool:
        """Whether the container is listed, with whatever ids."""
        return any(held.key == key for held in self.pods.get((key.namespace, key.pod), ()))

    def lists(self, allocation: Allocation) -> bool:
        """Whether a container has exactly its ids, or, of an init container or one that nobody
        knows, the right pod some of them."""
        if allocation.ids in self.exact:
            return True
        owner = allocation.owner
        if owner is None:
            return any(each in self.holders for each in allocation.ids)
        if self.has(owner.key):
            # It has other ids, or a pod of its name does.
            return False
        return any(
            not allocation.ids.isdisjoint(some)
            for held in self.pods.get((owner.namespace, owner.pod), ())
            for some in held.ids.values()
        )

    def life(
        self,
        allocation: Allocation,
        age_of: Callable[[Allocation], float],
        siblings: Callable[[Allocation], Iterable[Allocation]] = lambda _: (),
        uid_of: Callable[[Owner], str] = lambda _: "",
    ) -> Life:
        """`siblings` are the pod's other allocations, `uid_of` who has the pod's name now."""
        if self.lists(allocation):
            return Life.ALIVE
        owner = allocation.owner
        young = allocation.starts == 0 and age_of(allocation) < JUST_ANSWERED_S
        unlisted = Life.STARTING if young else Life.GONE
        if owner is None:
            return unlisted
        if (owner.namespace, owner.pod) not in self.pods:
            return Life.GONE
        uid = uid_of(owner)
        if owner.uid and uid and uid != owner.uid:
            return Life.GONE
        if self.has(owner.key):
            return unlisted
        # An init container, which is never listed: it lives as its pod does. A pod of the same
        # name that came later is told by the app containers, whose ids are not the old ones.
        apps = [
            each
            for each in siblings(allocation)
            if each.owner is not None and self.has(each.owner.key)
        ]
        if apps and not any(map(self.lists, apps)):
            return unlisted
        return Life.ALIVE
