"""Which kinds of GPUs the cluster has now, as far as admission needs to know."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from aliquot.protocol.request import PodRequest

__all__ = ["GpuCatalog", "GpuKind"]


@dataclass(frozen=True, slots=True)
class GpuKind:
    model: str
    memory_units: int


@dataclass(frozen=True, slots=True)
class GpuCatalog:
    """Kinds instead of GPUs: there are few of them however large the cluster is."""

    kinds: frozenset[GpuKind] = frozenset()
    by_uuid: Mapping[str, GpuKind] = field(default_factory=dict)

    def eligible(self, request: PodRequest) -> frozenset[GpuKind]:
        """The kinds that the pod's annotations leave over."""
        kinds = self.kinds
        if request.uuids.wanted:
            named = (self.by_uuid.get(uuid) for uuid in request.uuids.wanted)
            kinds = frozenset(kind for kind in named if kind is not None)
        return frozenset(kind for kind in kinds if request.models.admits_model(kind.model))

    @property
    def models(self) -> list[str]:
        return sorted({kind.model for kind in self.kinds})
