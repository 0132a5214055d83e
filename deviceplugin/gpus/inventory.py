"""Which GPUs the node has, which of them are ours, and how they reach each other."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from aliquot.protocol.inventory import Link
from deviceplugin.gpus.nvml import GpuFacts, Nvml, NvmlError
from deviceplugin.gpus.patience import Patience

__all__ = ["Choice", "Found", "find", "links_between", "unknown_names"]

# nvmlGpuTopologyLevel_t: up to and including this level the path leads over switches only, or over
# host bridges of one NUMA node.
_ONE_SWITCH_OR_MORE = 20
_ONE_NUMA_NODE = 40


@dataclass(frozen=True, slots=True)
class Choice:
    """GPUs by uuid or by NVML's number, as an administrator lists them."""

    ours: frozenset[str] = frozenset()
    """Empty: all that are not left to others."""
    others: frozenset[str] = frozenset()
    """Left to others, whatever `ours` says."""

    def takes(self, gpu: GpuFacts) -> bool:
        names = {str(gpu.index), gpu.uuid.lower()}
        if names & {name.lower() for name in self.others}:
            return False
        return not self.ours or self.lists(gpu.index, gpu.uuid)

    @property
    def has_numbers(self) -> bool:
        return any(name.isdecimal() for name in self.ours | self.others)

    def names(self, uuid: str) -> bool:
        """Whether this GPU is spoken of by its uuid."""
        return uuid.lower() in {name.lower() for name in self.ours | self.others}

    def lists(self, index: int, uuid: str) -> bool:
        """Whether it was said outright that this GPU is ours."""
        return bool({str(index), uuid.lower()} & {name.lower() for name in self.ours})


@dataclass(frozen=True, slots=True)
class Found:
    """What an open session shows."""

    driver: str
    gpus: tuple[GpuFacts, ...]
    silent: tuple[tuple[int, str], ...]
    """Numbers of GPUs that do not even tell who they are, and what NVML says instead."""


def find(nvml: Nvml, patience: Patience, patience_s: float) -> Found:
    """Asks for all GPUs; one that does not answer does not hide the others."""
    count = patience.ask("the number of GPUs", nvml.count, patience_s)
    driver = patience.ask("the driver's version", nvml.driver, patience_s)
    numbers = {f"GPU {index}": partial(nvml.facts, index) for index in range(count)}
    gpus, silent = [], []
    for index, told in enumerate(patience.ask_all(numbers, patience_s).values()):
        if isinstance(told, GpuFacts):
            gpus.append(told)
        elif told.ends_session:
            raise told
        else:
            silent.append((index, told.why))
    return Found(driver, tuple(gpus), tuple(silent))


def links_between(nvml: Nvml, uuids: Iterable[str]) -> dict[tuple[str, str], Link]:
    """For every ordered pair of different GPUs that answer."""
    links: dict[tuple[str, str], Link] = {}
    names = list(uuids)
    for number, one in enumerate(names):
        for other in names[:number]:
            try:
                links[one, other] = links[other, one] = _link(nvml, one, other)
            except NvmlError as error:
                if error.ends_session:
                    raise
                # One of the two was lost just now; health will say so.
    return links


def _link(nvml: Nvml, one: str, other: str) -> Link:
    if nvml.is_linked(one, other):
        return Link.NVLINK
    level = nvml.common_ancestor(one, other)
    if level <= _ONE_SWITCH_OR_MORE:
        return Link.PCIE_SWITCH
    return Link.NUMA if level <= _ONE_NUMA_NODE else Link.SYSTEM


def unknown_names(choice: Choice, gpus: Iterable[GpuFacts]) -> tuple[str, ...]:
    """Names in the settings that no GPU of this node has: most likely typing errors."""
    known = {name for gpu in gpus for name in (str(gpu.index), gpu.uuid.lower())}
    return tuple(sorted(name for name in choice.ours | choice.others if name.lower() not in known))
