"""Which containers of the host have files of ours mounted, whatever anybody's records say.

Seen from a pod this needs the host's processes (hostPID); without them it finds nobody.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from deviceplugin.tenants.procfs import lines_of, path_in, pod_of

__all__ = ["Line", "Use", "place_of", "uses_of"]


@dataclass(frozen=True, slots=True)
class Use:
    path: PurePosixPath
    """Below our folder."""
    pid: int
    """One of perhaps many processes."""
    pod_uid: str = ""

    def __str__(self) -> str:
        return f"process {self.pid}" + (f" of pod {self.pod_uid}" if self.pod_uid else "")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a mountinfo."""

    device: str
    root: PurePosixPath
    """What of its file system is mounted."""
    point: PurePosixPath


def uses_of(folder: Path, proc: Path = Path("/proc")) -> list[Use]:
    """Who has something below `folder` mounted; the folder itself is what agents have."""
    here = place_of(folder, proc)
    if here is None:
        return []
    found = []
    for pid, lines in _namespaces(proc):
        for line in lines:
            if line.device == here.device and here.root in line.root.parents:
                uid = _pod_uid(proc / str(pid))
                found.append(Use(line.root.relative_to(here.root), pid, uid))
    return found


def place_of(folder: Path, proc: Path = Path("/proc")) -> Line | None:
    """Where the folder is on its file system, which is how mounts of others name it."""
    wanted = PurePosixPath(folder.resolve())
    place = None
    for line in _lines(proc / "self"):
        is_around = line.point == wanted or line.point in wanted.parents
        # Of two at one point, the later one hides the earlier.
        if is_around and (place is None or len(line.point.parts) >= len(place.point.parts)):
            place = line
    if place is None:
        return None
    return Line(place.device, place.root / wanted.relative_to(place.point), wanted)


def _namespaces(proc: Path) -> Iterator[tuple[int, list[Line]]]:
    """The mounts of every mount namespace, with one of its processes."""
    seen = set()
    for process in proc.iterdir():
        if not process.name.isdecimal():
            continue
        try:
            namespace = (process / "ns/mnt").readlink()
        except OSError:
            continue  # gone, or hidden from us
        if namespace not in seen:
            seen.add(namespace)
            yield int(process.name), _lines(process)


def _lines(process: Path) -> list[Line]:
    try:
        rows = [line.split(maxsplit=5) for line in lines_of(f"{process}/mountinfo")]
    except OSError:
        return []
    return [
        Line(os.fsdecode(row[2]), PurePosixPath(path_in(row[3])), PurePosixPath(path_in(row[4])))
        for row in rows
        if len(row) > 4
    ]


def _pod_uid(process: Path) -> str:
    try:
        return pod_of(lines_of(f"{process}/cgroup"))[0]
    except OSError:
        return ""
