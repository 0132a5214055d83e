"""The agent's heart: which ids there are, who has them, and what each container is given.

Everything here answers from memory, except the journal and the small files of an allocation. The
gRPC rim calls it from any thread; what it needs to ask (the kubelet's list, a pod) it asks through
callables, so nothing in here knows a socket.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from aliquot.arbitration import Member
from aliquot.protocol.assignment import Assignment
from deviceplugin.containerfiles import ContainerFiles
from deviceplugin.errors import Refusal, Retry, StartRefused
from deviceplugin.grant import Grant
from deviceplugin.hardware import Hardware
from deviceplugin.journal import Journal
from deviceplugin.sharing import Sharing
from deviceplugin.sources import ContainerKey, Held, Holder, PodView

__all__ = [
    "Allocator",
    "ContainerAllocation",
    "Listing",
    "PodSource",
    "Refusal",
    "Resized",
    "Retry",
    "StartRefused",
]

Listing = Callable[[], list[Held]]
"""Asks the kubelet's pod resources who holds what; an exception means that it did not answer.

`Held.ids` should have every resource's ids, also those of other plugins: that is how a GPU which
somebody else hands out is noticed.
"""


class PodSource(Protocol):
    """The pods of this node as our watch of the API server knows them; never asks over a wire."""

    def find(self, namespace: str, name: str) -> PodView | None: ...

    def wait(self, namespace: str, name: str, seconds: float) -> PodView | None:
        """The same, waiting for a pod that is not there yet; at once None without an API server."""

    def waiting(self) -> Iterable[PodView]:
        """All pods of this node that are not finished."""


@dataclass(frozen=True, slots=True)
class ContainerAllocation:
    """What one container holds now. Whoever is not known yet has no key and an empty uid."""

    id: str
    """Stable for its life; safe in file names, logs and metric labels."""
    key: ContainerKey | None
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


@dataclass(frozen=True, slots=True)
class Resized:
    """What a container has after a resize."""

    memory_units: int
    compute_percent: int
    changed: bool


class Allocator:
    """Thread-safe. Construct, `update_hardware`, `reconcile`, then serve."""

    def __init__(
        self,
        sharing: Sharing,
        files: ContainerFiles,
        journal: Journal,
        clock: Callable[[], float],
    ) -> None:
        """Reads the journal. `clock` is monotonic seconds."""
        raise NotImplementedError

    def update_hardware(self, hardware: Hardware) -> None:
        """Takes a new picture of the GPUs; call it whenever `inventory` sees a change."""
        raise NotImplementedError

    def devices(self, resource: str) -> tuple[tuple[str, bool], ...]:
        """Every id of the resource and whether it is healthy: the next ListAndWatch message."""
        raise NotImplementedError

    def on_change(self, callback: Callable[[], None]) -> None:
        """Has `callback` called, from any thread and without the lock, when `devices` changed."""
        raise NotImplementedError

    def preferred(
        self,
        resource: str,
        available: Collection[str],
        must_include: Collection[str],
        size: int,
        listing: Listing,
        pods: PodSource,
    ) -> list[str]:
        """Decides the GPU: exactly `size` ids, or a Refusal.

        Calls `listing` once, and `pods.wait` for 250 ms at most.
        """
        raise NotImplementedError

    def allocate(self, resource: str, ids: Collection[str]) -> Grant:
        """Books the ids, writes the container's files and answers; or a Refusal, nothing done."""
        raise NotImplementedError

    def prestart(
        self,
        resource: str,
        ids: Collection[str],
        checkpoint: list[Holder] | None,
        listing: Listing,
        pods: PodSource,
    ) -> None:
        """Verifies both halves and completes the files; or a Retry with what to do.

        `checkpoint` is None when it could not be read; `listing` is called only when needed.
        """
        raise NotImplementedError

    def learn(self, pod: PodView) -> None:
        """Takes the policy and weight of a pod that the watch has just seen or seen change."""
        raise NotImplementedError

    def reconcile(self, checkpoint: list[Holder] | None, listing: Listing) -> None:
        """Frees what the kubelet no longer has and adopts what we did not know.

        Once before serving, where it may raise StartRefused; then every half minute or so.
        `checkpoint` is None when it could not be read.
        """
        raise NotImplementedError

    def allocations(self) -> tuple[ContainerAllocation, ...]:
        """What containers hold now: for metrics, the arbiter and the watch over tenants."""
        raise NotImplementedError

    def actual_of(self, pod_uid: str) -> Assignment | None:
        """What `aliquot.dev/actual` of a pod should say; None when nothing is known of it."""
        raise NotImplementedError

    def resize(
        self,
        pod_uid: str,
        container: str,
        memory_units: int | None = None,
        compute_percent: int | None = None,
    ) -> Resized:
        """Changes totals of a running container; None leaves one as it is. Or a Refusal."""
        raise NotImplementedError

    def units_of(self, uuid: str) -> int:
        """How many memory units of a GPU are advertised: for the node's inventory."""
        raise NotImplementedError
