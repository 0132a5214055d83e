"""The GPUs that the kernel's part of the driver has: a folder for each, with a text about it."""

import os
from pathlib import Path

__all__ = ["KERNEL_LIST", "entries", "minor_of"]

KERNEL_LIST = Path("/proc/driver/nvidia/gpus")


def entries(folder: Path = KERNEL_LIST) -> tuple[str, ...]:
    """Their addresses on the bus."""
    try:
        return tuple(sorted(os.listdir(folder)))  # noqa: PTH208 - names are all that is needed
    except OSError:
        return ()  # no such driver, or one of another kind


def minor_of(uuid: str, folder: Path = KERNEL_LIST) -> int | None:
    """The number in /dev/nvidia<minor>; None where the kernel does not tell."""
    for entry in entries(folder):
        try:
            lines = (folder / entry / "information").read_text(errors="replace").splitlines()
        except OSError:
            continue  # gone just now
        told = {
            name.strip(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        minor = told.get("Device Minor", "")
        if told.get("GPU UUID", "").lower() == uuid.lower() and minor.isdecimal():
            return int(minor)
    return None
