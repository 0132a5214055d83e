"""Finds the NVIDIA driver's own files on the host, for containers that no runtime equips."""

import re
from pathlib import Path

from deviceplugin.container.grant import DeviceNode, Mount
from deviceplugin.gpus.driverlibrary import DRIVER_FOLDERS, MULTIARCH

__all__ = ["LIBRARIES", "control_nodes", "library_mounts"]

LIBRARIES = (
    "libcuda.so.1",
    "libnvidia-ml.so.1",
    "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-nvvm.so.4",
    "libnvidia-gpucomp.so",
    "libcudadebugger.so.1",
    "libnvidia-opencl.so.1",
)
_CONTROL = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")


def control_nodes(host: Path) -> tuple[DeviceNode, ...]:
    """Device nodes that every program needs, whatever its GPU."""
    return tuple(
        DeviceNode(Path("/dev") / name, Path("/dev") / name)
        for name in _CONTROL
        if (host / "dev" / name).exists()
    )


def library_mounts(host: Path, driver: str) -> tuple[Mount, ...]:
    """Each library of this driver version, where loaders look without being told.

    Distributions look in different folders, and a container's image can be of either kind.
    """
    found = []
    for name in LIBRARIES:
        source = _library(host, name, driver)
        if source is not None:
            found += [Mount(source, folder / name) for folder in _targets(source)]
    return tuple(found)


def _library(host: Path, name: str, driver: str) -> Path | None:
    """The file itself and not a link to it, as the host sees it."""
    stem = re.sub(r"\.so(\.[0-9]+)?$", ".so", name)
    for folder in DRIVER_FOLDERS:
        exact = host / folder / f"{stem}.{driver}"
        if driver and exact.is_file():
            return Path("/") / folder / exact.name
    return None


def _targets(source: Path) -> tuple[Path, Path]:
    triplet = next((each for each in MULTIARCH if each in source.parts), None)
    return Path("/usr/lib64"), Path("/usr/lib") / (triplet or MULTIARCH[0])
