"""The GPUs of this machine, as NVML lists them."""

from collections.abc import Iterable
from dataclasses import dataclass

from aliquot.errors import UserError

__all__ = ["Gpu", "choose", "find"]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; the index is NVML's, the one that nvidia-smi shows."""

    index: int
    uuid: str
    memory_bytes: int


def find() -> list[Gpu]:
    """All GPUs there are, at least one."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        raise UserError("there is no NVIDIA driver here: libnvidia-ml.so.1 was not found") from None
    except pynvml.NVMLError as error:
        raise UserError(f"NVML does not answer: {error}") from None
    try:
        handles = [
            pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
        ]
        gpus = [
            Gpu(
                index,
                pynvml.nvmlDeviceGetUUID(handle),
                int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
            )
            for index, handle in enumerate(handles)
        ]
    except pynvml.NVMLError as error:
        raise UserError(f"NVML cannot list the GPUs: {error}") from None
    finally:
        pynvml.nvmlShutdown()
    if not gpus:
        raise UserError("there is no GPU on this machine")
    return gpus


def choose(gpus: list[Gpu], wanted: Iterable[str]) -> list[Gpu]:
    """The GPUs with these numbers or uuids, each once, in NVML's order; all when none is named."""
    names = list(wanted)
    chosen = {_named(gpus, name) for name in names} if names else set(gpus)
    return sorted(chosen, key=lambda gpu: gpu.index)


def _named(gpus: list[Gpu], name: str) -> Gpu:
    for gpu in gpus:
        if name == str(gpu.index) or name.lower() == gpu.uuid.lower():
            return gpu
    there_are = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in gpus)
    raise UserError(f"there is no GPU {name}; there are {there_are}")
