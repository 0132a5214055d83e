"""What one pod asks of a node: CPU, host memory, and a share of one or more GPUs."""

from dataclasses import dataclass

WHOLE_GPU_MILLI = 1000


@dataclass(frozen=True, slots=True)
class Request:
    """Equal requests are one pod type: scores are cached by it, so it is hashable.

    Compute and memory are per GPU. `gpu_memory_units` is in the unit of the inventory; None asks
    for all memory of each GPU and needs all of its compute.
    """

    cpu_milli: int = 0
    memory_mib: int = 0
    gpus: int = 0
    compute_milli: int = 0
    gpu_memory_units: int | None = 0
    models: frozenset[str] = frozenset()
    excluded_models: frozenset[str] = frozenset()
    uuids: frozenset[str] = frozenset()
    excluded_uuids: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if min(self.cpu_milli, self.memory_mib, self.gpus, self.compute_milli) < 0:
            raise ValueError("a request cannot be negative")
        if self.compute_milli > WHOLE_GPU_MILLI:
            raise ValueError(
                f"a GPU has {WHOLE_GPU_MILLI} milli of compute, {self.compute_milli} were asked"
            )
        if self.gpu_memory_units is None:
            if self.gpus and self.compute_milli != WHOLE_GPU_MILLI:
                raise ValueError("only a whole GPU can be asked for without naming memory")
        elif self.gpu_memory_units < 0:
            raise ValueError("a request cannot be negative")
        if self.gpus and not self.compute_milli and not self.gpu_memory_units:
            raise ValueError("a GPU request needs compute or memory")

    @property
    def pins_devices(self) -> bool:
        return bool(self.uuids or self.excluded_uuids)
