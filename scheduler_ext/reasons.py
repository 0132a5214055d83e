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


# Of cause, GPU index, value, and the two counts, packed into one number.
_SHIFTS = np.array([58, 48, 16, 8, 0])
_PERMANENT = {Cause.AGENT, Cause.REQUEST, Cause.KIND, Cause.COUNT, Cause.SIZE}


@dataclass(frozen=True, slots=True)
class Reason:
    cause: Cause
    text: str

    @property
    def is_permanent(self) -> bool:
        """Whether it would be the same if nothing else ran on the node."""
        return self.cause in _PERMANENT


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
    found: list[Reason | None] = [None] * len(rows)
    open_places = np.arange(len(rows))
    for part in demand.parts:
        request = part.request
        fails = ~fitting(cluster, rows[open_places], request, host=False)
        places = open_places[fails]
        name = part.containers[0].name if len(demand.parts) > 1 else ""
        for place, reason in zip(
            places, _of_request(cluster, rows[places], request, unit_mib, name), strict=True
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
    situations = _situations(cluster, rows, request)
    _, first, which = np.unique(
        (situations << _SHIFTS).sum(axis=1), return_index=True, return_inverse=True
    )
    distinct = situations[first]
    prefix = f"container {container}: " if container else ""
    reasons = [
        Reason(
            Cause(int(each[0])),
            prefix + _sentence(cluster, request, unit_mib, *(int(number) for number in each)),
        )
        for each in distinct
    ]
    return [reasons[number] for number in which]


def _situations(cluster: Cluster, rows: NDArray[np.int64], request: Request) -> NDArray[np.int64]:
    """Rows x (cause, GPU index, what it has, how many would do, of how many)."""
    every = np.arange(len(rows))
    there = cluster.model[rows] >= 0
    wanted = kind_of_devices(cluster, rows, request)
    gpus, kinds = there.sum(axis=1), wanted.sum(axis=1)
    memory = np.where(wanted, cluster.gpu_memory_free[rows], -1)
    compute = np.where(wanted, cluster.compute_free_milli[rows], -1)
    total = np.where(wanted, cluster.gpu_memory[rows], -1)
    asked = request.gpu_memory_units
    enough = eligible_devices(cluster, rows, request).sum(axis=1)
    has_memory = memory >= (cluster.gpu_memory[rows] if asked is None else asked)
    both = np.where(has_memory, compute, -1)

    def most(numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        device = numbers.argmax(axis=1)
        return cluster.gpu_index[rows, device], numbers[every, device]

    def table(
        cause: Cause,
        device: NDArray[np.int64] | int = 0,
        value: NDArray[np.int64] | int = 0,
        enough: NDArray[np.int64] | int = 0,
        of: NDArray[np.int64] | int = 0,
    ) -> NDArray[np.int64]:
        columns = np.broadcast_arrays(every * 0 + int(cause), device, value, enough, of)
        return np.stack(columns, axis=1).astype(np.int64)

    # The last that applies is the most telling, and wins.
    result = table(Cause.BOTH, *most(np.maximum(both, 0)))
    single = request.gpus == 1 and asked is not None
    if single:
        result = np.where(
            (compute.max(axis=1) < request.compute_milli)[:, None],
            table(Cause.COMPUTE, *most(np.maximum(compute, 0))),
            result,
        )
        result = np.where(
            (memory.max(axis=1) < asked)[:, None],
            table(Cause.MEMORY, *most(np.maximum(memory, 0))),
            result,
        )
    else:
        cause = Cause.WHOLE if asked is None else Cause.SEVERAL
        result = table(cause, enough=enough, of=kinds)
    if asked is not None:
        large = (total >= asked).sum(axis=1) >= request.gpus
        result = np.where(large[:, None], result, table(Cause.SIZE, *most(np.maximum(total, 0))))
    result = np.where(
        (kinds < request.gpus)[:, None], table(Cause.COUNT, 0, 0, kinds, gpus), result
    )
    model = cluster.model[rows, 0]
    return np.where((kinds == 0)[:, None], table(Cause.KIND, 0, model, 0, gpus), result)


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
            return (
                f"{gpus} asked on one node, {enough} of {of} here {_verb(enough)} of a wanted kind"
            )
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
