"""Pods as far as a device manager looks at them."""

import uuid
from dataclasses import dataclass, field
from enum import Enum

from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE

__all__ = ["Container", "Pod", "Role"]


class Role(Enum):
    APP = "app"
    INIT = "init"
    SIDECAR = "sidecar"


@dataclass(frozen=True)
class Container:
    name: str
    limits: dict[str, int]
    role: Role = Role.APP

    @classmethod
    def asking(
        cls, memory: int = 0, compute: int = 0, *, name: str = "main", role: Role = Role.APP
    ) -> "Container":
        """With units of memory and percent of compute; what is 0 is not asked for at all."""
        limits = {MEMORY_RESOURCE: memory, COMPUTE_RESOURCE: compute}
        return cls(name, {resource: count for resource, count in limits.items() if count}, role)


@dataclass(frozen=True)
class Pod:
    name: str
    containers: tuple[Container, ...]
    namespace: str = "default"
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))

    @classmethod
    def asking(cls, name: str, memory: int = 0, compute: int = 0, **options: str) -> "Pod":
        """With one container."""
        return cls(name, (Container.asking(memory, compute),), **options)

    def container(self, name: str) -> Container:
        return next(each for each in self.containers if each.name == name)

    @property
    def in_order(self) -> list[Container]:
        """As the kubelet admits them: init containers and sidecars first, then the others."""
        return sorted(self.containers, key=lambda container: container.role is Role.APP)
