"""What the node's GPUs are, as the rest of the agent sees them; found by `inventory`."""

from dataclasses import dataclass

from aliquot.protocol.inventory import Link

__all__ = ["Gpu", "Hardware"]


@dataclass(frozen=True, slots=True)
class Gpu:
    uuid: str
    """As NVML writes it: `GPU-` and a UUID in lower case."""
    index: int
    model: str
    memory_bytes: int
    sms: int = 0
    numa: int = -1
    minor: int = 0
    """The number in /dev/nvidia<minor>."""
    unusable: str = ""
    """Why nothing new may start on it, in a few words; empty when it is healthy."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """A moment's picture: only GPUs that are ours to hand out, in NVML's order."""

    gpus: tuple[Gpu, ...] = ()
    links: tuple[tuple[Link, ...], ...] = ()
    driver: str = ""
