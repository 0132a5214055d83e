"""Whether containers keep to what they were given, judged by what NVML and /proc show; no I/O.

A container's own account (the usage file) is never believed against them: it only explains what
NVML shows, and what it cannot explain is a breach.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from aliquot.sizes import format_size
from deviceplugin.booking.sources import ContainerKey
from deviceplugin.tenants.procfs import FileId, Mount, ProcessView

__all__ = [
    "SLACK_BYTES",
    "Account",
    "Breach",
    "Identity",
    "Kind",
    "Tenant",
    "Use",
    "attribute",
    "judge",
    "used_by",
]

SLACK_BYTES = 64 << 20
"""For every process: what drivers take without being asked, such as space for code and stacks."""


class Kind(Enum):
    OVER_CAP = "over-cap"
    NOT_BOOKED = "not-booked"
    SHIM_MISSING = "shim-missing"
    ACCOUNT_DAMAGED = "account-damaged"
    NOT_ALLOCATED = "not-allocated"


@dataclass(frozen=True, slots=True)
class Tenant:
    """A container that was given GPUs."""

    id: str
    key: ContainerKey | None
    pod_uid: str
    caps: Mapping[str, int | None]
    """Memory by GPU; None is no cap."""
    allowed_bytes: Mapping[str, int] = field(default_factory=dict)
    """What it may hold beyond its cap, because it held that when the cap fell."""
    has_shim: bool = True
    """Whether it was given the shim; pods may be excused from it."""
    usages: frozenset[FileId] = frozenset()
    """Its usage files."""
    folders: frozenset[Mount] = frozenset()
    """How those files' folders show in a container's mounts."""

    @property
    def name(self) -> str:
        return f"{self.key.namespace}/{self.key.pod}/{self.key.container}" if self.key else self.id


@dataclass(frozen=True, slots=True)
class Use:
    """A process on a GPU, as NVML lists it."""

    gpu: str
    pid: int
    used_bytes: int | None


@dataclass(frozen=True, slots=True)
class Account:
    """What a container's memory file says."""

    booked_bytes: Mapping[str, int] = field(default_factory=dict)
    fault: str = ""
    """Why there is nothing to be read from it."""


Identity = tuple[str, str, str]
"""A kind of breach, whose it is, and the GPU."""


@dataclass(frozen=True, slots=True)
class Breach:
    kind: Kind
    tenant: Tenant | None
    """None when whoever it is was given nothing."""
    gpu: str
    pod_uid: str
    text: str
    """What is, what should be, and what to do."""
    pids: tuple[int, ...] = ()
    """Where it is about processes of the container or pod."""

    @property
    def identity(self) -> Identity:
        """The same for the same breach in the next look. By which process a container does it, it
        could change from look to look."""
        who = self.tenant.id if self.tenant is not None else self.pod_uid
        return self.kind.value, who, self.gpu


def attribute(processes: Mapping[int, ProcessView], tenants: Iterable[Tenant]) -> dict[int, Tenant]:
    """Whose container each process runs in.

    A process that has the container's files mapped or mounted is certain. Another one of the same
    container follows it; else the pod decides, if it has only one container with GPUs.
    """
    by_usage: dict[FileId, Tenant] = {}
    by_folder: dict[Mount, Tenant] = {}
    by_pod: dict[str, list[Tenant]] = defaultdict(list)
    for tenant in tenants:
        by_usage.update(dict.fromkeys(tenant.usages, tenant))
        by_folder.update(dict.fromkeys(tenant.folders, tenant))
        if tenant.pod_uid:
            by_pod[tenant.pod_uid].append(tenant)
    found: dict[int, Tenant] = {}
    by_container: dict[str, Tenant] = {}
    for pid, process in processes.items():
        owner = _by_files(process, by_usage, by_folder)
        if owner is not None:
            found[pid] = owner
            if process.container_id:
                by_container[process.container_id] = owner
    for pid, process in processes.items():
        if pid in found:
            continue
        owner = by_container.get(process.container_id)
        siblings = by_pod.get(process.pod_uid, [])
        if owner is None and len(siblings) == 1:
            owner = siblings[0]
        if owner is not None:
            found[pid] = owner
    return found


def _by_files(
    process: ProcessView,
    by_usage: Mapping[FileId, Tenant],
    by_folder: Mapping[Mount, Tenant],
) -> Tenant | None:
    for usage in process.usages:
        if usage in by_usage:
            return by_usage[usage]
    for mount in process.mounts:
        owner = by_folder.get(mount)
        if owner is not None and not _is_of_another_pod(process, owner):
            return owner
    return None


def _is_of_another_pod(process: ProcessView, tenant: Tenant) -> bool:
    """By its cgroup, which no tenant can choose. Static pods are named by a hash there."""
    uids = process.pod_uid, tenant.pod_uid
    return uids[0] != uids[1] and all("-" in uid for uid in uids)


def used_by(uses: Iterable[Use], owners: Mapping[int, Tenant]) -> Counter[tuple[str, str]]:
    """Memory by tenant and GPU."""
    used: Counter[tuple[str, str]] = Counter()
    for use in uses:
        if use.pid in owners:
            used[owners[use.pid].id, use.gpu] += use.used_bytes or 0
    return used


def judge(
    uses: Iterable[Use],
    processes: Mapping[int, ProcessView],
    owners: Mapping[int, Tenant],
    accounts: Mapping[str, Account],
    shims: frozenset[int],
    pods: Collection[str] = (),
) -> list[Breach]:
    """All that is wrong at this moment. `accounts` are by tenant, `shims` the inodes of ours,
    `pods` the uids of those that have something: whose process it is, only its files may tell."""
    breaches: list[Breach] = []
    uses = tuple(uses)
    used = used_by(uses, owners)
    # The account of a process that was killed is closed before the driver has freed its memory.
    ending = {pid for pid, process in processes.items() if process.is_ending}
    living = used_by((use for use in uses if use.pid not in ending), owners)
    count: dict[tuple[str, str], int] = Counter()
    seen: dict[str, Tenant] = {}
    strangers: dict[tuple[str, str], list[Use]] = defaultdict(list)
    without: dict[tuple[str, str], list[int]] = defaultdict(list)
    for use in uses:
        owner, process = owners.get(use.pid), processes.get(use.pid)
        if owner is None or use.gpu not in owner.caps:
            if process is None or not process.pod_uid or process.is_ending:
                continue
            if owner is not None or process.maps_are_known or process.pod_uid not in pods:
                strangers[process.pod_uid, use.gpu].append(use)
            continue
        if owner.caps[use.gpu] is None:
            continue  # the whole GPU is its own: there is nothing that it could take from others
        seen[owner.id] = owner
        count[owner.id, use.gpu] += 1
        if owner.has_shim and _is_without(process, shims):
            without[owner.id, use.gpu].append(use.pid)
    for (pod_uid, gpu), some in strangers.items():
        breaches += _not_allocated(pod_uid, gpu, some, owners)
    for (tenant_id, gpu), pids in without.items():
        breaches.append(_shim_missing(seen[tenant_id], gpu, pids))
    for tenant_id, gpu in count:
        tenant, used_bytes = seen[tenant_id], used[tenant_id, gpu]
        slack_bytes = SLACK_BYTES * count[tenant_id, gpu]
        cap_bytes = tenant.caps[gpu]
        allowed_bytes = max(cap_bytes or 0, tenant.allowed_bytes.get(gpu, 0))
        if cap_bytes is not None and used_bytes > allowed_bytes + slack_bytes:
            breaches.append(_over_cap(tenant, gpu, used_bytes, cap_bytes))
        account = accounts.get(tenant_id)
        if account is None or not tenant.has_shim:
            continue
        booked_bytes = account.booked_bytes.get(gpu, 0)
        if account.fault:
            breaches.append(_account_damaged(tenant, gpu, account.fault))
        elif living[tenant_id, gpu] > booked_bytes + slack_bytes:
            breaches.append(_not_booked(tenant, gpu, living[tenant_id, gpu], booked_bytes))
    return breaches


def _is_without(process: ProcessView | None, shims: frozenset[int]) -> bool:
    if process is None or process.is_ending or not process.maps_are_known:
        return False
    return not process.shims & shims


def _over_cap(tenant: Tenant, gpu: str, used_bytes: int, cap_bytes: int) -> Breach:
    return Breach(
        Kind.OVER_CAP,
        tenant,
        gpu,
        tenant.pod_uid,
        f"{tenant.name} has {format_size(used_bytes)} of {gpu}, its cap is "
        f"{format_size(cap_bytes)}: it takes memory past the shim. End it, or give it a GPU of "
        "its own",
    )


def _not_booked(tenant: Tenant, gpu: str, used_bytes: int, booked_bytes: int) -> Breach:
    return Breach(
        Kind.NOT_BOOKED,
        tenant,
        gpu,
        tenant.pod_uid,
        f"{tenant.name} has {format_size(used_bytes)} of {gpu} but accounts for "
        f"{format_size(booked_bytes)}: it takes memory past the shim, or has changed its account",
    )


def _account_damaged(tenant: Tenant, gpu: str, fault: str) -> Breach:
    return Breach(
        Kind.ACCOUNT_DAMAGED,
        tenant,
        gpu,
        tenant.pod_uid,
        f"{tenant.name} has damaged its account: {fault}. It gets no more GPU memory; restart it",
    )


def _shim_missing(tenant: Tenant, gpu: str, pids: Collection[int]) -> Breach:
    return Breach(
        Kind.SHIM_MISSING,
        tenant,
        gpu,
        tenant.pod_uid,
        f"{_named(pids)} of {tenant.name} uses {gpu} without the shim, so nothing limits "
        "it: it is linked statically or against musl, or has removed the preload",
        tuple(pids),
    )


def _not_allocated(
    pod_uid: str, gpu: str, uses: Iterable[Use], owners: Mapping[int, Tenant]
) -> Iterator[Breach]:
    """One for each container of the pod that is known, and one for all that are not."""
    by_owner: dict[str, list[int]] = defaultdict(list)
    for use in uses:
        by_owner[owners[use.pid].id if use.pid in owners else ""].append(use.pid)
    for pids in by_owner.values():
        owner = owners.get(pids[0])
        who = owner.name if owner is not None else f"the pod {pod_uid}"
        yield Breach(
            Kind.NOT_ALLOCATED,
            owner,
            gpu,
            pod_uid,
            f"{_named(pids)} of {who} uses {gpu}, which was not given to it: it is privileged "
            "or sets NVIDIA_VISIBLE_DEVICES; let it request its GPU",
            tuple(pids),
        )


def _named(pids: Collection[int]) -> str:
    first = f"process {min(pids)}"
    return f"{first} (and {len(pids) - 1} more)" if len(pids) > 1 else first
