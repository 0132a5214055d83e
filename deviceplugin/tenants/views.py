"""What is known of the processes on GPUs: read again as seldom as can be, and in bounded time."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from deviceplugin.tenants.procfs import ProcessView, ProcFs, Status

__all__ = ["VIEW_S", "Views"]

VIEW_S = 60.0
"""How long what /proc said of a program is believed; it may unload the shim meanwhile."""

REST_FOR = 50.0
"""So many times as long as reading about a process took, it is not read about again: who makes that
take long must not keep us busy."""

READING_S = 0.5
"""How long one look may read about processes."""


@dataclass(frozen=True, slots=True)
class _Seen:
    program: tuple[bytes, ...]
    at_s: float
    view: ProcessView
    cost_s: float

    def is_stale(self, now_s: float) -> bool:
        """What exculpates is believed for a while; what incriminates is looked at again, the later
        the longer that takes."""
        exculpates = self.view.shims and self.view.usages
        return now_s - self.at_s > (VIEW_S if exculpates else min(VIEW_S, REST_FOR * self.cost_s))


class Views:
    def __init__(self, proc: ProcFs) -> None:
        self._proc = proc
        self._seen: dict[int, _Seen] = {}

    def forget_all_but(self, pids: Collection[int]) -> None:
        for pid in self._seen.keys() - pids:
            del self._seen[pid]

    def of(self, pids: Iterable[int]) -> Mapping[int, ProcessView]:
        """Of those that still exist. Who could not be read about in time is only known by pod."""
        now_s = time.monotonic()
        found: dict[int, ProcessView] = {}
        stale: dict[int, tuple[ProcessView, Status]] = {}
        for pid in pids:
            status = self._proc.status(pid)
            if status is None:
                continue  # it has ended
            known = self._of_same_program(pid, status)
            if known is not None and (status.is_ending or not known.is_stale(now_s)):
                found[pid] = replace(known.view, is_ending=status.is_ending)
                continue
            owner = self._proc.owner(pid, status)
            if owner is None:
                continue
            view = known.view if known is not None else owner
            found[pid] = replace(view, is_ending=status.is_ending)
            if not status.is_ending:
                stale[pid] = owner, status
        # One tenant's processes may be many and long to read; others have theirs read meanwhile.
        for pid in _in_turns({pid: owner for pid, (owner, _) in stale.items()}, self._read_at_s):
            if time.monotonic() - now_s > READING_S:
                break
            found[pid] = self._read(*stale[pid])
        return found

    def _of_same_program(self, pid: int, status: Status) -> _Seen | None:
        known = self._seen.get(pid)
        # Who is ending has neither code nor stack any more, only the time of its start.
        count = 1 if status.is_ending else None
        if known is None or known.program[:count] != status.program[:count]:
            return None
        return known

    def _read_at_s(self, pid: int) -> float:
        known = self._seen.get(pid)
        return known.at_s if known is not None else 0.0

    def _read(self, owner: ProcessView, status: Status) -> ProcessView:
        begin_s = time.monotonic()
        view = self._proc.view(owner, status)
        end_s = time.monotonic()
        self._seen[owner.pid] = _Seen(status.program, end_s, view, end_s - begin_s)
        return view


def _in_turns(processes: Mapping[int, ProcessView], read_at_s: Callable[[int], float]) -> list[int]:
    """One process of each pod, then a second one of each; first the one that has waited longest."""
    before: Counter[str] = Counter()
    turns = []
    for pid in sorted(processes, key=read_at_s):
        pod_uid = processes[pid].pod_uid
        turns.append((before[pod_uid], pid))
        before[pod_uid] += 1
    return [pid for _, pid in sorted(turns, key=lambda turn: turn[0])]
