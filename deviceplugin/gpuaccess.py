"""How a container reaches the GPUs themselves: CDI, the NVIDIA runtime, device nodes, simulator."""

from typing import Protocol

from deviceplugin.grant import Grant
from deviceplugin.hardware import Gpu

__all__ = ["GpuAccess"]


class GpuAccess(Protocol):
    def grant(self, gpus: tuple[Gpu, ...]) -> Grant:
        """The same for both resources, to the byte."""
