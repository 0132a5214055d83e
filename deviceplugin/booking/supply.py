"""Which ids this node has: its GPUs, divided as the administrator wants."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from aliquot.protocol.names import MEMORY_RESOURCE
from deviceplugin.booking import ids
from deviceplugin.booking.sharing import Sharing
from deviceplugin.booking.sources import Held
from deviceplugin.gpus.hardware import Gpu, Hardware

__all__ = ["Supply", "held_by_others"]


_NONE = Hardware()


@dataclass(frozen=True)
class Supply:
    sharing: Sharing
    hardware: Hardware = _NONE
    foreign: Mapping[str, str] = field(default_factory=dict)
    """GPUs that another plugin has handed out, by uuid, and as which resource."""

    def __post_init__(self) -> None:
        self._by_uuid.update({gpu.uuid: gpu for gpu in self.hardware.gpus})

    _by_uuid: dict[str, Gpu] = field(default_factory=dict, init=False, repr=False, compare=False)

    def gpu(self, uuid: str) -> Gpu | None:
        return self._by_uuid.get(uuid)

    def count(self, resource: str, uuid: str) -> int:
        """How many ids of a GPU there are; none of one that is gone."""
        gpu = self._by_uuid.get(uuid)
        if gpu is None:
            return 0
        if resource == MEMORY_RESOURCE:
            sharing = self.sharing
            return ids.memory_units(gpu.memory_bytes, sharing.kept_back_bytes, sharing.unit_bytes)
        return self.sharing.compute_percent

    def ids(self, resource: str, uuid: str) -> tuple[str, ...]:
        return _ids(resource, uuid, self.count(resource, uuid))

    def why_unusable(self, uuid: str) -> str:
        """In a few words; empty when new containers may start on it."""
        gpu = self._by_uuid.get(uuid)
        if gpu is None:
            return "is not on this node any more"
        if gpu.unusable:
            return f"is unusable: {gpu.unusable}"
        if uuid in self.foreign:
            return f"is in use as {self.foreign[uuid]}, which another plugin hands out"
        return ""

    def usable(self) -> Iterator[Gpu]:
        return (gpu for gpu in self.hardware.gpus if not self.why_unusable(gpu.uuid))

    def name(self, uuid: str) -> str:
        """As people call it."""
        gpu = self._by_uuid.get(uuid)
        return f"GPU {gpu.index}" if gpu is not None else uuid

    def order(self, uuids: set[str]) -> tuple[str, ...]:
        """GPUs in the node's order, those that are gone last."""
        return tuple(sorted(uuids, key=lambda uuid: (self._index(uuid), uuid)))

    def _index(self, uuid: str) -> int:
        gpu = self._by_uuid.get(uuid)
        return gpu.index if gpu is not None else 1 << 30


@cache
def _ids(resource: str, uuid: str, count: int) -> tuple[str, ...]:
    return ids.ids_of(resource, uuid, count)


def held_by_others(listing: list[Held], hardware: Hardware) -> dict[str, str]:
    """GPUs that containers have through another plugin's resource, and which resource that is."""
    uuids = {gpu.uuid for gpu in hardware.gpus}
    found = {}
    for held in listing:
        for resource, some in held.ids.items():
            if resource in ids.RESOURCES:
                continue
            for each in some:
                # Plugins that time-slice append a number: GPU-...::3.
                uuid = each.partition("::")[0]
                if uuid in uuids:
                    found[uuid] = resource
    return found
