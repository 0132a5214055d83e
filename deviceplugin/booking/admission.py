"""The decision of Allocate: whether ids may be booked, and whose entries end with that."""

from collections.abc import Collection
from dataclasses import dataclass

from aliquot.protocol.request import WHOLE_PERCENT
from deviceplugin.booking import ids
from deviceplugin.booking.errors import Conflict, Refusal
from deviceplugin.booking.identity import Admitted
from deviceplugin.booking.ledger import Allocation, Ledger, Owner, allocation_name
from deviceplugin.booking.supply import Supply

__all__ = ["Admission", "Answered", "admit"]


@dataclass(frozen=True, slots=True)
class Answered:
    """What GetPreferredAllocation answered, for the Allocate that follows it."""

    ids: frozenset[str]
    at_s: float
    admitted: Admitted | None = None
    must_include: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Admission:
    allocation: Allocation
    ended: tuple[Allocation, ...] = ()
    """Entries of containers that are gone and had some of the ids."""
    is_repeated: bool = False
    """The same ids for the same pod again: its files are there already."""


def admit(
    resource: str,
    some: Collection[str],
    supply: Supply,
    ledger: Ledger,
    answered: Answered | None,
) -> Admission:
    """`answered` is ours if we were asked about exactly these ids, and then they are on the GPU of
    the container's other resource; else nobody asked us, and only its start can tell."""
    wanted = frozenset(some)
    if len(wanted) < len(some):
        raise Refusal(f"{len(some)} ids of {resource} of which only {len(wanted)} are different")
    gpus = _gpus(resource, wanted, supply, answered)
    ended = _ended(wanted, ledger, answered)
    present = ledger.get(allocation_name(resource, wanted))
    if present is not None and present not in ended:
        return Admission(present, tuple(ended), is_repeated=True)
    admitted = answered.admitted if answered is not None else None
    if admitted is not None and admitted.is_guess:
        admitted = None
    allocation = Allocation(
        resource,
        wanted,
        gpus,
        supply.sharing.unit_bytes,
        owner=_owner(wanted, ledger, answered, admitted),
    )
    if admitted is not None:
        allocation = _described(allocation, admitted)
    elif allocation.takes_all_compute:
        allocation = _with(allocation, companion=True)
    return Admission(allocation, tuple(ended))


def _gpus(
    resource: str, wanted: frozenset[str], supply: Supply, answered: Answered | None
) -> tuple[str, ...]:
    if not wanted:
        raise Refusal(f"an allocation of {resource} without ids")
    split: dict[str, list[int]] = {}
    for each in wanted:
        try:
            uuid, number = ids.parse(resource, each)
        except ids.IdError as error:
            raise Refusal(str(error)) from None
        split.setdefault(uuid, []).append(number)
    for uuid, numbers in split.items():
        reason = supply.why_unusable(uuid)
        if reason:
            raise Refusal(f"{supply.name(uuid)} {reason}; it was handed out a moment too late")
        count = supply.count(resource, uuid)
        if max(numbers) >= count:
            raise Refusal(
                f"number {max(numbers)} does not exist: {supply.name(uuid)} has {count} ids of "
                f"{resource}, which count from 0"
            )
    whole = all(len(each) == WHOLE_PERCENT for each in split.values())
    if answered is None and len(split) > 1 and not whole:
        raise Refusal(
            f"{len(wanted)} ids of {resource} on {len(split)} GPUs that nobody planned like that; "
            "the kubelet has to ask for our preference (GetPreferredAllocation)"
        )
    return supply.order(set(split))


def _ended(wanted: frozenset[str], ledger: Ledger, answered: Answered | None) -> list[Allocation]:
    """Who had some of the ids and is gone; a Refusal if somebody has them still."""
    gone = answered.gone if answered is not None else frozenset()
    re_used = answered.must_include if answered is not None else wanted
    ended: dict[str, Allocation] = {}
    held = wanted - ledger.unheld(wanted)
    for each in sorted(held):
        for holder in ledger.holders(each):
            if holder.name in gone:
                ended[holder.name] = holder
            elif each not in re_used or each in holder.extra or not _passes_on(holder):
                raise Conflict(
                    f"{each} is held by {holder.holder()}; the kubelet has handed it out twice. "
                    "Create the pod anew; its controller does so by itself"
                )
    if answered is None and not ended and held and len(held) < len(wanted):
        raise Refusal(
            f"{len(held)} of {len(wanted)} ids are held by "
            f"{ledger.holders(min(held))[0].holder()}; create the pod anew"
        )
    return list(ended.values())


def _passes_on(holder: Allocation) -> bool:
    """Whether the kubelet may give its ids to the next container of the same pod: a plain init
    container's. All of a pod is admitted before any of it starts."""
    init = holder.owner.init if holder.owner is not None else None
    return init if init is not None else holder.starts == 0


def _owner(
    wanted: frozenset[str], ledger: Ledger, answered: Answered | None, admitted: Admitted | None
) -> Owner | None:
    """Of re-used ids at least the pod is known: the one of who had them first."""
    if admitted is not None:
        return admitted.owner
    re_used = wanted if answered is None else answered.must_include
    for holder in ledger.holders(min(re_used)) if re_used else ():
        if holder.owner is not None:
            return Owner(holder.owner.namespace, holder.owner.pod, uid=holder.owner.uid)
    return None


def _described(allocation: Allocation, admitted: Admitted) -> Allocation:
    pod, request = admitted.pod, admitted.request
    if request is None or pod is None or pod.request is None:
        possible = allocation.takes_all_compute and admitted.partner is None
        return _with(allocation, companion=possible)
    whole = allocation.takes_all_compute and pod.request.is_whole(request)
    return _with(allocation, whole=whole, companion=whole)


def _with(allocation: Allocation, whole: bool = False, companion: bool = False) -> Allocation:
    return Allocation(
        allocation.resource,
        allocation.ids,
        allocation.gpus,
        allocation.unit_bytes,
        owner=allocation.owner,
        whole=whole,
        companion=companion,
    )
