"""What /proc of the host tells about a process that uses a GPU: whose it is, and what it loaded.

Only files that the kernel itself writes are read. Paths inside a container are never opened: a
tenant could have put a file system there that does not answer.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FileId", "Mount", "ProcFs", "ProcessView", "file_id", "pod_of"]

SHIM_NAME = "libaliquot"
USAGE_NAME = "usage"
_OUR_MOUNTS = "/run/aliquot/"

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


def file_id(path: Path) -> FileId:
    status = os.lstat(path)
    return FileId(os.major(status.st_dev), os.minor(status.st_dev), status.st_ino)


class ProcFs:
    """The host's /proc, or a tree that looks like it."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._root = root

    def program(self, pid: int) -> tuple[bytes, ...] | None:
        """Another one when a pid has a new owner, or its owner executes another program; None when
        it is gone."""
        try:
            with open(f"{self._root}/{pid}/stat", "rb", buffering=0) as file:
                text = file.read()
        except OSError:
            return None
        # The name in parentheses may itself hold spaces and parentheses.
        fields = text.rpartition(b")")[2].split()
        # Fields 22, and 26 to 28: when it started, and where its code and its stack are.
        return (*fields[19:20], *fields[23:26]) or None

    def view(self, pid: int) -> ProcessView | None:
        """None when it is gone, or hidden from us."""
        folder = self._root / str(pid)
        try:
            groups = (folder / "cgroup").read_text(errors="replace")
            mounts = (folder / "mountinfo").read_text(errors="replace")
            maps = (folder / "maps").read_text(errors="replace")
        except OSError:
            return None
        pod_uid, container_id = pod_of(groups)
        shims, usages = _mapped(maps)
        return ProcessView(pid, pod_uid, container_id, shims, usages, _mounts(mounts))


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
