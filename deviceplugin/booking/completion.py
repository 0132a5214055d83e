"""The decision of PreStartContainer: whose an allocation is, and whether both halves are there."""

from collections.abc import Iterable
from dataclasses import dataclass

from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from deviceplugin.booking import ids
from deviceplugin.booking.errors import Retry
from deviceplugin.booking.ledger import Allocation, Ledger, Owner, allocation_name
from deviceplugin.booking.sources import Held, Holder
from deviceplugin.booking.supply import Supply

__all__ = ["Completion", "check_halves", "check_ids", "complete", "known"]


@dataclass(frozen=True, slots=True)
class Completion:
    owner: Owner | None
    other_ids: frozenset[str]
    """What the container has of the other resource."""


def known(resource: str, some: frozenset[str], supply: Supply, ledger: Ledger) -> Allocation:
    """The entry, or a new one for what an earlier agent has given and the journal has lost."""
    allocation = ledger.get(allocation_name(resource, some))
    if allocation is not None:
        return allocation
    try:
        gpus = {ids.parse(resource, each)[0] for each in some}
    except ids.IdError as error:
        raise Retry(str(error)) from None
    return Allocation(resource, some, supply.order(gpus), supply.sharing.unit_bytes)


def complete(
    allocation: Allocation, checkpoint: list[Holder] | None, listing: list[Held] | None
) -> Completion | None:
    """None when more sources are needed: the kubelet's list names pods, its checkpoint has their
    uids and plain init containers."""
    listed = _listed(allocation, listing or ())
    if checkpoint is not None:
        holder = _holder(allocation, checkpoint, listed)
        if holder is not None:
            owner = _owner(allocation, holder, listed)
            if owner is None and listing is None:
                return None
            other = _half(checkpoint, holder, ids.other(allocation.resource))
            return Completion(owner, other)
    if listed is not None:
        owner = Owner(listed.key.namespace, listed.key.pod, listed.key.container, init=False)
        return Completion(owner, listed.ids.get(ids.other(allocation.resource), frozenset()))
    return None


def check_ids(allocation: Allocation, others: Iterable[Allocation]) -> None:
    """Ids that a journal has lost may have gone to somebody else meanwhile."""
    for another in others:
        # Of unknown pods, Allocate has let pass only who re-uses an init container's ids.
        if another.owner is None:
            continue
        for each in another.all_ids & allocation.ids:
            raise Retry(f"{each} is held by {another.holder()}; it starts when that has ended")


def check_halves(
    allocation: Allocation, other_ids: frozenset[str], supply: Supply, others: Iterable[Allocation]
) -> None:
    """`others` is who else is on its GPUs. A Retry has a text that its user can act on."""
    amount = len(allocation.ids)
    if other_ids:
        here, there = set(allocation.gpus), set(map(ids.gpu_of, other_ids))
        if here != there:
            raise Retry(
                f"its {allocation.resource} is on {_names(here, supply)} and its "
                f"{ids.other(allocation.resource)} on {_names(there, supply)}; create the pod anew"
            )
    elif allocation.resource == MEMORY_RESOURCE:
        raise Retry(
            f"has {MEMORY_RESOURCE} but no {COMPUTE_RESOURCE}, and every container needs a share "
            f"of the GPU's time: add {COMPUTE_RESOURCE}, for example 10 for ten percent. "
            "Aliquot's admission webhook adds it by itself where it runs"
        )
    elif not allocation.takes_all_compute:
        raise Retry(
            f"has {amount} percent of {COMPUTE_RESOURCE} but no {MEMORY_RESOURCE}: add "
            f"{MEMORY_RESOURCE}, for example 4Gi through the admission webhook or 16 units of "
            f"{supply.sharing.unit_mib} MiB; only whole GPUs (100, 200, ...) come without it"
        )
    else:
        for another in others:
            raise Retry(
                f"asked for whole GPUs, and {another.holder()} is still on "
                f"{_names(set(another.gpus) & set(allocation.gpus), supply)}; it starts when that "
                "has ended"
            )


def _listed(allocation: Allocation, listing: Iterable[Held]) -> Held | None:
    for held in listing:
        if held.ids.get(allocation.resource) == allocation.ids:
            return held
    return None


def _holder(allocation: Allocation, checkpoint: list[Holder], listed: Held | None) -> Holder | None:
    """Of several with the same ids (an init container and who re-uses them, or a pod that is
    gone), the one that is listed and has both halves."""
    found = [
        each
        for each in checkpoint
        if each.resource == allocation.resource and each.ids == allocation.ids
    ]

    def worth(holder: Holder) -> tuple[bool, bool, bool]:
        owner = allocation.owner
        return (
            listed is not None and holder.container == listed.key.container,
            bool(_half(checkpoint, holder, ids.other(allocation.resource))),
            owner is not None and owner.uid == holder.pod_uid,
        )

    return max(found, key=worth, default=None)


def _half(checkpoint: Iterable[Holder], holder: Holder, resource: str) -> frozenset[str]:
    for each in checkpoint:
        if (each.pod_uid, each.container, each.resource) == (
            holder.pod_uid,
            holder.container,
            resource,
        ):
            return each.ids
    return frozenset()


def _owner(allocation: Allocation, holder: Holder, listed: Held | None) -> Owner | None:
    known = allocation.owner
    if listed is not None:
        key, is_init = listed.key, holder.container != listed.key.container
        return Owner(key.namespace, key.pod, holder.container, holder.pod_uid, is_init)
    if known is not None and known.uid in ("", holder.pod_uid):
        init = known.init if known.container == holder.container else None
        return Owner(known.namespace, known.pod, holder.container, holder.pod_uid, init)
    return None


def _names(uuids: set[str], supply: Supply) -> str:
    return " and ".join(map(supply.name, supply.order(uuids)))
