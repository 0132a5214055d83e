"""A simulated node for the length of a test, and what a program needs to run on it."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simgpu.node import Node
from simgpu.snapshot import Snapshot

__all__ = ["SimulatedNode", "simulated_node"]

# Kept in memory where possible, so that a slow disk cannot slow a test down.
_FOLDER = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    """What a test has of a node: looking at it, breaking it, and running programs on it."""

    node: Node

    @property
    def path(self) -> Path:
        """The state file."""
        return self.node.path

    @property
    def env(self) -> dict[str, str]:
        """Our environment, with the node and its libraries in it."""
        return self.node.environment()

    def snapshot(self) -> Snapshot:
        return self.node.snapshot()

    def inject(self, device: int, fault: str) -> None:
        self.node.inject(device, fault)


@contextmanager
def simulated_node(spec: str = "1xA100-80G", **options: Any) -> Iterator[SimulatedNode]:
    """A fresh node with these GPUs; options are those of Node.create."""
    with (
        tempfile.TemporaryDirectory(prefix="aliquot-test-", dir=_FOLDER) as folder,
        Node.create(Path(folder) / "node", spec, **options) as node,
    ):
        yield SimulatedNode(node)
