"""What /proc of the host tells about a process that uses a GPU: whose it is, and what it loaded.

Only files that the kernel itself writes are read. Paths inside a container are never opened: a
tenant could have put a file system there that does not answer.
"""

import logging
import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

__all__ = [
    "FileId",
    "Mount",
    "ProcFs",
    "ProcessView",
    "Status",
    "file_id",
    "lines_of",
    "path_in",
    "pod_of",
]

SHIM_NAME = b"libaliquot"
USAGE_NAME = b"usage"
_USAGE_ENDING = b"/usage\n"
_OUR_MOUNTS = b"/run/aliquot/"

MOST_BYTES = 8 << 20
"""Of a list of mappings or mounts. As many mappings as the kernel allows a process by default
(65,530) take less than this, unless somebody has given them long names on purpose; the programs
that we know have a few thousand."""
MOST_S = 0.2
"""The same in processor time of ours; so much is needed only for what was made to cost it."""
_BATCH_BYTES = 64 << 10

MOST_THREADS = 1000
"""Of how many threads one that lives is looked for, when the first has ended. Ended threads vanish
by themselves, unless somebody has them pile up; then we take it that one lives."""

_ESCAPED = re.compile(rb"\\([0-7]{3})")
_PF_EXITING = 0x4
_log = logging.getLogger(__name__)

# A pod's uid, with dashes, or with underscores where systemd names the slice; static pods have a
# hash. What follows is the container, under whatever prefix its runtime has.
_POD = re.compile(
    rb"pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?![0-9a-f])"
    rb"[^/]*(?:/(?:[^/]*-)?(?P<container>[0-9a-f]{64})(?:\.scope)?(?:/|$))?"
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
    is_ending: bool = False
    """It runs no program any more; what it holds still counts."""


@dataclass(frozen=True, slots=True)
class Status:
    program: tuple[bytes, ...]
    """Another one when a pid has a new owner, or its owner executes another program."""
    folder: str
    """Where to read about it: of a thread that lives, if the first one has ended."""
    is_ending: bool = False
    """No thread of it lives any more. It holds its GPU until the driver has let go of everything,
    and by then it has no memory of its own left to be looked at."""


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
        is_ending = _is_ending(fields)
        if is_ending:
            # Of a process that goes on without its first thread, only the others tell anything.
            threads = list(self._threads(pid))
            is_ending = len(threads) < MOST_THREADS
            for thread in threads:
                some = _stat(thread)
                if some is not None and not _is_ending(some):
                    folder, begin, is_ending = thread, some, False
                    break
        return Status((*started, *begin[23:26]), folder, is_ending)

    def owner(self, pid: int, status: Status) -> ProcessView | None:
        """What costs little and always can be read: whose it is. None when it is gone."""
        try:
            pod_uid, container_id = pod_of(lines_of(f"{status.folder}/cgroup"))
        except (FileNotFoundError, ProcessLookupError):
            return None
        except OSError as error:
            self._complain(pid, error)
            pod_uid = container_id = ""
        return ProcessView(pid, pod_uid, container_id, maps_are_known=False)

    def view(self, owner: ProcessView, status: Status) -> ProcessView:
        """The same with what it has mapped and mounted, as far as that can be seen."""
        try:
            mounts = _mounts(lines_of(f"{status.folder}/mountinfo"))
            shims, usages = _mapped(lines_of(f"{status.folder}/maps"))
        except OSError as error:
            self._complain(owner.pid, error)
            return owner
        return replace(owner, shims=shims, usages=usages, mounts=mounts, maps_are_known=True)

    def _complain(self, pid: int, error: OSError) -> None:
        """Once: what is wrong with the agent's rights is wrong for all processes."""
        if not isinstance(error, FileNotFoundError | ProcessLookupError) and not self._complained:
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


def lines_of(path: str) -> Iterator[bytes]:
    """Of a file that somebody may have made huge: as much as can be read with bounded effort."""
    until_s = time.thread_time() + MOST_S
    left_bytes = MOST_BYTES
    with open(path, "rb") as file:
        while left_bytes > 0 and time.thread_time() < until_s:
            some = file.readlines(_BATCH_BYTES)
            if not some:
                return
            left_bytes -= sum(map(len, some))
            yield from some


def pod_of(groups: Iterable[bytes]) -> tuple[str, str]:
    """Pod and container by a process's list of cgroups; empty where it belongs to none."""
    for line in groups:
        # The outermost name counts: what lies below it a tenant may have named.
        match = _POD.search(line)
        if match is not None:
            uid = match["uid"].decode().replace("_", "-")
            return uid, (match["container"] or b"").decode()
    return "", ""


def _mapped(maps: Iterable[bytes]) -> tuple[frozenset[int], frozenset[FileId]]:
    shims, usages = set(), set()
    for line in maps:
        if SHIM_NAME not in line and not line.endswith(_USAGE_ENDING):
            continue
        fields = line.rstrip(b"\n").split(maxsplit=5)
        if len(fields) < 6:
            continue
        _, permissions, _, device, inode, path = fields
        major, _, minor = device.partition(b":")
        name = path.rpartition(b"/")[2]
        try:
            if name.startswith(SHIM_NAME) and b"x" in permissions:
                shims.add(int(inode))
            elif name == USAGE_NAME:
                usages.add(FileId(int(major, 16), int(minor, 16), int(inode)))
        except ValueError:
            continue
    return frozenset(shims), frozenset(usages)


def path_in(mountinfo: bytes) -> str:
    """A path as it is written there."""
    return os.fsdecode(_ESCAPED.sub(lambda octal: bytes([int(octal[1], 8)]), mountinfo))


def _mounts(mountinfo: Iterable[bytes]) -> tuple[Mount, ...]:
    found = []
    for line in mountinfo:
        if _OUR_MOUNTS not in line:
            continue
        fields = line.split()
        if len(fields) < 5 or not fields[4].startswith(_OUR_MOUNTS):
            continue
        major, _, minor = fields[2].partition(b":")
        try:
            found.append(Mount(int(major), int(minor), path_in(fields[3])))
        except ValueError:
            continue
    return tuple(found)
