"""What a node has: CPU, host memory, GPUs, and the links between them."""

from dataclasses import dataclass

from aliquot.protocol.inventory import Link

__all__ = ["Gpu", "Link", "Node"]


@dataclass(frozen=True, slots=True)
class Gpu:
    uuid: str
    model: str
    memory_units: int
    index: int = -1
    """What people call it; -1 when it is just its place among the node's GPUs."""


@dataclass(frozen=True, slots=True)
class Node:
    """`links[i][j]` is the link between GPU i and GPU j; left empty when nobody measured it."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: tuple[Gpu, ...] = ()
    links: tuple[tuple[Link, ...], ...] = ()

    def __post_init__(self) -> None:
        count = len(self.gpus)
        if self.links and [len(row) for row in self.links] != [count] * count:
            raise ValueError(f"node {self.name}: the link table must be {count} by {count}")
