"""Where distributions keep the NVIDIA driver's libraries, and NVML loaded from another root."""

import ctypes
import functools
from pathlib import Path

__all__ = ["DRIVER_FOLDERS", "MULTIARCH", "load_nvml"]

MULTIARCH = ("x86_64-linux-gnu", "aarch64-linux-gnu")
DRIVER_FOLDERS = (
    *(f"usr/lib/{triplet}" for triplet in MULTIARCH),
    *(f"usr/lib/{triplet}/nvidia/current" for triplet in MULTIARCH),
    "usr/lib64",
    "usr/lib",
    "run/nvidia/driver/usr/lib64",
    *(f"run/nvidia/driver/usr/lib/{triplet}" for triplet in MULTIARCH),
    "home/kubernetes/bin/nvidia/lib64",  # where Google's GKE installs it
)


def load_nvml(host: Path) -> None:
    """Loads the library of a host whose files are below `host`, so that it is found by its name.

    Its folder on the loader's path would not do: that folder has the host's C library, too, which
    does not go with our loader.
    """
    for folder in DRIVER_FOLDERS:
        found = host / folder / "libnvidia-ml.so.1"
        try:
            _load(found)
        except OSError:  # not there, not there yet, or of another processor
            continue
        return


@functools.cache
def _load(library: Path) -> ctypes.CDLL:
    """Kept: what nobody holds would be unloaded again."""
    return ctypes.CDLL(str(library))
