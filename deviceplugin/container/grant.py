"""What an allocation is answered with: how a container reaches its GPUs and its caps."""

from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["DeviceNode", "Grant", "Mount"]


@dataclass(frozen=True, slots=True)
class Mount:
    host: Path
    container: Path
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class DeviceNode:
    host: Path
    container: Path
    permissions: str = "rw"


@dataclass(frozen=True, slots=True)
class Grant:
    """The kubelet joins the answers of both resources, dropping entries that are alike."""

    env: dict[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceNode, ...] = ()
    cdi: tuple[str, ...] = ()
