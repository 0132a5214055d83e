"""The five pods of the demo, in the order in which they come."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE, POLICY

__all__ = ["BATCH", "CAST", "CHAT", "NOTEBOOK", "RENDER", "TRAIN", "Part"]

_PROGRAM = Path(__file__).with_name("program.py")
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Part:
    """A pod, and what it asks for."""

    name: str
    memory_gib: int
    compute_percent: int
    policy: str

    @property
    def memory_bytes(self) -> int:
        return self.memory_gib * _GIB

    @property
    def asks(self) -> str:
        return f"{self.memory_gib} GiB and {self.compute_percent} % of a GPU, {self.policy}"

    def manifest(self) -> dict[str, Any]:
        """As a user writes it; units and scheduler are the webhook's business."""
        limits = {
            MEMORY_RESOURCE: f"{self.memory_gib}Gi",
            COMPUTE_RESOURCE: str(self.compute_percent),
        }
        container = {
            "name": "main",
            "image": "demo",
            "command": [sys.executable, "-I", str(_PROGRAM)],
            "stdin": True,
            "resources": {"limits": limits},
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name, "annotations": {POLICY: self.policy}},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }


# Sizes make the story: the first two fill a GPU's compute, so that what one lends the other must
# give back. The next two leave 18 GiB and 30 % on the other GPU: the last one's 24 GiB are free on
# the node, but on no GPU.
TRAIN = Part("train", 40, 60, "burst")
NOTEBOOK = Part("notebook", 20, 40, "burst")
CHAT = Part("chat", 30, 50, "fixed")
BATCH = Part("batch", 32, 20, "fixed")
RENDER = Part("render", 24, 30, "fixed")
CAST = (TRAIN, NOTEBOOK, CHAT, BATCH, RENDER)
