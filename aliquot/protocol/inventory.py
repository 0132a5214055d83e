"""What a node has for GPUs: one compact annotation on the Node, written by its agent."""

import enum

import msgspec

from aliquot.protocol.assignment import MalformedError

__all__ = ["GpuRecord", "Link", "NodeInventory", "decode", "encode"]


class Link(enum.IntEnum):
    """How two GPUs of a node reach each other; the larger, the better."""

    SYSTEM = 0
    NUMA = 1
    PCIE_SWITCH = 2
    NVLINK = 3


class GpuRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    uuid: str
    index: int
    model: str
    memory_units: int
    """What is advertised: without what is kept back."""
    compute_percent: int = 100
    """More than 100 where the administrator over-commits compute."""
    memory_mib: int = 0
    sms: int = 0
    numa: int = -1
    unusable: str = ""
    """Why nothing new may start here, in a few words; empty for a healthy GPU."""


class NodeInventory(msgspec.Struct, frozen=True, omit_defaults=True):
    gpus: tuple[GpuRecord, ...]
    unit_mib: int = 256
    driver: str = ""
    links: tuple[tuple[Link, ...], ...] = ()
    """`links[i][j]` between the i-th and the j-th of `gpus`; empty when nobody measured it."""
    agent_url: str = ""
    """Where the agent answers `/view` inside the cluster; empty when it does not."""

    def __post_init__(self) -> None:
        count = len(self.gpus)
        if self.links and [len(row) for row in self.links] != [count] * count:
            raise ValueError(f"the link table must be {count} by {count}")


def encode(inventory: NodeInventory) -> str:
    return msgspec.json.encode(inventory, order="sorted").decode()


def decode(text: str) -> NodeInventory:
    try:
        return msgspec.json.decode(text, type=NodeInventory)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedError(str(error)) from None
