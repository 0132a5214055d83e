"""What a pod takes of each GPU, its containers running beside or one after the other."""

import sys
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from aliquot.protocol.assignment import Assignment, Slice
from aliquot.protocol.request import WHOLE_PERCENT, ContainerRequest, PodRequest, Role

__all__ = ["Amount", "Footprint", "Share", "footprint_of", "larger", "unlocated_shares"]


class Amount(NamedTuple):
    memory_units: int = 0
    compute_percent: int = 0
    wholes: int = 0
    """How many take the GPU with all of its memory, however much that is."""

    def plus(self, other: "Amount", sign: int = 1) -> "Amount":
        return Amount(
            self.memory_units + sign * other.memory_units,
            self.compute_percent + sign * other.compute_percent,
            self.wholes + sign * other.wholes,
        )

    def at_least(self, other: "Amount") -> "Amount":
        return Amount(*map(max, self, other))


class Share(msgspec.Struct, frozen=True, gc=False):
    """What is taken of one GPU."""

    uuid: str
    amount: Amount


Footprint = tuple[Share, ...]


def footprint_of(assignment: Assignment, pod: PodRequest | None) -> Footprint:
    """By GPU: what runs in the end, or an init container beside earlier sidecars if that is more.

    A container that the request does not know counts as one that runs in the end.
    """
    roles = {each.name: each.role for each in pod.containers} if pod else {}
    order = [each.name for each in pod.containers] if pod else []
    known = [name for name in order if name in assignment.containers]
    names = known + [name for name in assignment.containers if name not in roles]
    running: dict[str, Amount] = {}
    peak: dict[str, Amount] = {}
    for name in names:
        for part in assignment.containers[name]:
            before = running.get(part.uuid, Amount())
            now = before.plus(_amount(part))
            peak[part.uuid] = peak.get(part.uuid, Amount()).at_least(now)
            if roles.get(name) is not Role.INIT:
                running[part.uuid] = now
    return _shares(peak)


def unlocated_shares(pod: PodRequest, containers: tuple[ContainerRequest, ...]) -> Amount:
    """The most that these containers may take of any one GPU, as long as nobody knows which."""
    total = Amount()
    for container in containers:
        gpus = pod.gpus_of(container)
        total = total.plus(
            Amount(
                container.memory_units // gpus,
                container.compute_percent // gpus,
                int(pod.is_whole(container)),
            )
        )
    return total


def larger(one: Footprint, other: Footprint) -> Footprint:
    """On each GPU the larger of both: safe as long as it is open which of them is true."""
    most = {share.uuid: share.amount for share in one}
    for share in other:
        most[share.uuid] = most.get(share.uuid, Amount()).at_least(share.amount)
    return _shares(most)


def _amount(part: Slice) -> Amount:
    whole = not part.memory_units and part.compute_percent >= WHOLE_PERCENT
    return Amount(part.memory_units, part.compute_percent, int(whole))


def _shares(amounts: Mapping[str, Amount]) -> Footprint:
    return tuple(Share(sys.intern(uuid), amount) for uuid, amount in amounts.items())
