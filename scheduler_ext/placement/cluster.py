"""The cluster's free resources in arrays, one row a node: what every decision reads."""

from copy import copy

import numpy as np
from numpy.typing import NDArray

from scheduler_ext.placement.inventory import Node
from scheduler_ext.placement.links import MOST_GPUS_PER_NODE, LinkTable
from scheduler_ext.placement.request import WHOLE_GPU_MILLI, Request

_ABSENT = -1
_ROW_ARRAYS = (
    "present",
    "cpu_free_milli",
    "memory_free_mib",
    "cpu_milli",
    "memory_mib",
    "compute_free_milli",
    "gpu_memory_free",
    "gpu_memory",
    "model",
    "gpu_index",
    "topology",
    "version",
)


class Cluster:
    """Rows of removed nodes stay, empty, and are given to the next node that comes."""

    def __init__(self, nodes: list[Node] | tuple[Node, ...] = ()) -> None:
        rows = max(len(nodes), 16)
        width = max([len(node.gpus) for node in nodes] + [1])
        self.names: list[str | None] = []
        self.row_of: dict[str, int] = {}
        self.uuid_at: dict[str, tuple[int, int]] = {}
        self.model_names: list[str] = []
        # Nodes of one build share a topology: link table and GPU count, kept once.
        self.topologies: list[tuple[LinkTable, int]] = []
        self.uuids: list[tuple[str, ...]] = []
        self.present = np.zeros(rows, dtype=np.bool_)
        self.cpu_free_milli = np.zeros(rows, dtype=np.int64)
        self.memory_free_mib = np.zeros(rows, dtype=np.int64)
        self.cpu_milli = np.zeros(rows, dtype=np.int64)
        self.memory_mib = np.zeros(rows, dtype=np.int64)
        self.compute_free_milli = np.zeros((rows, width), dtype=np.int64)
        self.gpu_memory_free = np.zeros((rows, width), dtype=np.int64)
        self.gpu_memory = np.zeros((rows, width), dtype=np.int64)
        self.model = np.full((rows, width), _ABSENT, dtype=np.int64)
        self.gpu_index = np.zeros((rows, width), dtype=np.int64)
        self.topology = np.zeros(rows, dtype=np.int64)
        # Grows with each change of the row: a cached score is good while this stands still.
        self.version = np.zeros(rows, dtype=np.int64)
        # How many nodes have this many wholly free GPUs.
        self.nodes_with_free = np.zeros(MOST_GPUS_PER_NODE + 1, dtype=np.int64)
        # Grows when nodes come or go: what was learned about scarce models is then stale.
        self.shape_version = 0
        self._spare: list[int] = []
        for node in nodes:
            self.add(node)

    @property
    def rows(self) -> int:
        """How many rows are in use, those of removed nodes among them."""
        return len(self.names)

    def add(self, node: Node) -> int:
        """Takes in a node with everything free, and returns its row."""
        if node.name in self.row_of:
            raise ValueError(f"node {node.name} is already there")
        count = len(node.gpus)
        if count > MOST_GPUS_PER_NODE:
            raise ValueError(
                f"node {node.name} has {count} GPUs, at most {MOST_GPUS_PER_NODE} are supported"
            )
        for gpu in node.gpus:
            if gpu.uuid in self.uuid_at or gpu.memory_units < 1:
                raise ValueError(f"GPU {gpu.uuid} of {node.name} is listed twice or has no memory")
        row = self._new_row()
        self._widen(count)
        self.names[row] = node.name
        self.row_of[node.name] = row
        self.topology[row] = self._topology_id(node.links, count)
        self.uuids[row] = tuple(gpu.uuid for gpu in node.gpus)
        self.present[row] = True
        self.cpu_milli[row] = self.cpu_free_milli[row] = node.cpu_milli
        self.memory_mib[row] = self.memory_free_mib[row] = node.memory_mib
        self.compute_free_milli[row, :count] = WHOLE_GPU_MILLI
        for device, gpu in enumerate(node.gpus):
            self.gpu_memory[row, device] = self.gpu_memory_free[row, device] = gpu.memory_units
            self.model[row, device] = self.model_id(gpu.model)
            self.gpu_index[row, device] = device if gpu.index < 0 else gpu.index
            self.uuid_at[gpu.uuid] = (row, device)
        self.nodes_with_free[count] += 1
        self.version[row] += 1
        self.shape_version += 1
        return row

    def remove(self, name: str) -> None:
        """Drops a node with all that runs on it."""
        row = self.row_of.pop(name)
        self.nodes_with_free[self.wholly_free(row)] -= 1
        for uuid in self.uuids[row]:
            del self.uuid_at[uuid]
        self.names[row] = None
        self.uuids[row] = ()
        self.present[row] = False
        free_and_all: list[NDArray[np.int64]] = [
            self.cpu_free_milli,
            self.memory_free_mib,
            self.cpu_milli,
            self.memory_mib,
            self.compute_free_milli,
            self.gpu_memory_free,
            self.gpu_memory,
        ]
        for numbers in free_and_all:
            numbers[row] = 0
        self.model[row] = _ABSENT
        self.version[row] += 1
        self.shape_version += 1
        self._spare.append(row)

    def take(self, row: int, devices: tuple[int, ...], request: Request) -> None:
        """Books a request; refuses what would over-commit, and then changes nothing."""
        self._check(row, devices, request)
        index = list(devices)
        memory = self.memory_asked(request, row, index)
        if (
            self.cpu_free_milli[row] < request.cpu_milli
            or self.memory_free_mib[row] < request.memory_mib
            or (self.compute_free_milli[row, index] < request.compute_milli).any()
            or (self.gpu_memory_free[row, index] < memory).any()
        ):
            raise ValueError(f"{request} does not fit on GPUs {index} of {self.names[row]}")
        self._book(row, index, request, memory, 1)

    def give(self, row: int, devices: tuple[int, ...], request: Request) -> None:
        """Gives back what `take` booked; refuses more than was there."""
        self._check(row, devices, request)
        index = list(devices)
        memory = self.memory_asked(request, row, index)
        if (
            self.cpu_free_milli[row] + request.cpu_milli > self.cpu_milli[row]
            or self.memory_free_mib[row] + request.memory_mib > self.memory_mib[row]
            or (self.compute_free_milli[row, index] + request.compute_milli > WHOLE_GPU_MILLI).any()
            or (self.gpu_memory_free[row, index] + memory > self.gpu_memory[row, index]).any()
        ):
            raise ValueError(f"{request} was not booked on GPUs {index} of {self.names[row]}")
        self._book(row, index, request, memory, -1)

    def set_gpu_free(self, row: int, device: int, compute_milli: int, memory_units: int) -> None:
        """For a caller that counts what is booked itself, and knows better than `take` and `give`.

        What is beyond the GPU's own (compute may be over-committed) is not more than all of it.
        """
        compute = min(max(compute_milli, 0), WHOLE_GPU_MILLI)
        memory = min(max(memory_units, 0), int(self.gpu_memory[row, device]))
        before = (self.compute_free_milli[row, device], self.gpu_memory_free[row, device])
        if before == (compute, memory):
            return
        self.nodes_with_free[self.wholly_free(row)] -= 1
        self.compute_free_milli[row, device] = compute
        self.gpu_memory_free[row, device] = memory
        self.nodes_with_free[self.wholly_free(row)] += 1
        self.version[row] += 1

    def set_host_free(self, row: int, cpu_milli: int, memory_mib: int) -> None:
        """The same for CPU and host memory."""
        if (self.cpu_free_milli[row], self.memory_free_mib[row]) != (cpu_milli, memory_mib):
            self.cpu_free_milli[row] = cpu_milli
            self.memory_free_mib[row] = memory_mib
            self.version[row] += 1

    def scratch(self, rows: NDArray[np.int64] | None = None) -> "Cluster":
        """A copy on which `what if` may be tried: of all, or of some rows, renumbered from 0."""
        other = copy(self)
        other.nodes_with_free = self.nodes_with_free.copy()
        for name in _ROW_ARRAYS:
            numbers = getattr(self, name)
            setattr(other, name, numbers.copy() if rows is None else numbers[rows])
        if rows is None:
            other.names, other.uuids = self.names.copy(), self.uuids.copy()
            other.row_of, other.uuid_at = self.row_of.copy(), self.uuid_at.copy()
            return other
        other.names = [self.names[row] for row in rows]
        other.uuids = [self.uuids[row] for row in rows]
        other.uuid_at = {
            uuid: (number, device)
            for number, uuids in enumerate(other.uuids)
            for device, uuid in enumerate(uuids)
        }
        other.row_of = {name: number for number, name in enumerate(other.names) if name}
        return other

    def memory_asked(self, request: Request, row: int, index: list[int]) -> NDArray[np.int64]:
        if request.gpu_memory_units is None:
            return self.gpu_memory[row, index]
        return np.full(len(index), request.gpu_memory_units, dtype=np.int64)

    def wholly_free(self, row: int) -> int:
        free = self.compute_free_milli[row] == WHOLE_GPU_MILLI
        return int((free & (self.gpu_memory_free[row] == self.gpu_memory[row])).sum())

    def model_id(self, model: str) -> int:
        if model not in self.model_names:
            self.model_names.append(model)
        return self.model_names.index(model)

    def _check(self, row: int, devices: tuple[int, ...], request: Request) -> None:
        if not (0 <= row < self.rows and self.present[row]):
            raise ValueError(f"there is no node in row {row}")
        known = len(set(devices)) == len(devices) and set(devices) <= set(
            range(len(self.uuids[row]))
        )
        if len(devices) != request.gpus or not known:
            raise ValueError(f"{devices} are not {request.gpus} GPUs of {self.names[row]}")

    def _book(
        self, row: int, index: list[int], request: Request, memory: NDArray[np.int64], sign: int
    ) -> None:
        self.nodes_with_free[self.wholly_free(row)] -= 1
        self.cpu_free_milli[row] -= sign * request.cpu_milli
        self.memory_free_mib[row] -= sign * request.memory_mib
        self.compute_free_milli[row, index] -= sign * request.compute_milli
        self.gpu_memory_free[row, index] -= sign * memory
        self.nodes_with_free[self.wholly_free(row)] += 1
        self.version[row] += 1

    def _new_row(self) -> int:
        if self._spare:
            return self._spare.pop()
        row = len(self.names)
        self.names.append(None)
        self.uuids.append(())
        if row == len(self.present):
            self._resize(2 * row, self.model.shape[1])
        return row

    def _topology_id(self, links: LinkTable, count: int) -> int:
        if (links, count) not in self.topologies:
            self.topologies.append((links, count))
        return self.topologies.index((links, count))

    def _widen(self, count: int) -> None:
        if count > self.model.shape[1]:
            self._resize(len(self.present), count)

    def _resize(self, rows: int, width: int) -> None:
        def grown(old: NDArray[np.int64], fill: int = 0) -> NDArray[np.int64]:
            shape = (rows,) if old.ndim == 1 else (rows, width)
            new = np.full(shape, fill, dtype=np.int64)
            new[tuple(slice(length) for length in old.shape)] = old
            return new

        present = np.zeros(rows, dtype=np.bool_)
        present[: len(self.present)] = self.present
        self.present = present
        self.cpu_free_milli = grown(self.cpu_free_milli)
        self.memory_free_mib = grown(self.memory_free_mib)
        self.cpu_milli = grown(self.cpu_milli)
        self.memory_mib = grown(self.memory_mib)
        self.compute_free_milli = grown(self.compute_free_milli)
        self.gpu_memory_free = grown(self.gpu_memory_free)
        self.gpu_memory = grown(self.gpu_memory)
        self.model = grown(self.model, _ABSENT)
        self.gpu_index = grown(self.gpu_index)
        self.topology = grown(self.topology)
        self.version = grown(self.version)
