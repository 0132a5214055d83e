"""What /proc of the host tells about a process that uses a GPU: whose it is, and what it loaded.

Only files that the kernel itself writes are read. Paths inside a container are never opened: a
tenant could have put a file system there that does not answer.
"""

import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

__all__ = ["FileId", "Mount", "ProcFs", "ProcessView", "Status", "file_id", "pod_of"]

SHIM_NAME = "libaliquot"
USAGE_NAME = "usage"
_OUR_MOUNTS = "/run/aliquot/"

MOST_THREADS = 1000
"""Of how many threads one that lives is looked for, when the first has ended."""

_PF_EXITING = 0x4
_log = logging.getLogger(__name__)

# A pod's uid, with dashes, or with underscores where systemd names the slice; static pods have a
# hash. What follows is the container, under whatever prefix its runtime has.
_POD = re.compile(
    r"pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?![0-9a-f])"
    r"[^/]*(?:/(?:[^/]*-)?(?P<container>[0-9a-f]{64})(?:\.scope)?(?:/|$))?"
)


@dataclass(frozen=True, slots=True)
class FileId:
    """A file, however it is called in whatever mount namespace."""

    major: int
    minor: int
    inode: int

    @property
    def device(self) -> tuple[int, int]:
        return self.major, self.minor


@dataclass(frozen=True, slots=True)
class Mount:
    """A mount of ours in a container."""

    major: int
    minor: int
    root: str
    """Which folder of its file system is mounted."""


@dataclass(frozen=True, slots=True)
class ProcessView:
    pid: int
    pod_uid: str = ""
    """Empty for processes that belong to no pod."""
    container_id: str = ""
    shims: frozenset[int] = frozenset()
    """Inodes of executable mappings that have the shim's name."""
    usages: frozenset[FileId] = frozenset()
    """Mapped files that have the name of a usage file."""
    mounts: tuple[Mount, ...] = ()
    maps_are_known: bool = True
    """Whether what it has mapped could be seen at all; nobody is accused of what could not."""


@dataclass(frozen=True, slots=True)
class Status:
    program: tuple[bytes, ...]
    """Another one when a pid has a new owner, or its owner executes another program."""
    folder: str
    """Where to read about it: of a thread that lives, if the first one has ended."""


def file_id(path: Path) -> FileId:
    status = os.lstat(path)
    return FileId(os.major(status.st_dev), os.minor(status.st_dev), status.st_ino)


class ProcFs:
    """The host's /proc, or a tree that looks like it."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._root = root
        self._complained = False

    def status(self, pid: int) -> Status | None:
        """None when it is gone."""
        folder = f"{self._root}/{pid}"
        fields = _stat(folder)
        if fields is None:
            return None
        # Fields 22, and 26 to 28: when it started, and where its code and its stack are.
        started, begin = fields[19:20], fields
        if _is_ending(fields):
            # Of a process that goes on without its first thread, only the others tell anything.
            for thread in self._threads(pid):
                some = _stat(thread)
                if some is not None and not _is_ending(some):
                    folder, begin = thread, some
                    break
        return Status((*started, *begin[23:26]), folder)

    def view(self, pid: int, status: Status) -> ProcessView | None:
        """None when it is gone. Whatever else cannot be read, its cgroup tells whose it is."""
        groups = self._read(pid, f"{status.folder}/cgroup")
        if groups is None:
            return None
        mounts = self._read(pid, f"{status.folder}/mountinfo")
        maps = self._read(pid, f"{status.folder}/maps")
        pod_uid, container_id = pod_of(groups)
        shims, usages = _mapped(maps or "")
        return ProcessView(
            pid, pod_uid, container_id, shims, usages, _mounts(mounts or ""), maps is not None
        )

    def _read(self, pid: int, path: str) -> str | None:
        try:
            with open(path, errors="replace") as file:
                return file.read()
        except (FileNotFoundError, ProcessLookupError):
            return None
        except OSError as error:
            self._complain(pid, error)
            # What it has mapped is not ours to see; where it belongs may be known all the same.
            return "" if path.endswith("/cgroup") else None

    def _complain(self, pid: int, error: OSError) -> None:
        """Once: what is wrong with the agent's rights is wrong for all processes."""
        if not self._complained:
            self._complained = True
            _log.warning(
                "process %d uses a GPU, but what it does is hidden: %s: %s; the agent needs "
                "hostPID and has to be privileged, else breaches are not noticed",
                pid,
                error.filename,
                error.strerror,
            )

    def _threads(self, pid: int) -> Iterator[str]:
        folder = f"{self._root}/{pid}/task"
        try:
            with os.scandir(folder) as threads:
                yield from (f"{folder}/{each.name}" for each in islice(threads, MOST_THREADS))
        except OSError:
            return


def _stat(folder: str) -> list[bytes] | None:
    """From the state on; None when it is gone."""
    try:
        with open(f"{folder}/stat", "rb", buffering=0) as file:
            text = file.read()
    except OSError:
        return None
    # The name in parentheses may itself hold spaces and parentheses.
    fields = text.rpartition(b")")[2].split()
    return fields if len(fields) > 19 else None


def _is_ending(fields: list[bytes]) -> bool:
    """Whether this thread has begun to end, so that it runs no program any more."""
    return fields[0] in b"ZX" or bool(int(fields[6]) & _PF_EXITING)


def pod_of(groups: str) -> tuple[str, str]:
    """Pod and container by a process's list of cgroups; empty where it belongs to none."""
    for line in groups.splitlines():
        # The outermost name counts: what lies below it a tenant may have named.
        match = _POD.search(line)
        if match is not None:
            uid = match["uid"].replace("_", "-")
            return uid, match["container"] or ""
    return "", ""


def _mapped(maps: str) -> tuple[frozenset[int], frozenset[FileId]]:
    shims, usages = set(), set()
    for line in maps.splitlines():
        if SHIM_NAME not in line and not line.endswith(f"/{USAGE_NAME}"):
            continue
        fields = line.split(maxsplit=5)
        if len(fields) < 6:
            continue
        _, permissions, _, device, inode, path = fields
        major, _, minor = device.partition(":")
        name = path.rpartition("/")[2]
        try:
            if name.startswith(SHIM_NAME) and "x" in permissions:
                shims.add(int(inode))
            elif name == USAGE_NAME:
                usages.add(FileId(int(major, 16), int(minor, 16), int(inode)))
        except ValueError:
            continue
    return frozenset(shims), frozenset(usages)


def _mounts(mountinfo: str) -> tuple[Mount, ...]:
    found = []
    for line in mountinfo.splitlines():
        fields = line.split()
        if len(fields) < 5 or not fields[4].startswith(_OUR_MOUNTS):
            continue
        major, _, minor = fields[2].partition(":")
        try:
            found.append(Mount(int(major), int(minor), fields[3]))
        except ValueError:
            continue
    return tuple(found)
