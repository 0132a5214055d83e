"""What the agent puts on the node's disk for containers, and takes away again."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from deviceplugin.gpuaccess import GpuAccess

__all__ = ["ContainerFiles", "UsageStore"]


class UsageStore(Enum):
    """Where tenants may write; chosen by the administrator, never guessed."""

    TMPFS = "tmpfs"
    FOLDER = "folder"
    """A plain folder, for agents that may not mount; a tenant could fill the node's disk."""


@dataclass(frozen=True, slots=True)
class ContainerFiles:
    root: Path
    """Such as /var/lib/aliquot: the same path for the agent and on the host."""
    shim: Path
    """The library to install; copied to a versioned name."""
    access: GpuAccess
    usage_store: UsageStore = UsageStore.TMPFS
