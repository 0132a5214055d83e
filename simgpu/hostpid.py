"""Finds a process of another pid namespace under the pid that it has in ours."""

from pathlib import Path

__all__ = ["find_host_pid"]

_PROC = Path("/proc")


def find_host_pid(pid: int, pid_namespace: int, start_ticks: int) -> int | None:
    """Our pid of the process that calls itself `pid`; None when it is not to be seen."""
    if pid_namespace == _namespace_of("self"):
        return pid
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and _is_it(entry, pid, pid_namespace, start_ticks):
            return int(entry.name)
    return None


def _is_it(entry: Path, pid: int, pid_namespace: int, start_ticks: int) -> bool:
    try:
        status = (entry / "status").read_text()
        stat = (entry / "stat").read_text()
    except OSError:  # it ended meanwhile
        return False
    inner = next((line for line in status.splitlines() if line.startswith("NSpid:")), "NSpid: 0")
    if int(inner.split()[-1]) != pid or _start_ticks(stat) != start_ticks:
        return False
    # Other users' namespaces are hidden from who is not root; pid and start time then decide.
    seen = _namespace_of(entry.name)
    return seen is None or seen == pid_namespace


def _start_ticks(stat: str) -> int:
    """Field 22; the name in parentheses may itself hold spaces and parentheses."""
    return int(stat.rpartition(")")[2].split()[19])


def _namespace_of(name: str) -> int | None:
    try:
        return (_PROC / name / "ns" / "pid").stat().st_ino
    except OSError:
        return None
