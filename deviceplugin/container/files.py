"""What the agent puts on the node's disk for containers, and takes away again."""

import contextlib
import hashlib
import logging
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from aliquot.protocol.names import MEMORY_RESOURCE
from deviceplugin.booking.ledger import Allocation
from deviceplugin.booking.sharing import POLICIES
from deviceplugin.container import usagestore
from deviceplugin.container.gpuaccess import GpuAccess
from deviceplugin.container.grant import Mount
from deviceplugin.container.usagestore import Mounter, SystemMounter, UsageStore
from shim import limits
from shim.limits import WHOLE, DeviceLimits, Kind, Limits, LimitsError, Policy

__all__ = ["REMOVED_AT_ONCE", "SHARE_OF_A_PERCENT", "ContainerFiles", "UsageStore", "limits_of"]

SHARE_OF_A_PERCENT = 100
"""Limits count compute in hundredths of a percent."""

REMOVED_AT_ONCE = 8
"""Folders, in about two milliseconds."""

_log = logging.getLogger(__name__)
_LIBRARY_IN_CONTAINER = Path("/usr/local/lib/aliquot/libaliquot.so")
_PRELOAD_IN_CONTAINER = Path("/etc/ld.so.preload")
_NAMES = {Kind.MEMORY: "memory", Kind.COMPUTE: "compute"}
_LIMITS_IN_CONTAINER = {
    kind: Path("/etc/aliquot") / name / "limits" for kind, name in _NAMES.items()
}
_NAME = "[0-9a-f]" * 24
_OURS = (
    f"alloc/{_NAME}",
    f"ended/{_NAME}-*",
    "lib/libaliquot-*.so",
    "lib/.libaliquot-*.so.new",
    "lib/ld.so.preload",
    "lib/.ld.so.preload.new",
    "journal",
    "journal.new",
    "journal.damaged-*",
    "gpu-numbers",
    ".gpu-numbers.new",
    ".arbiter",
    ".arbiter.*",
    # By our manifests for simulated GPUs.
    "simulated/lib*.so.1",
    "simulated/.lib*.so.1.new",
    "journal.lock",
)
"""All that is ever put into the agent's folder, whoever of us does. What tells that it is ours goes
last, so that an uninstall which was interrupted can be done again."""
_SIGNS = ("journal.lock", "lib/libaliquot-*.so", f"alloc/{_NAME}", "simulated/libcuda.so.1")
"""Of these every folder of an agent has one, and hardly any other folder."""
_USAGE_IN_CONTAINER = {kind: Path("/run/aliquot") / name for kind, name in _NAMES.items()}


def kind_of(resource: str) -> Kind:
    return Kind.MEMORY if resource == MEMORY_RESOURCE else Kind.COMPUTE


def limits_of(allocation: Allocation) -> Limits:
    """What an allocation's ids stand for; each half says nothing about the other."""
    amounts = allocation.amounts()
    if allocation.resource == MEMORY_RESOURCE:
        devices = tuple(
            DeviceLimits(uuid, amounts[uuid] * allocation.unit_bytes) for uuid in allocation.gpus
        )
    else:
        devices = tuple(
            DeviceLimits(
                uuid, None, WHOLE if allocation.whole else amounts[uuid] * SHARE_OF_A_PERCENT
            )
            for uuid in allocation.gpus
        )
    return Limits(devices, POLICIES[allocation.policy], allocation.weight)


def _uncapped(allocation: Allocation) -> Limits:
    """The memory half of whole GPUs."""
    return Limits(tuple(DeviceLimits(uuid, None) for uuid in allocation.gpus))


@dataclass(slots=True)
class ContainerFiles:
    root: Path
    """Such as /var/lib/aliquot: the same path for the agent and on the host."""
    shim: Path
    """The library to install; copied to a versioned name."""
    access: GpuAccess
    usage_store: UsageStore = UsageStore.TMPFS
    mounter: Mounter = field(default=SystemMounter)

    @property
    def _allocations(self) -> Path:
        return self.root / "alloc"

    @property
    def _libraries(self) -> Path:
        return self.root / "lib"

    @property
    def _aside(self) -> Path:
        return self.root / "ended"

    def folder(self, allocation: Allocation) -> Path:
        return self._allocations / allocation.name

    def install(self) -> str:
        """The library's versioned name. Its content is its version: a file that running containers
        have mapped is never written to again."""
        content = self.shim.read_bytes()
        name = f"libaliquot-{hashlib.sha256(content).hexdigest()[:16]}.so"
        self._libraries.mkdir(parents=True, exist_ok=True)
        self._aside.mkdir(exist_ok=True)
        _put(self._libraries / name, content)
        _put(self._libraries / "ld.so.preload", f"{_LIBRARY_IN_CONTAINER}\n".encode())
        return name

    def create(self, allocation: Allocation) -> None:
        """A new allocation's folder; nothing is left of it when this fails."""
        folder = self.folder(allocation)
        try:
            try:
                folder.mkdir(parents=True, mode=0o755)
            except FileExistsError:  # left by somebody who had the same ids, or by a crash
                self.set_aside(allocation.name)
                folder.mkdir(mode=0o755)
            self._create_half(folder, kind_of(allocation.resource), limits_of(allocation))
            if allocation.companion:
                (folder / "memory").mkdir(mode=0o755)
                self._create_half(folder / "memory", Kind.MEMORY, _uncapped(allocation))
        except (OSError, LimitsError):
            with contextlib.suppress(OSError):
                self._remove(folder)
            raise

    def ensure(self, allocation: Allocation) -> None:
        """Makes what is missing and corrects limits that say something else."""
        kind = kind_of(allocation.resource)
        folder = self.folder(allocation)
        folder.mkdir(parents=True, mode=0o755, exist_ok=True)
        self._ensure_half(folder, kind, limits_of(allocation))
        if allocation.companion and not (folder / "memory").is_symlink():
            (folder / "memory").mkdir(mode=0o755, exist_ok=True)
            self._ensure_half(folder / "memory", Kind.MEMORY, _uncapped(allocation))

    def refresh_usage(self, allocation: Allocation) -> None:
        """A fresh account for a container that is about to start."""
        for folder, kind in self._halves(allocation):
            usagestore.refresh(
                folder / "usage", kind, len(allocation.gpus), self.usage_store, self.mounter
            )

    def join(self, compute: Allocation, memory: Allocation) -> None:
        """Lets the compute half's own memory folder, made for a container that might have no
        memory ids, be the real one. Mounts are resolved later, when the container starts."""
        companion = self.folder(compute) / "memory"
        if companion.is_symlink() or not companion.exists():
            return
        self._remove(companion)
        companion.symlink_to(Path("..") / self.folder(memory).name)

    def set_aside(self, name: str) -> None:
        """Takes an allocation's folder out of the way, for `clear` to remove. That takes dozens of
        system calls, an unmount among them, and no start of a container shall wait for those."""
        folder = self._allocations / name
        try:
            folder.rename(self._aside / f"{name}-{time.time_ns()}")
        except OSError:
            # There may be no room for another name, or nothing to be renamed.
            self._remove(folder)

    def clear(self, give_way: Callable[[], None] = lambda: None) -> None:
        """Removes what was set aside. Nobody else knows it by name, so no lock is needed; others
        may go first, a few folders at a time."""
        for number, name in enumerate(_names(self._aside)):
            if number % REMOVED_AT_ONCE == 0:
                give_way()
            self._try_to_remove(self._aside / name)

    def names(self) -> list[str]:
        """Of all allocations that have a folder."""
        return _names(self._allocations)

    def sweep(self, names: Iterable[str]) -> None:
        """Removes folders that nobody has: of a crash."""
        for name in names:
            self._try_to_remove(self._allocations / name)

    def sweep_libraries(self, needed: Collection[str]) -> None:
        """Removes all others, of older versions."""
        for name in _names(self._libraries):
            if name != "ld.so.preload" and name not in needed:
                (self._libraries / name).unlink(missing_ok=True)

    def is_foreign(self) -> bool:
        """Whether the folder has files, and none by which ours are known."""
        is_ours = any(next(self.root.glob(sign), None) for sign in _SIGNS)
        return not is_ours and any(not each.is_dir() for each in self.root.rglob("*"))

    def uninstall(self) -> list[str]:
        """Takes away everything that we put on the node, and nothing else: names of what is left
        in our folder."""
        self.access.remove()
        for path in [path for pattern in _OURS for path in self.root.glob(pattern)]:
            if path.is_dir():
                self._remove(path)
            else:
                path.unlink()
        # Where somebody else's things are left, and where the folder itself is a mount, it stays.
        for name in ("alloc", "ended", "lib", "simulated", "."):
            with contextlib.suppress(OSError):
                (self.root / name).rmdir()
        return sorted(_names(self.root))

    def found_limits(self, allocation: Allocation) -> Limits | None:
        """What its folder says, where there is one."""
        try:
            return limits.read(self.folder(allocation) / "limits", kind_of(allocation.resource))
        except (OSError, LimitsError):
            return None

    def limits_path(self, allocation: Allocation) -> Path:
        return self.folder(allocation) / "limits"

    def usage_path(self, allocation: Allocation) -> Path:
        return self.folder(allocation) / "usage" / "usage"

    def mounts(self, allocation: Allocation, shim_off: bool = False) -> tuple[Mount, ...]:
        """The library and its list first: those are the same for both halves."""
        shared = (
            Mount(self._libraries / allocation.shim, _LIBRARY_IN_CONTAINER),
            Mount(self._libraries / "ld.so.preload", _PRELOAD_IN_CONTAINER),
        )
        own = [
            mount
            for folder, kind in self._halves(allocation)
            for mount in (
                Mount(folder / "limits", _LIMITS_IN_CONTAINER[kind]),
                Mount(folder / "usage", _USAGE_IN_CONTAINER[kind], read_only=False),
            )
        ]
        return (*(() if shim_off else shared), *own)

    def _halves(self, allocation: Allocation) -> Iterator[tuple[Path, Kind]]:
        folder = self.folder(allocation)
        yield folder, kind_of(allocation.resource)
        if allocation.companion and not (folder / "memory").is_symlink():
            yield folder / "memory", Kind.MEMORY

    def _ensure_half(self, folder: Path, kind: Kind, wanted: Limits) -> None:
        path = folder / "limits"
        try:
            present = limits.read(path, kind)
        except (OSError, LimitsError):
            # Missing, or damaged in both slots: running containers keep their last good copy.
            for torn in folder.glob(".limits.*"):
                torn.unlink(missing_ok=True)
            _create_limits(path, kind, wanted)
        else:
            if not _says(present, wanted):
                limits.update(path, wanted)
        usagestore.ensure(
            folder / "usage", kind, len(wanted.devices), self.usage_store, self.mounter
        )

    def _create_half(self, folder: Path, kind: Kind, wanted: Limits) -> None:
        _create_limits(folder / "limits", kind, wanted)
        usagestore.create(
            folder / "usage", kind, len(wanted.devices), self.usage_store, self.mounter
        )

    def _try_to_remove(self, folder: Path) -> None:
        try:
            self._remove(folder)
        except OSError as error:
            _log.warning("cannot remove %s, which nobody uses: %s", folder, error)

    def _remove(self, folder: Path) -> None:
        if folder.is_symlink():
            folder.unlink()
            return
        for usage in (folder / "usage", folder / "memory" / "usage"):
            if not (folder / "memory").is_symlink() or usage.parent == folder:
                usagestore.remove(usage, self.mounter)
        if folder.is_dir():
            shutil.rmtree(folder)
        else:
            folder.unlink(missing_ok=True)


def _create_limits(path: Path, kind: Kind, wanted: Limits) -> None:
    # The journal has it all, and no container outlives a power failure: what is torn or missing
    # after one is made again by the next agent.
    limits.create(path, kind, wanted, durable=False)


def _says(present: Limits, wanted: Limits) -> bool:
    """Whether the caps are these; grants are the arbiter's."""

    def caps(some: Limits) -> tuple[Policy, int, list[tuple[str, int | None, int]]]:
        devices = [(each.uuid, each.limit_bytes, each.share) for each in some.devices]
        return some.policy, some.weight, devices

    return caps(present) == caps(wanted)


def _put(path: Path, content: bytes) -> None:
    """Writes a file once; a good one that is there stays as it is."""
    try:
        if path.read_bytes() == content:
            return
    except FileNotFoundError:
        pass
    fresh = path.with_name(f".{path.name}.new")
    with open(fresh, "wb") as file:
        file.write(content)
        file.flush()
        os.fchmod(file.fileno(), 0o755 if path.suffix == ".so" else 0o644)
        os.fsync(file.fileno())
    fresh.replace(path)


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [each.name for each in entries]
    except FileNotFoundError:
        return []
