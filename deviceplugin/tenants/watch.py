"""Looks at NVML, /proc and the usage files once a second, and tells when a tenant breaks out."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

from deviceplugin.booking.allocator import ContainerAllocation
from deviceplugin.gpus.nvml import Nvml, NvmlError
from deviceplugin.gpus.patience import Patience
from deviceplugin.tenants.allowance import SPAN, Allowances, Key
from deviceplugin.tenants.judgement import (
    Account,
    Breach,
    Kind,
    Tenant,
    Use,
    attribute,
    judge,
    used_by,
)
from deviceplugin.tenants.mountedfiles import Line, place_of
from deviceplugin.tenants.procfs import Mount, ProcFs, file_id
from deviceplugin.tenants.rest import Rest
from deviceplugin.tenants.suspicions import LOOKS, Suspicions
from deviceplugin.tenants.views import VIEW_S, Views
from shim import limits, usage
from shim.limits import LimitsError
from shim.usage import UsageError

__all__ = ["LOOK_S", "TenantWatch"]

LOOK_S = 1.0
"""With one look of rest and three for certainty, a breach is told within five seconds."""

PATIENCE_S = 0.5
"""How long a look waits for the driver; a GPU that hangs keeps only its own answer."""

STOP_S = 5.0
"""How long stopping waits; a look that hangs ends with the process."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Known:
    allocation: ContainerAllocation
    at_s: float
    tenant: Tenant

    def is_stale(self, now_s: float) -> bool:
        """Who has no files cannot be recognised by them, so they are looked for again."""
        return not self.tenant.usages or now_s - self.at_s > VIEW_S


class TenantWatch(threading.Thread):
    """Tells `report` of every breach once, from its own thread."""

    def __init__(
        self,
        nvml: Nvml,
        gpus: Callable[[], Iterable[str]],
        allocations: Callable[[], Iterable[ContainerAllocation]],
        shims: Callable[[], Iterable[Path]],
        report: Callable[[Breach], None],
        proc: Path = Path("/proc"),
        is_excused: Callable[[ContainerAllocation], bool] = lambda _: False,
        was_given: Callable[[str, str], bool | None] = lambda _gpu, _pod_uid: False,
        end: Callable[[Breach], None] = lambda _: None,
    ) -> None:
        """`gpus` are uuids, `shims` all versions of the library that containers may have loaded.

        `was_given` tells whether a pod has a GPU through another plugin, None if nobody knows.
        `end` is told once of every breach that was there in several looks without a pause.
        `is_excused` tells containers that were not given the shim, because their pod asked so.
        """
        super().__init__(name="tenants", daemon=True)
        self._nvml = nvml
        self._patience = Patience()
        self._gpus = gpus
        self._allocations = allocations
        self._shims = shims
        self._report = report
        self._is_excused = is_excused
        self._was_given = was_given
        self._end = end
        self._views = Views(ProcFs(proc))
        self._known: dict[str, _Known] = {}
        self._suspects: list[ContainerAllocation] = []
        self._suspicions = Suspicions()
        self._rest = Rest()
        self._allowances = Allowances()
        self._seen: Iterable[ContainerAllocation] = ()
        self._quiet_looks = 0
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()
        if self.is_alive():
            self.join(STOP_S)

    @property
    def breaches(self) -> tuple[Breach, ...]:
        """Those that last; from any thread."""
        return self._suspicions.current

    def run(self) -> None:
        while not self._stopping.wait(LOOK_S):
            try:
                self.look()
            except Exception:  # one tenant's files must not end the watch over all others
                _log.exception("looking after the tenants failed; trying again")
        self._patience.close()

    def look(self) -> None:
        """One look; a breach is told in the look that makes it certain."""
        # Whoever seemed to have too much is read before and after NVML: what was freed in between
        # still explains what NVML has seen.
        before = {each.id: _account(each) for each in self._suspects}
        listed, answering = self._uses()
        self._views.forget_all_but({use.pid for use in listed})
        uses = self._rest.awake(listed)
        current = self._allocations()
        if self._is_quiet(current, is_idle=not listed):
            return
        allocations = {each.id: each for each in current}
        tenants = self._tenants_of(allocations)
        processes = self._views.of({use.pid for use in uses})
        owners = attribute(processes, tenants.values())
        # Only those who use a GPU have their files read: others may be many.
        busy = {
            tenant.id: replace(tenant, caps=_caps(allocations[tenant.id]))
            for tenant in owners.values()
        }
        accounts = {
            name: _larger(before.get(name), _account(allocations[name]))
            for name in busy
            if allocations[name].memory_usage is not None
        }
        self._note_falls({**tenants, **busy}, used_by(uses, owners), accounts, answering)
        busy = {name: self._with_allowance(tenant) for name, tenant in busy.items()}
        owners = {pid: busy[tenant.id] for pid, tenant in owners.items()}
        pods = {tenant.pod_uid for tenant in tenants.values()}
        found = judge(uses, processes, owners, accounts, self._inodes(), pods)
        told, certain = self._suspicions.confirm(found, lambda gpu: gpu not in answering)
        self._rest.judged(uses, owners, self._suspicions.suspects)
        self._suspects = [
            allocations[name]
            for name in self._suspicions.suspects & allocations.keys()
            if allocations[name].memory_usage is not None
        ]
        for breach in told:
            if breach.kind is Kind.NOT_ALLOCATED:
                # Asked only now: the kubelet's records are long, and right before a pod starts.
                given = self._was_given(breach.gpu, breach.pod_uid)
                if given is None:
                    self._suspicions.doubt(breach)
                    continue
                if given:
                    self._suspicions.excuse(breach)
                    continue
            _log.warning("%s", breach.text)
            self._report(breach)
        for breach in certain:
            self._end(breach)

    def _is_quiet(self, current: Iterable[ContainerAllocation], *, is_idle: bool) -> bool:
        """Whether nobody uses a GPU, nor has in any look that still counts, and nobody's part has
        changed: what is told of hundreds of containers would be the same again."""
        self._quiet_looks = self._quiet_looks + 1 if is_idle and current is self._seen else 0
        self._seen = current
        return self._quiet_looks > max(LOOKS, SPAN)

    def _uses(self) -> tuple[list[Use], frozenset[str]]:
        """Who uses which GPU, and of which of them anything is known now."""
        questions = {gpu: partial(self._nvml.processes, gpu) for gpu in self._gpus()}
        answers = self._patience.ask_all(questions, PATIENCE_S)
        # Health tells of GPUs that do not answer.
        answering = frozenset(
            gpu for gpu, told in answers.items() if not isinstance(told, NvmlError)
        )
        uses = [
            Use(gpu, each.pid, each.used_bytes)
            for gpu, told in answers.items()
            if not isinstance(told, NvmlError)
            for each in told
        ]
        return uses, answering

    def _note_falls(
        self,
        tenants: Mapping[str, Tenant],
        used: Mapping[Key, int],
        accounts: Mapping[str, Account],
        answering: Collection[str],
    ) -> None:
        """Caps are compared also of those who use nothing now: a cap that falls in the moment in
        which a program begins to use its GPU must not be the only one that we ever see. Who is
        known to have had more before is noted from its first use on: looks that missed it, as
        after a start of ours, must not be taken for looks at one that had given all back."""

        def is_judged(name: str, gpu: str) -> bool:
            key = name, gpu
            fell = self._known[name].allocation.fell_from_bytes > 0
            first_use = key in credit and used.get(key, 0) > 0
            return not fell or first_use or self._allowances.knows(key)

        credit = {
            (name, gpu): min(self._known[name].allocation.fell_from_bytes, booked_bytes)
            for name, account in accounts.items()
            for gpu, booked_bytes in account.booked_bytes.items()
        }
        caps = {
            (name, gpu): cap_bytes
            for name, tenant in tenants.items()
            if name not in self._rest.resting
            for gpu, cap_bytes in tenant.caps.items()
            if cap_bytes is not None and gpu in answering and is_judged(name, gpu)
        }
        self._allowances.forget_all_but(tenants)
        self._allowances.note(caps, used, credit)

    def _with_allowance(self, tenant: Tenant) -> Tenant:
        allowed = {gpu: self._allowances.of((tenant.id, gpu)) for gpu in tenant.caps}
        return replace(tenant, allowed_bytes=allowed)

    def _tenants_of(self, allocations: Mapping[str, ContainerAllocation]) -> dict[str, Tenant]:
        """Where their files are changes only when they are made or a tenant replaces them."""
        now_s = time.monotonic()
        known: dict[str, _Known] = {}
        for name, allocation in allocations.items():
            before = self._known.get(name)
            if before is None or before.allocation != allocation or before.is_stale(now_s):
                has_shim = not self._is_excused(allocation)
                before = _Known(allocation, now_s, _tenant(allocation, has_shim))
            known[name] = before
        self._known = known
        return {name: each.tenant for name, each in known.items()}

    def _inodes(self) -> frozenset[int]:
        inodes = set()
        for path in self._shims():
            try:
                inodes.add(file_id(path).inode)
            except OSError:
                continue  # an old version that was just removed
        return frozenset(inodes)


def _tenant(allocation: ContainerAllocation, has_shim: bool) -> Tenant:
    """As it can be recognised, with the caps of now; those are read again when it uses a GPU."""
    usages, folders = set(), set()
    for path in (allocation.memory_usage, allocation.compute_usage):
        if path is None:
            continue
        try:
            folder = _mounted(path.parent)
            if folder is not None:
                folders.add(folder)
            usages.add(file_id(path))
        except OSError:
            continue  # removed by the tenant, or by us
    return Tenant(
        id=allocation.id,
        key=allocation.key,
        pod_uid=allocation.pod_uid,
        caps=_caps(allocation),
        has_shim=has_shim and allocation.memory_limits is not None,
        usages=frozenset(usages),
        folders=frozenset(folders),
    )


def _mounted(folder: Path) -> Mount | None:
    """How an account's folder shows in a container's mounts."""
    resolved = folder.resolve()
    own, around = file_id(resolved), file_id(resolved.parent)
    if own.device != around.device:
        return Mount(*own.device, "/")  # a file system of its own
    base = resolved.parents[1]
    place = _place(base)
    if place is None:
        return None
    major, _, minor = place.device.partition(":")
    return Mount(int(major), int(minor), str(place.root / resolved.relative_to(base)))


@lru_cache(64)
def _place(folder: Path) -> Line | None:
    """Of the folder with all allocations: our own mounts stay as they are while we run."""
    return place_of(folder)


def _caps(allocation: ContainerAllocation) -> dict[str, int | None]:
    """As enforced at this moment. Nothing is read from it by mistake: an unreadable file is no cap
    here, and the shim gives no GPU at all for it."""
    caps: dict[str, int | None] = dict.fromkeys(allocation.gpus)
    if allocation.memory_limits is not None:
        try:
            present = limits.read(allocation.memory_limits, limits.Kind.MEMORY)
        except (OSError, LimitsError) as error:
            _log.debug("no limits of %s: %s", allocation.id, error)
        else:
            caps |= {device.uuid: device.limit_bytes for device in present.devices}
    return caps


def _account(allocation: ContainerAllocation) -> Account:
    """What the tenant says. Nothing in the file can make this fail."""
    path = allocation.memory_usage
    assert path is not None
    try:
        said = usage.read(path, limits.Kind.MEMORY)
    except FileNotFoundError:
        return Account(fault="the usage file was removed")
    except OSError as error:
        return Account(fault=f"the usage file cannot be read: {error.strerror}")
    except UsageError as error:
        return Account(fault=str(error).removeprefix(f"{path} "))
    booked: Counter[str] = Counter()
    for process in said.processes:
        for gpu, held_bytes in zip(allocation.gpus, process.held_bytes, strict=False):
            booked[gpu] += held_bytes
    return Account(booked)


def _larger(one: Account | None, other: Account) -> Account:
    if one is None or one.fault or other.fault:
        return other
    gpus = one.booked_bytes.keys() | other.booked_bytes.keys()
    return Account(
        {gpu: max(one.booked_bytes.get(gpu, 0), other.booked_bytes.get(gpu, 0)) for gpu in gpus}
    )
