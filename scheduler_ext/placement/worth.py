"""What free parts of nodes are worth to a workload: `native/worth.c` over the cluster's arrays."""

import sys
from collections.abc import Mapping
from ctypes import PYFUNCTYPE, c_void_p
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scheduler_ext.placement._worth import ffi, lib
from scheduler_ext.placement.cluster import Cluster
from scheduler_ext.placement.holes import HoleValues, unlearned_hole_values
from scheduler_ext.placement.request import WHOLE_GPU_MILLI, Request
from scheduler_ext.placement.workload import Lesson

__all__ = ["Worth"]

# One setting for all clusters, as those in worth.c.
SCARCITY_WEIGHT = 0.75
_ANY_MEMORY = -1
_ANY_MODEL = sys.maxsize
_ALL_MEMORY = -1


def _entry(name: str) -> Any:
    """A function of worth.c that keeps Python's lock: cffi would let other threads run meanwhile,
    who hold kube-scheduler up for longer than the call takes."""
    return PYFUNCTYPE(None, c_void_p)(_address(ffi.addressof(lib, name)))


def _address(pointer: Any) -> int:
    return int(ffi.cast("uintptr_t", pointer))


_lost_by_holes = _entry("worth_lost_by_holes")
_lost_by_each = _entry("worth_lost_by_each")
_lost_by_all = _entry("worth_lost_by_all")


class Worth:
    """One lesson as worth.c reads it; without one, any hole is worth what best fit makes of it."""

    def __init__(self, lesson: Lesson | None) -> None:
        self._lesson = lesson
        # cffi's structs do not keep alive what they point to.
        self._kept: list[Any] = []
        self._told = ffi.new("struct worth_lesson *")
        if lesson is None:
            self._told.models = _ANY_MODEL
            self._tell_holes({_ANY_MEMORY: unlearned_hole_values()})
            return
        self._tell_holes(lesson.holes)
        self._tell_classes(lesson)
        self._told.dearness = self._pointer("double", 1 + SCARCITY_WEIGHT * lesson.scarcity)
        self._told.cpu_per_share = lesson.cpu_per_share
        self._told.memory_per_share = lesson.memory_per_share
        self._block_weight = np.zeros(len(lesson.block_demand))
        self._told.block_kinds = len(lesson.block_demand)
        self._told.block_gpus = self._pointer("int64_t", np.array([*lesson.block_demand], np.int64))
        self._told.block_weight = self._pointer("double", self._block_weight)

    def weigh_blocks(self, weights: Mapping[int, float]) -> None:
        """How much blocks of so many GPUs count, from 0 to 1."""
        assert self._lesson is not None
        for number, (gpus, demand) in enumerate(self._lesson.block_demand.items()):
            self._block_weight[number] = weights.get(gpus, 1.0) * demand * WHOLE_GPU_MILLI * gpus

    def lost_by_each(
        self,
        cluster: Cluster,
        rows: NDArray[np.int64],
        request: Request,
        eligible: NDArray[np.bool_],
    ) -> NDArray[np.float64]:
        """Rows x devices: what is lost when a share is taken from this device; 0 for those that
        are not eligible. Of requests for one GPU it is all that is lost, else only the hole's."""
        lost = np.empty(eligible.shape)
        functions = [_lost_by_holes]
        if request.gpus == 1 and self._lesson:
            functions.append(_lost_by_each)
        self._ask(functions, cluster, rows, request, eligible, lost)
        return lost

    def lost_by_all(
        self,
        cluster: Cluster,
        rows: NDArray[np.int64],
        request: Request,
        devices: NDArray[np.bool_],
    ) -> NDArray[np.float64]:
        """Rows: what is lost beside the holes' worth when a share is taken from each of these."""
        lost = np.zeros(len(rows))
        if self._lesson:
            self._ask([_lost_by_all], cluster, rows, request, devices, lost)
        return lost

    def _ask(
        self,
        functions: list[Any],
        cluster: Cluster,
        rows: NDArray[np.int64],
        request: Request,
        marked: NDArray[np.bool_],
        lost: NDArray[np.float64],
    ) -> None:
        nodes = ffi.new("struct worth_nodes *")
        nodes.width = cluster.model.shape[1]
        nodes.compute = ffi.from_buffer("int64_t[]", cluster.compute_free_milli)
        nodes.memory = ffi.from_buffer("int64_t[]", cluster.gpu_memory_free)
        nodes.total = ffi.from_buffer("int64_t[]", cluster.gpu_memory)
        nodes.model = ffi.from_buffer("int64_t[]", cluster.model)
        nodes.cpu = ffi.from_buffer("int64_t[]", cluster.cpu_free_milli)
        nodes.host_memory = ffi.from_buffer("int64_t[]", cluster.memory_free_mib)
        units = request.gpu_memory_units
        share = ffi.new("struct worth_share *")
        share.compute = request.compute_milli
        share.memory = _ALL_MEMORY if units is None else units
        share.cpu = request.cpu_milli
        share.host_memory = request.memory_mib
        rows, marked = np.ascontiguousarray(rows), np.ascontiguousarray(marked)
        question = ffi.new("struct worth_question *")
        question.nodes = nodes
        question.lesson = self._told
        question.share = share
        question.count = len(rows)
        question.rows = ffi.from_buffer("int64_t[]", rows)
        question.marked = ffi.from_buffer("bool[]", marked)
        question.lost = ffi.from_buffer("double[]", lost)
        for function in functions:
            function(_address(question))

    def _tell_holes(self, holes: Mapping[int, HoleValues]) -> None:
        told = ffi.new("struct worth_holes[]", len(holes))
        for one, (total, values) in zip(told, holes.items(), strict=True):
            one.total = total
            one.step = values.step
            one.columns = values.table.shape[1]
            one.value = self._pointer("double", values.table)
        self._kept.append(told)
        self._told.hole_kinds = len(holes)
        self._told.holes = told

    def _tell_classes(self, lesson: Lesson) -> None:
        told = self._told
        told.models, told.classes = lesson.access.shape
        told.weight = self._pointer("double", lesson.weight.astype(np.float64))
        told.gpus = self._pointer("int32_t", _clipped(lesson.gpus))
        told.compute = self._pointer("int32_t", _clipped(lesson.compute_milli))
        told.memory = self._pointer("int32_t", _clipped(lesson.gpu_memory_units))
        told.partial = self._pointer("int32_t", (~lesson.whole).astype(np.int32))
        told.cpu = self._pointer("int32_t", _clipped(lesson.cpu_milli))
        told.access = self._pointer("int32_t", lesson.access.astype(np.int32))

    def _pointer(self, kind: str, numbers: NDArray[Any]) -> Any:
        """To the array's own numbers, which are kept as long as this is."""
        pointer = ffi.from_buffer(f"{kind}[]", np.ascontiguousarray(numbers))
        self._kept.append(pointer)
        return pointer


def _clipped(numbers: NDArray[np.int64]) -> NDArray[np.int32]:
    """What asks for more than 32 bits hold fits nowhere anyway."""
    return np.minimum(numbers, np.iinfo(np.int32).max).astype(np.int32)
