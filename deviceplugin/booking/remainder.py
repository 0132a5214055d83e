"""Who still holds a part of a GPU when no agent runs any more to keep the books."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from deviceplugin.booking import ids
from deviceplugin.booking.evidence import Evidence
from deviceplugin.booking.ledger import Allocation, Ledger, allocation_name
from deviceplugin.booking.presence import UNLISTED_S
from deviceplugin.booking.reconcile import reconcile
from deviceplugin.booking.sharing import Sharing
from deviceplugin.booking.sources import Held, Holder
from deviceplugin.booking.supply import Supply

__all__ = ["Records", "why_in_use"]


@dataclass(frozen=True, slots=True)
class Records:
    booked: Sequence[Allocation] = ()
    """The journal, which nobody has kept since the agent has ended."""
    listing: list[Held] | None = None
    """None when the kubelet gives no list, as `silence` says."""
    silence: str = ""
    checkpoint: list[Holder] | None = None
    """None when it cannot be read. It has pods that are gone, too."""
    kubelet_age_s: float = float("inf")
    mounted: Mapping[str, str] = field(default_factory=dict)
    """Allocations whose files a running process has mounted, by name, and which process it is."""


def why_in_use(records: Records, sharing: Sharing) -> str:
    """Why nothing may be taken away now, and what to do; empty when everything may."""
    ours = [each for each in records.checkpoint or () if each.resource in ids.RESOURCES]
    named = {each.name: str(each.owner) for each in records.booked if each.owner is not None}
    running = {named.get(name, who) for name, who in records.mounted.items()}
    if records.listing is None:
        booked = {named.get(each.name, each.name) for each in records.booked}
        last = running | booked | ({_by_checkpoint(each) for each in ours} if not booked else set())
        if not last:
            return ""
        return (
            f"the kubelet does not say who holds a part of a GPU ({records.silence}); by the last "
            f"records it was {_list(last)}; start the kubelet and try again"
        )
    ledger = Ledger()
    for each in records.booked:
        ledger.put(each)
    evidence = Evidence.of(records.listing, records.checkpoint)
    found = reconcile(ledger, Supply(sharing), evidence, lambda _: float("inf"))
    for each in found.changed:
        ledger.put(each)
    held = [*(each for each in ledger if each.name in found.alive), *found.adopted]
    holders = running | {str(each.owner) if each.owner else each.name for each in held}
    if holders:
        return f"a part of a GPU is still held by {_list(holders)}; end these pods and try again"
    # Those that are in no list have ended, once a kubelet has had the time to list all its pods.
    recorded = {allocation_name(each.resource, each.ids): _by_checkpoint(each) for each in ours}
    if records.checkpoint is None:
        recorded |= {each.name: each.name for each in records.booked}
    if recorded and records.kubelet_age_s < UNLISTED_S:
        last = {named.get(name, who) for name, who in recorded.items()}
        return (
            f"the kubelet started {records.kubelet_age_s:.0f} s ago and may not have listed all "
            f"its pods yet; by its checkpoint a part of a GPU was held by {_list(last)}; "
            f"try again after {UNLISTED_S:.0f} s"
        )
    return ""


def _by_checkpoint(holder: Holder) -> str:
    return f"container {holder.container} of pod {holder.pod_uid}"


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
