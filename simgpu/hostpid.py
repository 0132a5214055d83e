"""Finds processes of other pid namespaces under the pids that they have in ours."""

from functools import cached_property
from pathlib import Path

__all__ = ["HostPids"]

_PROC = Path("/proc")


class HostPids:
    """What /proc shows at one moment; read when the first process of another namespace is asked."""

    def find(self, pid: int, pid_namespace: int, start_ticks: int) -> int | None:
        """Our pid of the process that calls itself `pid`; None when it is not to be seen."""
        if pid_namespace == _namespace_of("self"):
            return pid
        for host_pid in self._seen.get((pid, start_ticks), []):
            # Other users' namespaces are hidden from who is not root; pid and start then decide.
            namespace = _namespace_of(str(host_pid))
            if namespace is None or namespace == pid_namespace:
                return host_pid
        return None

    @cached_property
    def _seen(self) -> dict[tuple[int, int], list[int]]:
        """Our pids by the innermost pid and the start time, which the kernel counts from boot."""
        seen: dict[tuple[int, int], list[int]] = {}
        for entry in _PROC.iterdir():
            if entry.name.isdigit() and (key := _identity(entry)):
                seen.setdefault(key, []).append(int(entry.name))
        return seen


def _identity(entry: Path) -> tuple[int, int] | None:
    try:
        status = (entry / "status").read_text()
        stat = (entry / "stat").read_text()
    except OSError:  # it ended meanwhile
        return None
    for line in status.splitlines():
        if line.startswith("NSpid:"):
            # Field 22; the name in parentheses may itself hold spaces and parentheses.
            return int(line.split()[-1]), int(stat.rpartition(")")[2].split()[19])
    return None


def _namespace_of(name: str) -> int | None:
    try:
        return (_PROC / name / "ns" / "pid").stat().st_ino
    except OSError:
        return None
