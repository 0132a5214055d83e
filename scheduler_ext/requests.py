"""From what a pod asks to what placement is asked: one request for each container, or for all."""

from dataclasses import dataclass, replace

from aliquot.protocol.assignment import Assignment, Slice
from aliquot.protocol.request import (
    WHOLE_PERCENT,
    ContainerRequest,
    PodRequest,
    RequestError,
    Role,
)
from scheduler_ext.placement import Request

__all__ = ["Demand", "Part", "assignment_of", "demand_of"]

# No GPU has a million units; from here on the admission webhook reads numbers as bytes.
_LEAST_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Part:
    """Containers that share their GPUs, and what they need together on each of them."""

    containers: tuple[ContainerRequest, ...]
    request: Request


@dataclass(frozen=True, slots=True)
class Demand:
    """What a pod needs of a node, the largest part first; equal pods have equal demands."""

    parts: tuple[Part, ...]
    policy: str | None = None

    @property
    def requests(self) -> tuple[Request, ...]:
        return tuple(part.request for part in self.parts)


def demand_of(pod: PodRequest, *, cpu_milli: int = 0, memory_mib: int = 0) -> Demand | None:
    """None when the pod asks for no GPU; raises RequestError for what cannot be placed."""
    if not pod.containers:
        return None
    _check_units(pod)
    if any(container.role is Role.INIT for container in pod.containers):
        # The kubelet gives an init container's ids to the app containers, so that all of the pod's
        # containers are on the same GPUs.
        parts = [Part(pod.containers, _shared(pod))]
    else:
        parts = [Part((container,), _own(pod, container)) for container in pod.containers]
    parts.sort(key=_size, reverse=True)
    first = parts[0]
    host = replace(first.request, cpu_milli=cpu_milli, memory_mib=memory_mib)
    return Demand((replace(first, request=host), *parts[1:]), pod.placement)


def assignment_of(
    pod: PodRequest, demand: Demand, uuids: tuple[tuple[str, ...], ...], unit_mib: int
) -> Assignment:
    """The plan, `uuids` being each part's GPUs."""
    slices: dict[str, tuple[Slice, ...]] = {}
    for part, gpus in zip(demand.parts, uuids, strict=True):
        for container in part.containers:
            count = pod.gpus_of(container)
            memory = container.memory_units // count
            percent = container.compute_percent // count
            slices[container.name] = tuple(Slice(uuid, memory, percent) for uuid in gpus[:count])
    return Assignment(slices, unit_mib)


def _check_units(pod: PodRequest) -> None:
    for container in pod.containers:
        if container.memory_units >= _LEAST_BYTES:
            raise RequestError(
                f"container {container.name} asks for {container.memory_units} units of GPU memory,"
                f" which seem to be bytes: the pod came round the admission webhook, which turns"
                f" bytes into units; create it anew while the webhook is installed, or write units"
            )


def _own(pod: PodRequest, container: ContainerRequest) -> Request:
    gpus = pod.gpus_of(container)
    whole = pod.is_whole(container)
    return _request(
        pod,
        gpus,
        container.compute_percent // gpus,
        None if whole else container.memory_units // gpus,
    )


def _shared(pod: PodRequest) -> Request:
    """The most that is needed at one time: by an init container beside the sidecars that were
    started before it, or by everything that runs in the end."""
    percent = memory = peak_percent = peak_memory = 0
    whole = False
    in_the_end = [each for each in pod.containers if each.role is not Role.INIT]
    if len(in_the_end) > 1 and any(pod.is_whole(each) for each in in_the_end):
        raise RequestError(
            "containers beside one that asks for whole GPUs cannot share its GPU, and with an init "
            "container that asks for a GPU all of the pod's containers share one; let the init "
            "container ask for none"
        )
    for container in pod.containers:
        gpus = pod.gpus_of(container)
        whole |= pod.is_whole(container)
        own_percent, own_memory = container.compute_percent // gpus, container.memory_units // gpus
        peak_percent = max(peak_percent, percent + own_percent)
        peak_memory = max(peak_memory, memory + own_memory)
        if container.role is not Role.INIT:
            percent += own_percent
            memory += own_memory
    if peak_percent > WHOLE_PERCENT:
        raise RequestError(
            f"the pod's containers share one GPU because an init container asks for a GPU, and "
            f"together they ask for {peak_percent} percent of it; ask for {WHOLE_PERCENT} at most, "
            f"or let the init container ask for none"
        )
    gpus = max(pod.gpus_of(container) for container in pod.containers)
    return _request(
        pod, gpus, WHOLE_PERCENT if whole else peak_percent, None if whole else peak_memory
    )


def _request(pod: PodRequest, gpus: int, percent: int, memory_units: int | None) -> Request:
    return Request(
        gpus=gpus,
        compute_milli=percent * 10,
        gpu_memory_units=memory_units,
        models=pod.models.wanted,
        excluded_models=pod.models.excluded,
        uuids=pod.uuids.wanted,
        excluded_uuids=pod.uuids.excluded,
    )


def _size(part: Part) -> tuple[int, bool, int, int]:
    """What is hardest to place comes first."""
    request = part.request
    whole = request.gpu_memory_units is None
    return (request.gpus, whole, request.gpu_memory_units or 0, request.compute_milli)
