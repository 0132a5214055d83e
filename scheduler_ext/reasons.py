"""Why a pod does not fit on a node: one short sentence on what was asked and what is there."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from scheduler_ext.placement import Cluster, Request
from scheduler_ext.placement.fit import eligible_devices, fitting, kind_of_devices
from scheduler_ext.requests import Demand

__all__ = ["Cause", "Reason", "amount_text", "asked_text", "reasons_for"]


class Cause(IntEnum):
    """What metrics count rejections by."""

    AGENT = 0
    REQUEST = 1
    GROUP = 2
    KIND = 3
    COUNT = 4
    SIZE = 5
    WHOLE = 6
    SEVERAL = 7
    MEMORY = 8
    COMPUTE = 9
    BOTH = 10
    TOGETHER = 11

    # An enumeration's own is Python code, and thousands of nodes are counted by cause in a call.
    __hash__ = int.__hash__

    @property
    def is_permanent(self) -> bool:
        """Whether it would be the same if nothing else ran on the node."""
        return self in _PERMANENT


# How cause, GPU index, value, and the two counts lie in one number: shift and mask.
_FIELDS = ((58, 0x1F), (48, 0x3FF), (16, 0xFFFFFFFF), (8, 0xFF), (0, 0xFF))
_PERMANENT = {Cause.AGENT, Cause.REQUEST, Cause.KIND, Cause.COUNT, Cause.SIZE}


@dataclass(frozen=True, slots=True)
class Reason:
    cause: Cause
    text: str


def amount_text(memory_units: int, unit_mib: int) -> str:
    """In GiB, without the unit: `7.5`."""
    return f"{memory_units * unit_mib / 1024:.2f}".rstrip("0").rstrip(".")


def asked_text(request: Request, unit_mib: int) -> str:
    """What is asked of one GPU: `12 GiB and 30 percent`."""
    if request.gpu_memory_units is None:
        return "a whole GPU"
    memory = f"{amount_text(request.gpu_memory_units, unit_mib)} GiB"
    percent = f"{request.compute_milli // 10} percent"
    if not request.gpu_memory_units:
        return percent
    return f"{memory} and {percent}" if request.compute_milli else memory


def reasons_for(
    cluster: Cluster, rows: NDArray[np.int64], demand: Demand, unit_mib: int
) -> list[Reason]:
    """One for each row, of nodes that are there but on which the pod does not fit."""
    if not len(rows):
        return []
    found: list[Reason | None] = [None] * len(rows)
    open_places = np.arange(len(rows))
    for part in demand.parts:
        request = part.request
        fails = ~fitting(cluster, rows[open_places], request, host=False)
        places = open_places[fails]
        name = part.containers[0].name if len(demand.parts) > 1 else ""
        for place, reason in zip(
            places.tolist(),
            _of_request(cluster, rows[places], request, unit_mib, name),
            strict=True,
        ):
            found[place] = reason
        open_places = open_places[~fails]
    together = Reason(
        Cause.TOGETHER,
        f"each of the {len(demand.parts)} containers would fit alone, but not all together",
    )
    return [reason or together for reason in found]


def _of_request(
    cluster: Cluster,
    rows: NDArray[np.int64],
    request: Request,
    unit_mib: int,
    container: str,
) -> Iterable[Reason]:
    """Nodes in the same situation share a sentence, so that thousands cost little."""
    if not len(rows):
        return []
    distinct, which = np.unique(_situations(cluster, rows, request), return_inverse=True)
    prefix = f"container {container}: " if container else ""
    reasons = []
    for code in distinct.tolist():
        cause, *numbers = ((code >> shift) & mask for shift, mask in _FIELDS)
        sentence = _sentence(cluster, request, unit_mib, cause, *numbers)
        reasons.append(Reason(Cause(cause), prefix + sentence))
    return [reasons[number] for number in which.tolist()]


def _situations(cluster: Cluster, rows: NDArray[np.int64], request: Request) -> NDArray[np.int64]:
    """By row, packed into one number: cause, GPU index, what it has, how many would do, of how
    many."""
    wanted = kind_of_devices(cluster, rows, request)
    gpus = (cluster.model[rows] >= 0).sum(axis=1)
    model = cluster.model[rows, 0]
    codes: NDArray[np.int64] = (int(Cause.KIND) << 58) + (np.maximum(model, 0) << 16) + gpus
    some = np.flatnonzero(wanted.any(axis=1))
    if len(some):
        codes[some] = _shortages(cluster, rows[some], request, wanted[some], gpus[some])
    return codes


def _shortages(
    cluster: Cluster,
    rows: NDArray[np.int64],
    request: Request,
    wanted: NDArray[np.bool_],
    gpus: NDArray[np.int64],
) -> NDArray[np.int64]:
    """The same, of rows that have GPUs of a wanted kind."""
    every = np.arange(len(rows))
    kinds = wanted.sum(axis=1)
    asked = request.gpu_memory_units

    def most(cause: Cause, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        device = numbers.argmax(axis=1)
        value = np.maximum(numbers[every, device], 0)
        code: NDArray[np.int64] = (cluster.gpu_index[rows, device] << 48) + (value << 16)
        return code + (int(cause) << 58)

    def count(cause: Cause, enough: NDArray[np.int64], of: NDArray[np.int64]) -> NDArray[np.int64]:
        code: NDArray[np.int64] = (enough << 8) + of + (int(cause) << 58)
        return code

    # The last that applies is the most telling, and wins.
    if request.gpus == 1 and asked is not None:
        memory = np.where(wanted, cluster.gpu_memory_free[rows], -1)
        compute = np.where(wanted, cluster.compute_free_milli[rows], -1)
        result = most(Cause.BOTH, np.where(memory >= asked, compute, -1))
        short = compute.max(axis=1) < request.compute_milli
        result = np.where(short, most(Cause.COMPUTE, compute), result)
        short = memory.max(axis=1) < asked
        result = np.where(short, most(Cause.MEMORY, memory), result)
    else:
        enough = eligible_devices(cluster, rows, request).sum(axis=1)
        result = count(Cause.WHOLE if asked is None else Cause.SEVERAL, enough, kinds)
    if asked is not None:
        total = np.where(wanted, cluster.gpu_memory[rows], -1)
        small = (total >= asked).sum(axis=1) < request.gpus
        if small.any():
            result = np.where(small, most(Cause.SIZE, total), result)
    few = kinds < request.gpus
    if few.any():
        result = np.where(few, count(Cause.COUNT, kinds, gpus), result)
    return result


def _sentence(
    cluster: Cluster,
    request: Request,
    unit_mib: int,
    cause: int,
    device: int,
    value: int,
    enough: int,
    of: int,
) -> str:
    asked = asked_text(request, unit_mib)
    asked_gib = amount_text(request.gpu_memory_units or 0, unit_mib)
    gpus = f"{request.gpus} GPUs" if request.gpus > 1 else "1 GPU"
    match cause:
        case Cause.KIND:
            return _kind_sentence(request, cluster.model_names[value] if of else "")
        case Cause.COUNT:
            return f"{gpus} asked on one node: {enough} of {of} {_verb(enough)} of a wanted kind"
        case Cause.SIZE:
            has = amount_text(value, unit_mib)
            return f"GPU {device} is the largest: {has} of {asked_gib} GiB asked on one GPU"
        case Cause.WHOLE:
            whole = "whole GPUs" if request.gpus > 1 else "whole GPU"
            return f"{request.gpus} {whole} asked: {enough} of {of} {_verb(enough)} free"
        case Cause.SEVERAL:
            return f"{gpus} with {asked} each asked: {enough} of {of} {_has(enough)} that free"
        case Cause.MEMORY:
            has = amount_text(value, unit_mib)
            return f"GPU {device} has the most free memory: {has} of {asked_gib} GiB asked"
        case Cause.COMPUTE:
            has = str(value // 10)
            percent = request.compute_milli // 10
            return f"GPU {device} has the most free compute: {has} of {percent} percent asked"
        case _:
            return (
                f"of the GPUs with {asked_gib} GiB free, GPU {device} has the most free compute: "
                f"{value // 10} of {request.compute_milli // 10} percent asked"
            )


def _kind_sentence(request: Request, model: str) -> str:
    if not model:
        return "the node has no GPU"
    if request.uuids:
        return "none of the GPUs that the pod names by uuid is here"
    if request.models:
        return f"{' or '.join(sorted(request.models))} asked, the node has {model}"
    return f"the pod excludes what the node has ({model})"


def _verb(count: int) -> str:
    return "is" if count == 1 else "are"


def _has(count: int) -> str:
    return "has" if count == 1 else "have"
