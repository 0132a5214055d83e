"""Brings the ledger in line with what the kubelet says about who holds which ids."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from deviceplugin.booking import ids
from deviceplugin.booking.evidence import Evidence
from deviceplugin.booking.ledger import Allocation, Ledger, Owner
from deviceplugin.booking.liveness import Life
from deviceplugin.booking.presence import UNRECORDED_S
from deviceplugin.booking.supply import Supply

__all__ = ["Reconciliation", "reconcile"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reconciliation:
    alive: tuple[str, ...]
    """Names of all whose containers live."""
    changed: tuple[Allocation, ...]
    """Those of them of which more is known now."""
    unlisted: tuple[Allocation, ...]
    """Whose containers do not live by this list; when they end is a matter of patience."""
    adopted: tuple[Allocation, ...]
    """What the kubelet has handed out in our name and we did not know."""


def reconcile(
    ledger: Ledger, supply: Supply, evidence: Evidence, age_of: Callable[[Allocation], float]
) -> Reconciliation:
    alive, changed, unlisted = [], [], []
    for name, entry in ledger.items():
        claim = evidence.claims.get(name)
        if claim is not None:
            alive.append(name)
            # Nearly all are known just like that, and pods that start wait for this.
            if claim.owner != entry.owner:
                known = _merged(entry.owner, claim.owner, certain=age_of(entry) >= UNRECORDED_S)
                if known != entry.owner:
                    changed.append(msgspec.structs.replace(entry, owner=known))
            continue
        life = evidence.living.life(entry, age_of, ledger.siblings)
        if life is Life.ALIVE:
            alive.append(name)
        elif life is Life.GONE:
            unlisted.append(entry)
    return Reconciliation(
        tuple(alive), tuple(changed), tuple(unlisted), tuple(_adopted(ledger, supply, evidence))
    )


def _merged(known: Owner | None, seen: Owner, *, certain: bool) -> Owner:
    """The list has no uids: what was known of the same container stays. It also stays unless it is
    `certain` that the kubelet has written down what it asked for last."""
    if known is None or known.key != seen.key:
        return seen
    return seen if seen.uid and (certain or not known.uid) else known


def _adopted(ledger: Ledger, supply: Supply, evidence: Evidence) -> Iterable[Allocation]:
    unknown = [each for name, each in evidence.claims.items() if name not in ledger]
    if not unknown:
        return
    claims = evidence.claims.values()
    with_memory = {each.owner.key for each in claims if each.resource == MEMORY_RESOURCE}
    for claim in unknown:
        try:
            gpus = {ids.parse(claim.resource, each)[0] for each in claim.ids}
        except ids.IdError as error:
            _log.warning("%s has an id that is not ours: %s", claim.owner, error)
            continue
        allocation = Allocation(
            claim.resource,
            claim.ids,
            supply.order(gpus),
            supply.sharing.unit_bytes,
            owner=claim.owner,
            starts=1,
        )
        everything = claim.resource == COMPUTE_RESOURCE and allocation.takes_all_compute
        whole = everything and claim.owner.key not in with_memory
        # Whether it was answered with a memory half of its own, nobody knows any more.
        yield msgspec.structs.replace(allocation, whole=whole, companion=everything)
