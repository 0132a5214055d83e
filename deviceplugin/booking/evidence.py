"""What the kubelet's list and its checkpoint say together about who holds which ids."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from deviceplugin.booking import ids
from deviceplugin.booking.asking import Listing, ask
from deviceplugin.booking.ledger import Owner, allocation_name
from deviceplugin.booking.liveness import Living
from deviceplugin.booking.sources import ContainerKey, Held, Holder

__all__ = ["Claim", "Evidence", "gathered", "held_throughout"]


@dataclass(frozen=True, slots=True)
class Claim:
    """What a living container has of one of our resources."""

    owner: Owner
    resource: str
    ids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Evidence:
    """In order before it is compared with our books, for which pods that start have to wait."""

    listing: list[Held]
    living: Living
    claims: dict[str, Claim]
    """Of all containers that live, by the allocation's name."""
    recorded: frozenset[str] | None
    """Names of all allocations in the checkpoint; None when that could not be read."""
    is_complete: bool = True
    """Whether the kubelet knew its containers: one that is starting lists none of them yet."""
    ever_recorded: frozenset[str] = frozenset()
    """Names of all allocations in any reading of the checkpoint, before or after the list."""

    @classmethod
    def of(cls, listing: list[Held], checkpoint: list[Holder] | None) -> "Evidence":
        living = Living.of(listing)
        holders = [each for each in checkpoint or () if each.resource in ids.RESOURCES]
        return cls(
            listing,
            living,
            _claims(holders, _pods_by_uid(holders, listing), living, listing),
            _names(holders) if checkpoint is not None else None,
        )


def gathered(
    checkpoint: Callable[[], list[Holder] | None],
    listing: Listing,
    term: Callable[[], int | None],
) -> Evidence | None:
    """None when the kubelet gives no list; `checkpoint` answers None when it could not be read,
    `term` while no kubelet manages our ids, and another number after each start of a kubelet."""
    begun = term()
    earlier = checkpoint()
    listed = ask(listing)
    later = checkpoint()
    if listed is None:
        return None
    return replace(
        Evidence.of(listed, held_throughout(earlier, later)),
        is_complete=begun is not None and begun == term(),
        ever_recorded=_names((*(earlier or ()), *(later or ()))),
    )


def held_throughout(
    earlier: list[Holder] | None, later: list[Holder] | None
) -> list[Holder] | None:
    """What two readings of the checkpoint agree on; None when one of them failed.

    Ids go from pod to pod: whose they are may be told from a list only if it was made between the
    two. What only one of them has may be of a pod that had these ids before or after.
    """
    if earlier is None or later is None or later is earlier:
        return later if earlier is not None else None
    known = frozenset(earlier)
    return [each for each in later if each in known]


def _names(checkpoint: Iterable[Holder]) -> frozenset[str]:
    return frozenset(allocation_name(each.resource, each.ids) for each in checkpoint)


def _pods_by_uid(holders: Iterable[Holder], listing: list[Held]) -> dict[str, tuple[str, str]]:
    """Uids of living pods: one of their containers is listed with just what the checkpoint has.

    Some of its ids would not do: the checkpoint may still have whoever held them before.
    """
    listed = {
        (held.key.container, resource, some): (held.key.namespace, held.key.pod)
        for held in listing
        for resource, some in held.ids.items()
    }
    found = (
        (holder.pod_uid, listed.get((holder.container, holder.resource, holder.ids)))
        for holder in holders
    )
    return {uid: pod for uid, pod in found if pod is not None}


def _claims(
    holders: Iterable[Holder],
    pods: dict[str, tuple[str, str]],
    living: Living,
    listing: list[Held],
) -> dict[str, Claim]:
    claims: dict[str, Claim] = {}
    for held in listing:
        key = held.key
        for resource in ids.RESOURCES:
            if some := held.ids.get(resource):
                owner = Owner(key.namespace, key.pod, key.container, init=False)
                claims[allocation_name(resource, some)] = Claim(owner, resource, some)
    for holder in holders:
        if holder.pod_uid not in pods:
            continue
        key = ContainerKey(*pods[holder.pod_uid], holder.container)
        name = allocation_name(holder.resource, holder.ids)
        is_init = not living.has(key)
        # Where an app container has the same ids as its pod's init container, it is the owner.
        if name not in claims or not is_init:
            owner = Owner(key.namespace, key.pod, key.container, holder.pod_uid, is_init)
            claims[name] = Claim(owner, holder.resource, holder.ids)
    return claims
