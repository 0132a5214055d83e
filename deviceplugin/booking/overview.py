"""What containers hold, for everybody who only looks: metrics, the arbiter, the API server."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from aliquot.arbitration import Member
from aliquot.protocol.assignment import Assignment, Slice
from aliquot.protocol.names import COMPUTE_RESOURCE, MEMORY_RESOURCE
from deviceplugin.booking.ledger import Allocation, Ledger, Owner
from deviceplugin.booking.sources import ContainerKey, PodView
from deviceplugin.booking.supply import Supply
from deviceplugin.container.files import ContainerFiles

__all__ = ["ContainerAllocation", "Overview", "actual_of"]


@dataclass(frozen=True, slots=True)
class ContainerAllocation:
    """What one container holds now. Whoever is not known yet has no key and an empty uid."""

    id: str
    """Stable once it is complete; safe in file names, logs and metric labels."""
    key: ContainerKey | None
    """Its container may be empty while only the pod is known."""
    pod_uid: str
    gpus: tuple[str, ...]
    """In the order of the limits."""
    memory_units: int
    """Of all its GPUs together, as capped; 0 for whole GPUs."""
    compute_percent: int
    whole: bool
    policy: str
    weight: int
    memory_limits: Path | None
    memory_usage: Path | None
    compute_limits: Path | None
    compute_usage: Path | None
    started: bool
    """PreStartContainer has passed: identity and both halves are verified."""
    planned: bool | None
    """Whether it has what the extender planned; None without a plan."""
    member: Member | None
    """Its seat at the compute arbiter; a new name after every start of the container."""
    fell_from_bytes: int = 0
    """How much memory of each GPU it had before a resize; 0 where that is no more than now."""
    starts: int = 0
    """Of both halves together; each has given it new usage files."""


_Pod = tuple[str, str]


class Overview:
    """Both halves of a container as one, as soon as it is known that they are.

    Pods come and go one at a time, so what was made of all the others is kept.
    """

    def __init__(self, files: ContainerFiles) -> None:
        self._files = files
        self._made: dict[_Pod, tuple[tuple[Allocation, ...], list[ContainerAllocation]]] = {}
        """The pod's entries, and what was made of them."""

    def containers(
        self, pods: Mapping[_Pod, tuple[Allocation, ...]]
    ) -> tuple[ContainerAllocation, ...]:
        before, self._made = self._made, {}
        for pod, entries in pods.items():
            made = before.get(pod)
            if made is None or made[0] != entries:
                made = entries, [_container(*halves, self._files) for halves in _paired(entries)]
            self._made[pod] = made
        return tuple(each for _, containers in self._made.values() for each in containers)


def _paired(
    ledger: Collection[Allocation],
) -> Iterator[tuple[Allocation | None, Allocation | None]]:
    """Memory and compute of each container; entries whose container is not known stay alone."""
    memories: dict[tuple[str, str, str], list[Allocation]] = {}
    alone: list[Allocation] = []
    for memory in ledger:
        if memory.resource != MEMORY_RESOURCE:
            continue
        if memory.owner is not None and memory.owner.container:
            memories.setdefault(_key(memory.owner), []).append(memory)
        else:
            alone.append(memory)
    for compute in ledger:
        if compute.resource == COMPUTE_RESOURCE:
            yield _partner(compute, memories), compute
    for memory in chain(alone, *memories.values()):
        yield memory, None


def _key(owner: Owner) -> tuple[str, str, str]:
    return owner.namespace, owner.pod, owner.container


def _partner(
    compute: Allocation, memories: dict[tuple[str, str, str], list[Allocation]]
) -> Allocation | None:
    """Taken out of those whose compute half is not found yet."""
    owner = compute.owner
    candidates = memories.get(_key(owner), []) if owner is not None else []
    for memory in candidates:
        if owner and memory.owner and memory.owner.is_pod_of(owner):
            candidates.remove(memory)
            return memory
    return None


def actual_of(pod: PodView, ledger: Ledger, supply: Supply) -> Assignment | None:
    found: dict[str, tuple[Slice, ...]] = {}
    for container, halves in _by_container(pod, ledger).items():
        memory: dict[str, int] = {}
        compute: dict[str, int] = {}
        for half in halves:
            (memory if half.resource == MEMORY_RESOURCE else compute).update(half.amounts())
            if half.whole:
                memory = {uuid: supply.count(MEMORY_RESOURCE, uuid) for uuid in half.gpus}
        found[container] = tuple(
            Slice(uuid, memory.get(uuid, 0), compute.get(uuid, 0)) for uuid in halves[0].gpus
        )
    return Assignment(found, supply.sharing.unit_mib) if found else None


def _by_container(pod: PodView, ledger: Ledger) -> dict[str, list[Allocation]]:
    found: dict[str, list[Allocation]] = {}
    for each in ledger.of_view(pod):
        if each.owner is not None and each.owner.container:
            found.setdefault(each.owner.container, []).append(each)
    return found


def _container(
    memory: Allocation | None, compute: Allocation | None, files: ContainerFiles
) -> ContainerAllocation:
    half = compute or memory
    assert half is not None
    owner = half.owner
    has_companion = compute is not None and compute.companion and memory is None
    companion = files.folder(half) / "memory" if has_companion else None
    memory_limits = files.limits_path(memory) if memory else None
    memory_usage = files.usage_path(memory) if memory else None
    if companion is not None:
        memory_limits, memory_usage = companion / "limits", companion / "usage" / "usage"
    planned = [each.planned for each in (memory, compute) if each is not None]
    return ContainerAllocation(
        id=half.name,
        key=owner.key if owner is not None else None,
        pod_uid=owner.uid if owner is not None else "",
        gpus=half.gpus,
        memory_units=memory.amount if memory is not None else 0,
        compute_percent=compute.amount if compute is not None else 0,
        whole=half.whole,
        policy=half.policy,
        weight=half.weight,
        memory_limits=memory_limits,
        memory_usage=memory_usage,
        compute_limits=files.limits_path(compute) if compute is not None else None,
        compute_usage=files.usage_path(compute) if compute is not None else None,
        started=all(each.starts > 0 for each in (memory, compute) if each is not None),
        planned=None if None in planned else all(planned),
        member=_member(compute, files) if compute is not None else None,
        fell_from_bytes=(memory.fell_from or 0) * memory.unit_bytes if memory is not None else 0,
        starts=sum(each.starts for each in (memory, compute) if each is not None),
    )


def _member(compute: Allocation, files: ContainerFiles) -> Member:
    return Member(
        f"{compute.name}.{compute.starts}",
        files.limits_path(compute),
        files.usage_path(compute),
        compute.gpus,
    )
