"""A node that shows no GPU: whether it simply has none for us, or something is the matter."""

from dataclasses import dataclass

from deviceplugin.gpus.inventory import Found
from deviceplugin.gpus.nvml import NvmlError

__all__ = ["Absence", "explain_absence"]


@dataclass(frozen=True, slots=True)
class Absence:
    why: str
    is_fault: bool
    """Whether somebody should do something about it."""


def explain_absence(
    found: Found, error: NvmlError | None, on_bus: tuple[str, ...], doubts: tuple[str, ...] = ()
) -> Absence:
    """Of a node none of whose GPUs is ours. `error` is why NVML did not tell of any, `on_bus` what
    the kernel sees without it, `doubts` why some are left out that may be ours."""
    seen = f"NVIDIA's GPU {', '.join(on_bus)} is on the PCI bus" if on_bus else ""
    if error is not None:
        if error.is_driverless and not on_bus:
            return Absence(f"this node has no GPU ({error.why})", is_fault=False)
        return Absence(f"{seen}, but {error}" if seen else str(error), is_fault=True)
    if found.silent:
        told = "; ".join(f"GPU {index} does not answer: {why}" for index, why in found.silent)
        return Absence(told, is_fault=True)
    if doubts:
        return Absence("; ".join(doubts), is_fault=True)
    if found.gpus:
        count = len(found.gpus)
        text = (
            "the only GPU of this node is" if count == 1 else f"all {count} GPUs of this node are"
        )
        why = "left to others, in MIG mode or without own memory"
        return Absence(f"{text} {why}", is_fault=False)
    if seen:
        return Absence(f"{seen}, but the driver does not show it", is_fault=True)
    return Absence("this node has no GPU", is_fault=False)
