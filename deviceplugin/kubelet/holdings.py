"""Reads the kubelet's lists of who holds what, of which nearly all is as it was in the last one."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass

from deviceplugin.booking.ids import RESOURCES
from deviceplugin.booking.sources import ContainerKey, Held, SameIds
from deviceplugin.kubelet.proto import holdings_pb2 as messages
from deviceplugin.kubelet.proto import pod_resources_pb2 as api

__all__ = ["HoldingsReader", "of_others"]

# How devices of ours begin: the name's tag and length, and the name.
_OURS = tuple(bytes((0x0A, len(each))) + each.encode() for each in RESOURCES)


@dataclass(frozen=True, slots=True)
class _Known:
    mark: tuple[int, int]
    held: Held


class HoldingsReader:
    """Any thread may read. Who is listed as before is the same object as before."""

    def __init__(self, same: SameIds = lambda _resource, some: some) -> None:
        self._same = same
        self._known: dict[tuple[str, str, str], _Known] = {}

    def read(self, answer: messages.Holdings) -> list[Held]:
        before, present = self._known, {}
        listed = []
        for pod in answer.pods:
            namespace, name = sys.intern(pod.namespace), pod.name
            for container in pod.containers:
                key = namespace, name, container.name
                # A slice is a list at once; anything that iterates asks for one after the other.
                devices = container.devices[:]
                # The kubelet lists a container's ids in another order each time. Keeping them all
                # to compare would take megabytes, and two hashes of 64 bits do not meet by chance.
                mark = hash(frozenset(devices)), len(devices)
                known = before.get(key)
                if known is None or known.mark != mark:
                    known = _Known(mark, Held(ContainerKey(*key), self._ids(devices)))
                present[key] = known
                # Not by key: a pod and its successor of the same name may both be there.
                listed.append(known.held)
        self._known = present
        return listed

    def _ids(self, devices: Iterable[bytes]) -> dict[str, frozenset[str]]:
        found = _by_resource(devices)
        return {resource: self._same(resource, some) for resource, some in found.items()}


def of_others(answer: messages.Allocatable) -> dict[str, frozenset[str]]:
    """Ids that other plugins advertise, by resource."""
    return _by_resource(each for each in answer.devices[:] if not each.startswith(_OURS))


def _by_resource(devices: Iterable[bytes]) -> dict[str, frozenset[str]]:
    found: dict[str, list[str]] = {}
    for each in devices:
        entry = api.ContainerDevices.FromString(each)
        found.setdefault(entry.resource_name, []).extend(entry.device_ids)
    # Interned: the same thousands of ids come again and again, and some are kept for long.
    return {resource: frozenset(map(sys.intern, some)) for resource, some in found.items()}
