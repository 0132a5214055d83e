"""The decision of a resize: which free ids a running container gets, or how much it gives up."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from aliquot.protocol.request import WHOLE_PERCENT
from deviceplugin.booking import ids
from deviceplugin.booking.errors import Refusal
from deviceplugin.booking.ledger import Allocation, Ledger
from deviceplugin.booking.preference import amount_text
from deviceplugin.booking.sources import PodView
from deviceplugin.booking.supply import Supply
from deviceplugin.container.files import SHARE_OF_A_PERCENT
from shim.limits import Limits

__all__ = ["Resized", "halves", "resized", "restored"]


@dataclass(frozen=True, slots=True)
class Resized:
    """What a container has after a resize."""

    memory_units: int
    compute_percent: int
    changed: bool


def halves(ledger: Ledger, pod: PodView, container: str) -> dict[str, Allocation]:
    """What a container has, by resource; a Refusal if it cannot be resized at all."""
    found = {
        each.resource: each
        for each in ledger.of_view(pod)
        if each.owner is not None and each.owner.container == container
    }
    if any(each.whole for each in found.values()):
        raise Refusal(f"container {container} has whole GPUs; there is nothing to resize")
    if len(found) < len(ids.RESOURCES):
        raise Refusal(
            f"container {container} has no share of a GPU here, or has only just been admitted; "
            "check its name, or try again when it runs"
        )
    return found


def resized(
    allocation: Allocation,
    total: int,
    supply: Supply,
    ledger: Ledger,
    reserved: Collection[str] = (),
) -> Allocation:
    """The allocation with another total over its GPUs. The kubelet's ids stay its own; beyond
    those it gets free ones of the same GPUs. `reserved` are promised to somebody."""
    each = _each(allocation, total, supply)
    own = Counter(map(ids.gpu_of, allocation.ids))
    extra: set[str] = set()
    for uuid in allocation.gpus:
        more = each - own[uuid]
        if more <= 0:
            continue
        kept = [one for one in allocation.extra if ids.gpu_of(one) == uuid]
        free = [
            one for one in ledger.free(supply, allocation.resource, uuid) if one not in reserved
        ]
        if reason := supply.why_unusable(uuid):
            raise Refusal(f"{supply.name(uuid)} {reason}; nothing can grow there")
        kept.sort(key=ids.number_of)
        usable = kept + free
        if len(usable) < more:
            raise Refusal(_no_room(allocation, each, own[uuid] + len(usable), uuid, supply))
        extra.update(usable[:more])
    shrinks = any(each < own[uuid] for uuid in allocation.gpus)
    most = max(allocation.fell_from or 0, *allocation.amounts().values())
    return msgspec.structs.replace(
        allocation,
        extra=frozenset(extra),
        shrunk_to=each if shrinks else None,
        fell_from=most if most > each else None,
    )


def restored(allocation: Allocation, found: Limits, supply: Supply, ledger: Ledger) -> Allocation:
    """An allocation that we had forgotten, as large as its limits on disk say it was made."""
    if allocation.whole or {each.uuid for each in found.devices} != set(allocation.gpus):
        return allocation
    if allocation.resource == MEMORY_RESOURCE:
        sizes = {(each.limit_bytes or 0) // allocation.unit_bytes for each in found.devices}
    else:
        sizes = {each.share // SHARE_OF_A_PERCENT for each in found.devices}
    if len(sizes) != 1 or not (each := sizes.pop()):
        return allocation
    try:
        return resized(allocation, each * len(allocation.gpus), supply, ledger)
    except Refusal:
        return allocation


def _each(allocation: Allocation, total: int, supply: Supply) -> int:
    gpus = len(allocation.gpus)
    what = "memory units" if allocation.resource == MEMORY_RESOURCE else "percent"
    if total < gpus or total % gpus:
        raise Refusal(
            f"{total} {what} cannot be split evenly over its {gpus} GPUs; ask for a multiple of "
            f"{gpus}"
            if gpus > 1
            else f"{total} {what} are nothing; ask for 1 or more, or delete the pod"
        )
    each = total // gpus
    if allocation.resource == COMPUTE_RESOURCE and each > WHOLE_PERCENT:
        raise Refusal(
            f"{total} percent are more than its {gpus} GPU{'s' if gpus > 1 else ''}; "
            f"ask for {gpus * WHOLE_PERCENT} at most"
        )
    return each


def _no_room(allocation: Allocation, each: int, most: int, uuid: str, supply: Supply) -> str:
    def text(amount: int) -> str:
        return amount_text(allocation.resource, amount, supply.sharing.unit_bytes)

    has = allocation.amounts()[uuid]
    return (
        f"cannot grow to {text(each)} on {supply.name(uuid)}: it has {text(has)}, and "
        f"{text(max(0, most - has))} more are free; ask for {text(most)} at most, or wait until "
        "others end"
    )
