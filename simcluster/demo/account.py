"""What pods have of their GPUs, from the simulator's own account and never from what they say."""

import os
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from simcluster.demo.patience import Patience
from simgpu.node import Node

__all__ = ["Account", "Moment", "Window"]

LOOK_S = 0.1
LIVE_MOMENTS = 10
"""How many looks back the live figures reach."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Nanoseconds and bytes by pod."""

    time_ns: dict[str, int]
    """Up to which the pod's GPU is accounted for."""
    busy_ns: dict[str, int]
    used_bytes: dict[str, int]
    waited_ns: dict[str, int]
    """How long its program was ready to run and had no processor."""
    stolen_ns: int
    """How long the machine itself was kept from running, if it is a virtual one."""
    late_ns: int
    """How much later than intended our own looks came, all in all."""


@dataclass(frozen=True, slots=True)
class Window:
    """From one moment to another."""

    begin: Moment
    end: Moment

    def share_percent(self, pod: str) -> float:
        """Part of the time in which the GPU worked for the pod."""
        return 100.0 * (self.end.busy_ns[pod] - self.begin.busy_ns[pod]) / self._length_ns(pod)

    @property
    def waited_percent(self) -> float:
        """The most that any program, we, or the machine was kept from running."""
        shares = [
            (self.end.waited_ns[pod] - self.begin.waited_ns[pod]) / self._length_ns(pod)
            for pod in self.begin.time_ns
        ]
        lengths = [self._length_ns(pod) for pod in self.begin.time_ns]
        stolen = (self.end.stolen_ns - self.begin.stolen_ns) / max(lengths)
        late = (self.end.late_ns - self.begin.late_ns) / max(lengths)
        return 100.0 * max(*shares, stolen, late)

    def _length_ns(self, pod: str) -> int:
        return max(self.end.time_ns[pod] - self.begin.time_ns[pod], 1)


@dataclass(frozen=True, slots=True)
class _Watched:
    pid: int
    gpu: int


class Account:
    """Looks ten times a second; late looks are as good, because each carries its own time."""

    def __init__(self, node: Node) -> None:
        self.peak_bytes: dict[str, int] = {}
        """The most memory that was ever seen, by pod."""
        self._node = node
        self._watched: dict[str, _Watched] = {}
        self._guard = threading.Lock()
        self._recent: deque[Moment] = deque(maxlen=LIVE_MOMENTS)
        self._late_ns = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="account")

    def __enter__(self) -> "Account":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def watch(self, pod: str, pid: int, gpu: int) -> None:
        with self._guard:
            self._watched[pod] = _Watched(pid, gpu)

    def forget(self, pod: str) -> None:
        """Its peak stays."""
        with self._guard:
            self._watched.pop(pod, None)

    def look(self) -> Moment:
        with self._guard:
            snapshot = self._node.snapshot()
            processes = {process.host_pid: process for process in snapshot.processes}
            time_ns, busy_ns, used_bytes, waited_ns = {}, {}, {}, {}
            for pod, watched in self._watched.items():
                process = processes.get(watched.pid)
                if process is None:
                    continue
                time_ns[pod] = snapshot.devices[watched.gpu].time_ns
                busy_ns[pod] = process.usages[watched.gpu].busy_ns
                used_bytes[pod] = sum(usage.used_bytes for usage in process.usages)
                waited_ns[pod] = _waited_ns(watched.pid)
                self.peak_bytes[pod] = max(self.peak_bytes.get(pod, 0), used_bytes[pod])
            return Moment(time_ns, busy_ns, used_bytes, waited_ns, _stolen_ns(), self._late_ns)

    def measure(self, seconds: float, patience: Patience) -> Window:
        begin = self.look()
        patience.pause(seconds)
        return Window(begin, self.look())

    def live(self) -> dict[str, tuple[int, float]]:
        """Bytes now and percent over the last second, by pod."""
        recent = list(self._recent)
        if not recent:
            return {}
        last = recent[-1]
        found = {}
        for pod, used in last.used_bytes.items():
            first = next((each for each in recent if pod in each.busy_ns), last)
            found[pod] = (used, Window(first, last).share_percent(pod))
        return found

    def _run(self) -> None:
        asleep_ns = time.monotonic_ns()
        while not self._stopping.wait(LOOK_S):
            self._late_ns += time.monotonic_ns() - asleep_ns - int(LOOK_S * 1e9)
            self._recent.append(self.look())
            asleep_ns = time.monotonic_ns()


def _waited_ns(pid: int) -> int:
    """Of all threads; 0 where the kernel does not say."""
    total = 0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            total += int(task.read_text().split()[1])
        except (OSError, IndexError):
            pass  # the thread has ended
    return total


def _stolen_ns() -> int:
    """By the hypervisor, per processor."""
    try:
        words = Path("/proc/stat").read_text().split(maxsplit=9)
        ticks = int(words[8])
    except (OSError, IndexError, ValueError):
        return 0
    return ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK") // (os.cpu_count() or 1)
