"""A share of a simulated GPU for a test: its files, and the environment of its programs."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shim import limits, usage
from tests.simulated import SimulatedNode

ROOT = Path(__file__).parent.parent
SHIM = ROOT / "shim" / "libaliquot.so"
MIB = 1 << 20
GIB = 1 << 30
BLOCK = 2 * MIB
"""What device memory comes in."""

PATIENCE_S = 120
"""Far beyond what anything here takes, on a machine that does many things at once."""


@dataclass(frozen=True)
class Share:
    """A container's view of a node: caps for some of its GPUs, in this order."""

    node: SimulatedNode
    directory: Path

    @classmethod
    def make(cls, node: SimulatedNode, directory: Path, caps: dict[int, int | None]) -> "Share":
        """`caps` are bytes by the GPU's index in the node; None is no cap."""
        devices = node.snapshot().devices
        entries = tuple(limits.DeviceLimits(devices[gpu].uuid, cap) for gpu, cap in caps.items())
        for name, kind in (("memory", limits.Kind.MEMORY), ("compute", limits.Kind.COMPUTE)):
            folder = directory / name
            folder.mkdir(parents=True)
            limits.create(folder / "limits", kind, limits.Limits(entries))
            usage.create(folder / "usage", kind, len(entries))
        return cls(node, directory)

    def environment(self, **more: str) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if "CUDA" not in name}
        return {
            **self.node.node.environment(clean),
            "ALIQUOT_RUN": str(self.directory),
            "LD_PRELOAD": str(SHIM),
            **more,
        }

    def run(self, command: Sequence[str | Path], **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(word) for word in command],
            env=self.environment(**more),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

    def held_bytes(self, pid: int, device: int = 0) -> int:
        """What the account has of a process."""
        book = usage.read(self.directory / "memory" / "usage", limits.Kind.MEMORY)
        for process in book.processes:
            if process.pid == pid:
                return process.held_bytes[device]
        return 0
