"""NVIDIA GPUs on the PCI bus: they are there whether or not a driver is."""

from pathlib import Path

__all__ = ["gpus_on_bus"]

DEVICES = "sys/bus/pci/devices"
_NVIDIA = "0x10de"
_DISPLAY = "0x03"
"""Class of display controllers, which GPUs without an output are, too."""
_GIVEN_AWAY = ("vfio-pci", "pci-stub", "xen-pciback", "pciback")
"""Drivers that hold a GPU for a virtual machine: no business of this node's own driver."""


def gpus_on_bus(host: Path = Path("/")) -> tuple[str, ...]:
    """Their addresses; none where the kernel has no such bus."""
    return tuple(sorted(each.name for each in _entries(host / DEVICES) if _is_gpu(each)))


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _is_gpu(device: Path) -> bool:
    try:
        is_nvidias = (device / "vendor").read_text().strip() == _NVIDIA
        if not is_nvidias or not (device / "class").read_text().startswith(_DISPLAY):
            return False
    except OSError:
        return False  # gone just now
    driver = device / "driver"
    return not (driver.is_symlink() and driver.readlink().name in _GIVEN_AWAY)
