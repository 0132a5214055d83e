"""Who holds which ids: one entry per answered Allocate, kept in memory, decided over by others."""

import hashlib
from collections import Counter
from collections.abc import Collection, Hashable, ItemsView, Iterable, Iterator, KeysView
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

import msgspec

from aliquot.protocol.names import COMPUTE_RESOURCE
from aliquot.protocol.request import WHOLE_PERCENT
from deviceplugin.booking import ids
from deviceplugin.booking.sources import ContainerKey, PodView
from deviceplugin.booking.supply import Supply

__all__ = ["Allocation", "Ledger", "Owner", "allocation_name"]


_Key = TypeVar("_Key", bound=Hashable)


class Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whose an allocation is, as far as it is known."""

    namespace: str
    pod: str
    container: str = ""
    """Empty while only the pod is known."""
    uid: str = ""
    init: bool | None = None
    """A plain init container, whose ids the kubelet gives to the pod's next containers."""

    @property
    def key(self) -> ContainerKey:
        return ContainerKey(self.namespace, self.pod, self.container)

    def is_pod_of(self, another: "Owner") -> bool:
        return (self.namespace, self.pod) == (another.namespace, another.pod) and (
            not self.uid or not another.uid or self.uid == another.uid
        )

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod}" + (f"/{self.container}" if self.container else "")


class Allocation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One resource of one container: what the kubelet gave it and what became of that."""

    resource: str
    ids: frozenset[str]
    gpus: tuple[str, ...]
    """In the order of the limits."""
    unit_bytes: int
    owner: Owner | None = None
    extra: frozenset[str] = frozenset()
    """Ids that a resize has added; the kubelet sees them as unhealthy."""
    shrunk_to: int | None = None
    """How much of each GPU a resize has left it; None is all that its ids stand for."""
    fell_from: int | None = None
    """How much of each GPU it had in this life of its container, where that is more than now."""
    whole: bool = False
    """All of its GPUs, memory included."""
    companion: bool = False
    """Its folder also has a memory half, for a container that may have no memory ids."""
    policy: str = "fixed"
    weight: int = 1
    starts: int = 0
    planned: bool | None = None
    shim: str = ""
    """The library it was answered with; it must stay on disk meanwhile."""

    @property
    def name(self) -> str:
        return allocation_name(self.resource, self.ids)

    @property
    def all_ids(self) -> frozenset[str]:
        return self.ids | self.extra

    def amounts(self) -> dict[str, int]:
        """Units or percent on each of its GPUs, as capped."""
        held = _by_gpu(self.ids) + _by_gpu(self.extra)
        if self.shrunk_to is not None:
            return {uuid: min(self.shrunk_to, held[uuid]) for uuid in self.gpus}
        return {uuid: held[uuid] for uuid in self.gpus}

    @property
    def amount(self) -> int:
        return sum(self.amounts().values())

    @property
    def takes_all_compute(self) -> bool:
        """Whether it may turn out to be whole GPUs."""
        return self.resource == COMPUTE_RESOURCE and all(
            amount == WHOLE_PERCENT for amount in self.amounts().values()
        )

    def holder(self) -> str:
        return str(self.owner) if self.owner is not None else "a container that is just starting"


@lru_cache(1024)
def _by_gpu(some: frozenset[str]) -> Counter[str]:
    """How many of each GPU; asked again and again of the same ids."""
    return Counter(map(ids.gpu_of, some))


@lru_cache(1024)
def allocation_name(resource: str, some: frozenset[str]) -> str:
    """The same for the same ids: the folder's name, and how later calls find the entry."""
    text = "\n".join([resource, *sorted(some)])
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@dataclass(slots=True)
class Ledger:
    _entries: dict[str, Allocation] = field(default_factory=dict)
    _by_id: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Usually one name; more only while a pod's containers re-use its init container's ids."""
    _special: dict[str, Allocation] = field(default_factory=dict)
    """Those for which ids are withdrawn: resized ones and whole GPUs."""
    _by_pod: dict[tuple[str, str], dict[str, Allocation]] = field(default_factory=dict)
    _by_uid: dict[str, dict[str, Allocation]] = field(default_factory=dict)
    changes: int = 0
    """Counts them, for whoever keeps something that was made from the entries."""

    def __iter__(self) -> Iterator[Allocation]:
        return iter(tuple(self._entries.values()))

    def items(self) -> ItemsView[str, Allocation]:
        """By name; not to be changed meanwhile."""
        return self._entries.items()

    def names(self) -> KeysView[str]:
        """Of all entries; changes with them."""
        return self._entries.keys()

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, name: str) -> Allocation | None:
        return self._entries.get(name)

    def put(self, allocation: Allocation) -> None:
        name = allocation.name
        self.drop(name)
        self._entries[name] = allocation
        if allocation.extra or allocation.whole:
            self._special[name] = allocation
        alone = (name,)
        for each in allocation.all_ids:
            others = self._by_id.get(each)
            self._by_id[each] = alone if others is None else (*others, name)
        if (owner := allocation.owner) is not None:
            self._by_pod.setdefault((owner.namespace, owner.pod), {})[name] = allocation
            self._by_uid.setdefault(owner.uid, {})[name] = allocation

    def drop(self, name: str) -> None:
        self.changes += 1
        allocation = self._entries.pop(name, None)
        self._special.pop(name, None)
        if allocation is None:
            return
        if (owner := allocation.owner) is not None:
            _take_out(self._by_pod, (owner.namespace, owner.pod), name)
            _take_out(self._by_uid, owner.uid, name)
        for each in allocation.all_ids:
            left = tuple(another for another in self._by_id[each] if another != name)
            if left:
                self._by_id[each] = left
            else:
                del self._by_id[each]

    def holders(self, device_id: str) -> tuple[Allocation, ...]:
        return tuple(self._entries[name] for name in self._by_id.get(device_id, ()))

    def freed(self, gone: Collection[str]) -> set[str]:
        """Ids that only the allocations named in `gone` hold."""
        return {
            each
            for name in gone
            if name in self._entries
            for each in self._entries[name].all_ids
            if all(holder in gone for holder in self._by_id[each])
        }

    def unheld(self, some: Collection[str]) -> set[str]:
        """Those of these ids that nobody holds."""
        return set(some).difference(self._by_id)

    def count_held(self, some: Iterable[str]) -> int:
        return sum(map(self._by_id.__contains__, some))

    def occupied(self, gone: Collection[str]) -> set[str]:
        """GPUs of which somebody holds something, other than those who are `gone`."""
        return {
            uuid for name, each in self._entries.items() if name not in gone for uuid in each.gpus
        }

    def withdrawn(self) -> frozenset[str]:
        """Ids that resizes have taken."""
        return frozenset(one for each in self._special.values() for one in each.extra)

    def on_gpu(self, uuid: str) -> Iterator[Allocation]:
        return (each for each in self._entries.values() if uuid in each.gpus)

    def of_pod(self, owner: Owner) -> list[Allocation]:
        return [
            each
            for each in self._by_pod.get((owner.namespace, owner.pod), {}).values()
            if each.owner is not None and each.owner.is_pod_of(owner)
        ]

    def pods(self) -> dict[tuple[str, str], tuple[Allocation, ...]]:
        """All entries, those of a pod together; of pods that are not known, each by its name."""
        known = {pod: tuple(entries.values()) for pod, entries in self._by_pod.items()}
        entries = self._entries.items()
        return known | {("", name): (each,) for name, each in entries if each.owner is None}

    def of_view(self, pod: PodView) -> list[Allocation]:
        """What is surely that pod's. Its uid alone is no proof: that of a mirror is an annotation,
        which users can write."""
        return [
            each
            for each in self._by_uid.get(pod.uid, {}).values()
            if each.owner is not None
            and (each.owner.namespace, each.owner.pod) == (pod.namespace, pod.name)
        ]

    def siblings(self, allocation: Allocation) -> list[Allocation]:
        """Everything of the same pod, itself included."""
        return self.of_pod(allocation.owner) if allocation.owner is not None else [allocation]

    def partner(self, allocation: Allocation) -> Allocation | None:
        """The other half of the same container."""
        if allocation.owner is None or not allocation.owner.container:
            return None
        return self.half(allocation.owner, ids.other(allocation.resource))

    def half(self, owner: Owner, resource: str) -> Allocation | None:
        """What a known container has of a resource; of several starts, the latest."""
        found = None
        for each in self.of_pod(owner):
            held = each.owner
            if each.resource == resource and held and held.container == owner.container:
                found = each
        return found

    def neighbours(
        self, allocation: Allocation, owner: Owner | None, gone: Collection[str]
    ) -> list[Allocation]:
        """Who else is on its GPUs, from other pods than its owner's."""
        return [
            each
            for uuid in allocation.gpus
            for each in self.on_gpu(uuid)
            if each.name not in gone
            and each.name != allocation.name
            and (owner is None or each.owner is None or not each.owner.is_pod_of(owner))
        ]

    def closed(self) -> dict[str, Allocation]:
        """GPUs of which somebody has everything: nothing else of them may be handed out."""
        return {uuid: each for each in self._special.values() if each.whole for uuid in each.gpus}

    def devices(self, supply: Supply, resource: str) -> tuple[tuple[str, bool], ...]:
        """Every id and whether it may be handed out, or keeps running where it is."""
        closed = self.closed()
        withdrawn = self.withdrawn()
        found: list[tuple[str, bool]] = []
        for gpu in supply.hardware.gpus:
            some = supply.ids(resource, gpu.uuid)
            if gpu.unusable:
                found.extend((each, False) for each in some)
            elif gpu.uuid in closed or gpu.uuid in supply.foreign:
                # What runs there keeps its ids, or the kubelet would not restart its containers.
                found.extend((each, each in self._by_id and each not in withdrawn) for each in some)
            else:
                found.extend((each, each not in withdrawn) for each in some)
        return tuple(found)

    def shape(self, supply: Supply) -> tuple[Supply, frozenset[str], frozenset[str]]:
        """What `devices` depends on, for less than it costs to make the list."""
        special = {*self.closed(), *supply.foreign}
        entries = self._entries.items() if special else ()
        names = frozenset(name for name, each in entries if special.intersection(each.gpus))
        return supply, self.withdrawn(), names

    def free(self, supply: Supply, resource: str, uuid: str) -> list[str]:
        """Ids of a GPU that nobody holds, in the order of their numbers."""
        return [each for each in supply.ids(resource, uuid) if each not in self._by_id]


def _take_out(index: dict[_Key, dict[str, Allocation]], key: _Key, name: str) -> None:
    entries = index[key]
    del entries[name]
    if not entries:
        del index[key]
