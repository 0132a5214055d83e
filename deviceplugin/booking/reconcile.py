"""Brings the ledger in line with the kubelet: what its checkpoint and its list say, together."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from deviceplugin.booking import ids
from deviceplugin.booking.ledger import Allocation, Ledger, Owner, allocation_name
from deviceplugin.booking.liveness import Life, Living
from deviceplugin.booking.presence import UNRECORDED_S
from deviceplugin.booking.sources import Held, Holder
from deviceplugin.booking.supply import Supply

__all__ = ["Reconciliation", "held_throughout", "reconcile"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reconciliation:
    alive: tuple[Allocation, ...]
    """Whose containers live, with all that is now known about them."""
    unlisted: tuple[Allocation, ...]
    """Whose containers do not live by this list; when they end is a matter of patience."""
    adopted: tuple[Allocation, ...]
    """What the kubelet has handed out in our name and we did not know."""


def reconcile(
    ledger: Ledger,
    supply: Supply,
    listing: list[Held],
    checkpoint: list[Holder] | None,
    age_of: Callable[[Allocation], float],
) -> Reconciliation:
    living = Living.of(listing)
    holders = [each for each in checkpoint or () if each.resource in ids.RESOURCES]
    pods = _pods_by_uid(holders, listing)
    owners = _owners(holders, pods, living, listing)
    alive, unlisted = [], []
    for entry in ledger:
        owner = owners.get(entry.name)
        if owner is not None:
            known = _merged(entry.owner, owner, certain=age_of(entry) >= UNRECORDED_S)
            alive.append(msgspec.structs.replace(entry, owner=known))
        else:
            life = living.life(entry, age_of, ledger.siblings)
            if life is Life.ALIVE:
                alive.append(entry)
            elif life is Life.GONE:
                unlisted.append(entry)
    return Reconciliation(
        tuple(alive), tuple(unlisted), tuple(_adopted(ledger, supply, listing, holders, owners))
    )


def held_throughout(
    earlier: list[Holder] | None, later: list[Holder] | None
) -> list[Holder] | None:
    """What two readings of the checkpoint agree on; None when one of them failed.

    Ids go from pod to pod: whose they are may be told from a list only if it was made between the
    two. What only one of them has may be of a pod that had these ids before or after.
    """
    if earlier is None or later is None:
        return None
    known = frozenset(earlier)
    return [each for each in later if each in known]


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


def _owners(
    holders: Iterable[Holder],
    pods: dict[str, tuple[str, str]],
    living: Living,
    listing: list[Held],
) -> dict[str, Owner]:
    """Of all allocations whose container lives, by name."""
    owners: dict[str, Owner] = {}
    for held in listing:
        for resource in ids.RESOURCES:
            if some := held.ids.get(resource):
                key = held.key
                owners[allocation_name(resource, some)] = Owner(
                    key.namespace, key.pod, key.container, init=False
                )
    for holder in holders:
        if holder.pod_uid not in pods:
            continue
        namespace, pod = pods[holder.pod_uid]
        name = allocation_name(holder.resource, holder.ids)
        exact = Owner(namespace, pod, holder.container, holder.pod_uid)
        is_init = not living.has(exact.key)
        # Where an app container has the same ids as its pod's init container, it is the owner.
        if name not in owners or not is_init:
            owners[name] = msgspec.structs.replace(exact, init=is_init)
    return owners


def _merged(known: Owner | None, seen: Owner, *, certain: bool) -> Owner:
    """The list has no uids: what was known of the same container stays. It also stays unless it is
    `certain` that the kubelet has written down what it asked for last."""
    if known is None or known.key != seen.key:
        return seen
    return seen if seen.uid and (certain or not known.uid) else known


def _adopted(
    ledger: Ledger,
    supply: Supply,
    listing: list[Held],
    holders: list[Holder],
    owners: dict[str, Owner],
) -> Iterable[Allocation]:
    found: dict[str, tuple[str, frozenset[str]]] = {}
    for held in listing:
        for resource in ids.RESOURCES:
            if some := held.ids.get(resource):
                found[allocation_name(resource, some)] = (resource, some)
    for holder in holders:
        found.setdefault(
            allocation_name(holder.resource, holder.ids), (holder.resource, holder.ids)
        )
    with_memory = {
        owners[name].key
        for name, (resource, _) in found.items()
        if resource == MEMORY_RESOURCE and name in owners
    }
    for name, (resource, some) in found.items():
        if name not in owners or ledger.get(name) is not None:
            continue
        try:
            gpus = {ids.parse(resource, each)[0] for each in some}
        except ids.IdError as error:
            _log.warning("%s has an id that is not ours: %s", owners[name], error)
            continue
        allocation = Allocation(
            resource,
            some,
            supply.order(gpus),
            supply.sharing.unit_bytes,
            owner=owners[name],
            starts=1,
        )
        everything = resource == COMPUTE_RESOURCE and allocation.takes_all_compute
        whole = everything and owners[name].key not in with_memory
        # Whether it was answered with a memory half of its own, nobody knows any more.
        yield msgspec.structs.replace(allocation, whole=whole, companion=everything)
