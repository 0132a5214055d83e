"""A node without a kubelet's sockets: the allocator, and a pure model of who calls it and how."""

import contextlib
import itertools
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from aliquot.protocol.assignment import Assignment, Slice
from aliquot.protocol.names import COMPUTE_RESOURCE as COMPUTE
from aliquot.protocol.names import MEMORY_RESOURCE as MEMORY
from aliquot.protocol.request import ContainerRequest, PodRequest, Role
from deviceplugin.booking.allocator import Allocator
from deviceplugin.booking.errors import Refusal, Retry
from deviceplugin.booking.journal import Journal
from deviceplugin.booking.sharing import MIB, Sharing
from deviceplugin.booking.sources import ContainerKey, Held, Holder, PodView
from deviceplugin.container.files import ContainerFiles, UsageStore
from deviceplugin.container.gpuaccess import RuntimeAccess
from deviceplugin.container.grant import Grant
from deviceplugin.gpus.hardware import Gpu, Hardware
from shim import limits
from shim.limits import Kind

__all__ = ["COMPUTE", "MEMORY", "UNIT", "Clock", "Kubelet", "Node", "Pod", "Pods", "gpu", "uuid"]

UNIT = 256 * MIB


def uuid(number: int) -> str:
    return f"GPU-00000000-0000-0000-0000-{number:012x}"


def gpu(number: int, units: int = 16, unusable: str = "") -> Gpu:
    return Gpu(uuid(number), number, "NVIDIA A100-SXM4-80GB", units * UNIT, unusable=unusable)


@dataclass
class Clock:
    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Pod:
    """A pod as its user wrote it."""

    name: str
    containers: tuple[ContainerRequest, ...]
    uid: str
    namespace: str = "default"
    gpus: int = 1
    policy: str | None = None
    weight: int = 1
    plan: dict[str, tuple[Slice, ...]] | None = None

    def view(self) -> PodView:
        return PodView(
            self.namespace,
            self.name,
            self.uid,
            PodRequest(self.containers, self.gpus, policy=self.policy, weight=self.weight),
            plan=Assignment(self.plan) if self.plan is not None else None,
        )


@dataclass
class Pods:
    """Our watch of the API server; `late` pods appear only when somebody waits for them."""

    views: dict[tuple[str, str], PodView] = field(default_factory=dict)
    late: dict[tuple[str, str], PodView] = field(default_factory=dict)
    is_away: bool = False

    def find(self, namespace: str, name: str) -> PodView | None:
        return self.views.get((namespace, name))

    def wait(self, namespace: str, name: str, seconds: float) -> PodView | None:
        assert 0 < round(seconds, 6) <= 0.25
        key = (namespace, name)
        if key in self.late:
            self.views[key] = self.late.pop(key)
        return self.views.get(key)

    def waiting(self) -> Iterable[PodView]:
        return list(self.views.values())

    def is_gone(self, namespace: str, name: str, uid: str) -> bool:
        return not self.is_away and not any(each.uid == uid for each in self.views.values())


@dataclass
class Kubelet:
    """Calls the allocator as the kubelet's device manager does, in the same order."""

    allocator: Allocator
    pods: Pods
    random: Random = field(default_factory=lambda: Random(1))
    held: dict[tuple[str, str, str], frozenset[str]] = field(default_factory=dict)
    """By pod uid, container and resource: what it writes into its checkpoint."""
    active: dict[str, Pod] = field(default_factory=dict)
    in_use: dict[str, set[str]] = field(default_factory=lambda: {MEMORY: set(), COMPUTE: set()})
    """Its set of allocated ids, which can lose some: it is made anew from `held` at every list."""
    grants: dict[tuple[str, str, str], Grant] = field(default_factory=dict)
    allocations: int = 0
    list_fails: bool = False
    between_calls: Callable[[], None] = lambda: None
    during_allocate: Callable[[], None] = lambda: None

    def listing(self) -> list[Held]:
        if self.list_fails:
            raise OSError("connection refused")
        self._drop_inactive()
        return [
            Held(
                ContainerKey(pod.namespace, pod.name, container.name),
                {
                    resource: found
                    for resource in (MEMORY, COMPUTE)
                    if (found := self.held.get((pod.uid, container.name, resource)))
                },
            )
            for pod in self.active.values()
            for container in pod.containers
            if container.role is not Role.INIT
        ]

    def checkpoint(self) -> list[Holder]:
        return [
            Holder(uid, container, resource, some)
            for (uid, container, resource), some in self.held.items()
        ]

    def add(self, pod: Pod) -> None:
        """A Refusal rejects the pod for good; what it had got is freed with the next allocation."""
        with contextlib.closing(self.admit(pod)) as steps:
            for _ in steps:
                self.between_calls()

    def admit(self, pod: Pod) -> Generator[None]:
        """All its containers, each resource in an order nobody knows, and a step for each."""
        self.active[pod.uid] = pod
        re_usable: dict[str, set[str]] = {MEMORY: set(), COMPUTE: set()}
        containers = sorted(pod.containers, key=lambda each: each.role is Role.APP)
        try:
            for container in containers:
                wanted = [(MEMORY, container.memory_units), (COMPUTE, container.compute_percent)]
                self.random.shuffle(wanted)
                for resource, size in wanted:
                    if size:
                        self._allocate(pod, container, resource, size, re_usable[resource])
                        yield
        except BaseException:
            del self.active[pod.uid]
            raise

    def start(self, pod: Pod) -> None:
        """Starts all containers of a pod, or starts them again."""
        for container in pod.containers:
            for resource in (MEMORY, COMPUTE):
                some = self.held.get((pod.uid, container.name, resource))
                if some:
                    self.allocator.prestart(
                        resource, list(some), self.checkpoint(), self.listing, self.pods
                    )

    def run(self, pod: Pod) -> None:
        self.add(pod)
        self.start(pod)

    def end(self, pod: Pod) -> None:
        """The pod's containers are gone; its ids are free only with the next allocation."""
        del self.active[pod.uid]

    def ids(self, pod: Pod, resource: str, container: str = "main") -> frozenset[str]:
        return self.held.get((pod.uid, container, resource), frozenset())

    def _drop_inactive(self) -> None:
        for key in [key for key in self.held if key[0] not in self.active]:
            del self.held[key]
            self.grants.pop(key, None)
        for resource in (MEMORY, COMPUTE):
            entries = [some for key, some in self.held.items() if key[2] == resource]
            self.in_use[resource] = set(itertools.chain.from_iterable(entries))

    def _allocate(
        self, pod: Pod, container: ContainerRequest, resource: str, size: int, re_usable: set[str]
    ) -> None:
        self._drop_inactive()
        chosen = self._choose(resource, size, re_usable)
        self.in_use[resource] |= set(chosen)
        # A list at this moment loses ids that are not written down yet.
        self.during_allocate()
        shuffled = self.random.sample(chosen, len(chosen))
        key = (pod.uid, container.name, resource)
        self.grants[key] = self.allocator.allocate(resource, shuffled)
        self.held[key] = frozenset(chosen)
        self.allocations += 1
        if container.role is Role.INIT:
            re_usable |= set(chosen)
        else:
            re_usable -= set(chosen)

    def _choose(self, resource: str, size: int, re_usable: set[str]) -> list[str]:
        healthy = {each for each, is_healthy in self.allocator.devices(resource) if is_healthy}
        again = self.random.sample(sorted(re_usable & healthy), min(size, len(re_usable & healthy)))
        if len(again) == size:
            return again
        available = healthy - self.in_use[resource]
        if len(available) + len(again) < size:
            raise Refusal(f"requested {size}, available {len(available)}")
        offered = self.random.sample(sorted(available | set(again)), len(available | set(again)))
        chosen = self.allocator.preferred(resource, offered, again, size, self.listing, self.pods)
        assert len(chosen) == len(set(chosen)) == size
        assert set(again) <= set(chosen) <= set(offered)
        return chosen


class Node:
    """An agent on a node, with everything that outlives it."""

    def __init__(self, folder: Path, *gpus: Gpu, sharing: Sharing | None = None) -> None:
        self.folder = folder
        self.shim = folder / "libaliquot.so"
        self.shim.write_bytes(b"not really a library")
        self.sharing = sharing or Sharing()
        self.hardware = Hardware(gpus or (gpu(0), gpu(1)), driver="570.1")
        self.clock = Clock()
        self.pods = Pods()
        self.kubelet: Kubelet
        self._numbers = itertools.count()
        self.journal = Journal(folder / "state" / "journal")
        self.allocator = self._new_agent()
        self.kubelet = Kubelet(self.allocator, self.pods)
        self.reconcile()

    def _new_agent(self) -> Allocator:
        files = ContainerFiles(self.folder / "state", self.shim, RuntimeAccess(), UsageStore.FOLDER)
        self.files = files
        allocator = Allocator(self.sharing, files, self.journal, self.clock)
        allocator.update_hardware(self.hardware)
        return allocator

    def restart_agent(self, *, forget: bool = False) -> None:
        """Killed and started again; `forget` takes its journal away."""
        self.journal.close()
        if forget:
            (self.folder / "state" / "journal").unlink()
        self.journal = Journal(self.folder / "state" / "journal")
        self.allocator = self.kubelet.allocator = self._new_agent()
        self.reconcile()

    def reconcile(
        self,
        before: Callable[[], object] = lambda: None,
        after: Callable[[], object] = lambda: None,
    ) -> None:
        """`before` and `after` happen while the agent asks for the kubelet's list: before that is
        made, and when it is and the agent does not have it yet."""
        earlier = later = self.kubelet.checkpoint()

        def listing() -> list[Held]:
            nonlocal later
            count = self.kubelet.allocations
            before()
            found = self.kubelet.listing()
            after()
            if self.kubelet.allocations > count:
                # Only then does the kubelet write it anew.
                later = self.kubelet.checkpoint()
            return found

        self.allocator.reconcile(lambda: later, listing)
        self.seen_checkpoint = [*earlier, *later]
        self.files.clear()

    def pod(
        self,
        name: str = "",
        memory: int = 4,
        compute: int = 20,
        *more: ContainerRequest,
        known: bool = True,
        **options: object,
    ) -> Pod:
        number = next(self._numbers)
        main = ContainerRequest("main", memory, compute)
        pod = Pod(name or f"pod-{number}", (main, *more), f"uid-{number}", **options)  # type: ignore[arg-type]
        if known:
            self.pods.views[pod.namespace, pod.name] = pod.view()
        return pod

    def run(self, name: str = "", memory: int = 4, compute: int = 20, **options: object) -> Pod:
        pod = self.pod(name, memory, compute, **options)  # type: ignore[arg-type]
        self.kubelet.run(pod)
        return pod

    def gpus_of(self, pod: Pod, container: str = "main") -> set[int]:
        return {
            int(each[2:42].rpartition("-")[2], 16)
            for resource in (MEMORY, COMPUTE)
            for each in self.kubelet.ids(pod, resource, container)
        }


def refused(run: Callable[[], object]) -> str:
    try:
        run()
    except (Refusal, Retry) as error:
        return str(error)
    raise AssertionError("it was not refused")


def caps(node: Node, pod: Pod, container: str = "main") -> tuple[list[int | None], list[int]]:
    """What the container's own two files say: bytes and shares, as its mounts lead there."""
    found = {}
    for resource in (MEMORY, COMPUTE):
        grant = node.kubelet.grants.get((pod.uid, container, resource))
        for mount in grant.mounts if grant is not None else ():
            if mount.container.name == "limits":
                found[mount.container.parent.name] = mount.host
    memory = limits.read(found["memory"], Kind.MEMORY)
    compute = limits.read(found["compute"], Kind.COMPUTE)
    return [each.limit_bytes for each in memory.devices], [each.share for each in compute.devices]


def allowed(node: Node, pod: Pod, container: str, resource: str) -> dict[str, int | None]:
    """Bytes or shares by GPU, as all mounts of the container say that lead to them."""
    half = "memory" if resource == MEMORY else "compute"
    hosts = {
        mount.host.resolve()
        for one in (MEMORY, COMPUTE)
        if (grant := node.kubelet.grants.get((pod.uid, container, one)))
        for mount in grant.mounts
        if mount.container.match(f"/etc/aliquot/{half}/limits")
    }
    assert len(hosts) == 1, hosts
    found = limits.read(hosts.pop(), Kind.MEMORY if resource == MEMORY else Kind.COMPUTE)
    return {
        each.uuid: each.limit_bytes if resource == MEMORY else each.share for each in found.devices
    }
