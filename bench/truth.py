"""Busy time as the simulator accounts it: exact, whatever the load of the machine."""

import statistics
import time
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

from simgpu.node import Node

__all__ = ["Trace", "record"]


@dataclass(slots=True)
class Trace:
    """What each process had used of a GPU, at many moments of the node's clock."""

    times_ns: list[int] = field(default_factory=list)
    busy_ns: list[dict[int, int]] = field(default_factory=list)

    def take(self, node: Node) -> None:
        snapshot = node.snapshot()
        self.times_ns.append(snapshot.devices[0].time_ns)
        before = self.busy_ns[-1] if self.busy_ns else {}
        now = {process.pid: process.usages[0].busy_ns for process in snapshot.processes}
        # What a process had used stays when it is gone.
        self.busy_ns.append({**before, **now})

    @property
    def seconds(self) -> float:
        return (self.times_ns[-1] - self.times_ns[0]) / 1e9

    def at(self, pids: Iterable[int], second: float) -> float:
        """Busy nanoseconds of some processes at a second of the trace, between two samples."""
        wanted = list(pids)
        when = self.times_ns[0] + second * 1e9
        after = min(max(bisect_left(self.times_ns, when), 1), len(self.times_ns) - 1)
        low, high = self.times_ns[after - 1], self.times_ns[after]
        first = sum(self.busy_ns[after - 1].get(pid, 0) for pid in wanted)
        last = sum(self.busy_ns[after].get(pid, 0) for pid in wanted)
        part = min(max((when - low) / (high - low), 0.0), 1.0)
        return first + (last - first) * part

    def share(self, pids: Iterable[int], start: float, end: float) -> float:
        """Percent of the time between two seconds."""
        wanted = list(pids)
        return (self.at(wanted, end) - self.at(wanted, start)) / (end - start) / 1e7

    def windows(
        self, pids: Iterable[int], start: float, end: float, length: float = 0.1
    ) -> list[float]:
        wanted = list(pids)
        count = int((end - start) / length)
        return [
            self.share(wanted, start + index * length, start + (index + 1) * length)
            for index in range(count)
        ]

    def window_sd(self, pids: Iterable[int], start: float, end: float) -> float:
        return statistics.pstdev(self.windows(pids, start, end))

    def begins(self, pids: Iterable[int], after: float = 0.0) -> float | None:
        """The second at which processes that had been idle at `after` first use the GPU."""
        wanted = list(pids)
        idle_ns = self.at(wanted, after)
        for time_ns, busy in zip(self.times_ns, self.busy_ns, strict=True):
            second = (time_ns - self.times_ns[0]) / 1e9
            if second > after and sum(busy.get(pid, 0) for pid in wanted) > idle_ns:
                return second
        return None

    def ends(self, pids: Iterable[int]) -> float | None:
        """The second after which the processes do not use the GPU any more."""
        wanted = list(pids)
        used = [sum(busy.get(pid, 0) for pid in wanted) for busy in self.busy_ns]
        for index in range(len(used) - 1, 0, -1):
            if used[index] > used[index - 1]:
                return (self.times_ns[index] - self.times_ns[0]) / 1e9
        return None


def record(trace: Trace, node: Node, seconds: float, every_s: float = 0.02) -> None:
    """Takes samples for so long; late ones are as good, because each carries its own time."""
    until = time.monotonic() + seconds
    while (now := time.monotonic()) < until:
        trace.take(node)
        time.sleep(max(0.0, min(every_s, until - now)))
    trace.take(node)
