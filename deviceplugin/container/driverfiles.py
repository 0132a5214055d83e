"""Finds the NVIDIA driver's own files on the host, for containers that no runtime equips.

The list was compared with that of NVIDIA's container toolkit: its libraries for compute, those for
utility but NVSwitch's, and of its programs the one that shows the slice.
"""

from collections.abc import Iterable
from pathlib import Path

from deviceplugin.container.grant import DeviceNode, Mount
from deviceplugin.gpus.driverlibrary import DRIVER_FOLDERS, MULTIARCH

__all__ = [
    "LIBRARIES",
    "LIBRARY_FOLDER",
    "UVM",
    "control_nodes",
    "library_mounts",
    "why_without_cuda",
]

LIBRARIES = {
    "libcuda.so": ("libcuda.so.1", "libcuda.so"),
    "libnvidia-ml.so": ("libnvidia-ml.so.1",),
    "libnvidia-cfg.so": ("libnvidia-cfg.so.1",),
    "libnvidia-ptxjitcompiler.so": ("libnvidia-ptxjitcompiler.so.1",),
    "libnvidia-nvvm.so": ("libnvidia-nvvm.so.4",),
    "libcudadebugger.so": ("libcudadebugger.so.1",),
    "libnvidia-opencl.so": ("libnvidia-opencl.so.1",),
    "libnvidia-allocator.so": ("libnvidia-allocator.so.1",),
    "libnvidia-gpucomp.so": (),
    "libnvidia-fatbinaryloader.so": (),
    "libnvidia-tileiras.so": (),
    "libnvidia-compiler.so": (),
    "libnvidia-pkcs11.so": (),
    "libnvidia-pkcs11-openssl3.so": (),
}
"""By which names each is loaded; those without any are asked for with the driver's version."""
UNVERSIONED = ("libnvidia-nvvm70.so.4",)
"""Files that do not end in the driver's version."""
LIBRARY_FOLDER = Path("/usr/lib64")
"""One of those where containers have them, whatever their processor."""
_PROGRAMS = (
    "usr/bin/nvidia-smi",
    "usr/lib/nvidia/current/nvidia-smi",
    "run/nvidia/driver/usr/bin/nvidia-smi",
    "home/kubernetes/bin/nvidia/bin/nvidia-smi",
)
_PROGRAM_IN_CONTAINER = Path("/usr/bin/nvidia-smi")
UVM = "nvidia-uvm"
_CONTROL = ("nvidiactl", UVM, "nvidia-uvm-tools", "nvidia-modeset")


def control_nodes(host: Path) -> tuple[DeviceNode, ...]:
    """Device nodes that every program needs, whatever its GPU."""
    return tuple(
        DeviceNode(Path("/dev") / name, Path("/dev") / name)
        for name in _CONTROL
        if (host / "dev" / name).exists()
    )


def library_mounts(host: Path, driver: str) -> tuple[Mount, ...]:
    """Each library of this driver version, where loaders look without being told, and nvidia-smi.

    Distributions look in different folders, and a container's image can be of either kind.
    """
    if not driver:
        return ()
    wanted = {f"{stem}.{driver}": names for stem, names in LIBRARIES.items()}
    found = []
    for file, names in {**wanted, **dict.fromkeys(UNVERSIONED, ())}.items():
        source = _find(host, [f"{folder}/{file}" for folder in DRIVER_FOLDERS])
        if source is not None:
            targets = _targets(source)
            found += [Mount(source, each / name) for name in names or (file,) for each in targets]
    program = _find(host, _PROGRAMS)
    if program is not None:
        found.append(Mount(program, _PROGRAM_IN_CONTAINER))
    return tuple(found)


def why_without_cuda(mounts: Iterable[Mount], host: Path, driver: str) -> str:
    """What to do when no program of a container could use CUDA; empty when it could."""
    file = f"libcuda.so.{driver}"
    if not driver or any(mount.host.name == file for mount in mounts):
        return ""
    folders = ", ".join(str(host / folder) for folder in DRIVER_FOLDERS)
    return (
        f"{file} is in none of {folders}: containers could not use CUDA. Look whether --host-dir "
        "is where the host's files are seen; where NVIDIA's container toolkit knows the driver's "
        "place, use --gpu-access runtime"
    )


def _find(host: Path, paths: Iterable[str]) -> Path | None:
    """The first that is there, as the host sees it; links lead out of what we see of it."""
    for path in paths:
        if (host / path).is_file():
            return Path("/") / path
    return None


def _targets(source: Path) -> tuple[Path, Path]:
    triplet = next((each for each in MULTIARCH if each in source.parts), None)
    return LIBRARY_FOLDER, Path("/usr/lib") / (triplet or MULTIARCH[0])
