"""Hosts the arbiter: one of all processes that could leads, the others stand by.

Whoever holds the lock file ticks. The kernel lets go of a dead leader's lock, so another one takes
over within a fraction of a grant's lifetime, and no container notices.
"""

import fcntl
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from shim.arbiter import TICK_S, Arbiter
from shim.limits import LimitsError

__all__ = ["Arbitration", "Member"]

STAND_BY_S = 0.15
"""How often those who do not lead try to."""

LOOK_S = 0.2
"""How often the leader looks for containers that came or went."""

WINDOW_S = 1 / 6
"""NVML's sampling window."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Member:
    """A container that takes part: its compute files and its GPUs in their order."""

    name: str
    limits: Path
    usage: Path
    gpus: tuple[str, ...]

    @classmethod
    def of_run(cls, name: str, folder: Path, gpus: tuple[str, ...]) -> Self:
        """A local run, which has everything in one folder."""
        return cls(name, folder / "compute" / "limits", folder / "compute" / "usage", gpus)


class Utilization:
    """GPU time per pid as NVML samples it; silent where NVML has no such thing."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._handles: dict[str, Any] = {}
        self._seen_us: dict[str, int] = {}
        self._due_s: dict[str, float] = {}

    def poll(self, gpu: str) -> tuple[dict[int, float], float] | None:
        """What each pid used, in nanoseconds, over how many seconds; None when nothing is new."""
        now_s = time.time()
        if now_s < self._due_s.get(gpu, 0.0):
            return None
        self._due_s[gpu] = now_s + WINDOW_S / 4
        try:
            nvml = self._open()
            handle = self._handles.get(gpu) or nvml.nvmlDeviceGetHandleByUUID(gpu)
            self._handles[gpu] = handle
            since_us = self._seen_us.get(gpu, 0)
            samples = nvml.nvmlDeviceGetProcessUtilization(handle, since_us)
        except Exception as error:  # NVML fails in many ways, and the shares hold without it
            _log.debug("no utilisation of %s: %s", gpu, error)
            return None
        if not samples:
            return None
        newest_us = max(sample.timeStamp for sample in samples)
        self._seen_us[gpu] = newest_us
        # Asked just after a window has ended, so that charges are compared with the same time.
        self._due_s[gpu] = min(newest_us / 1e6 + WINDOW_S + 0.004, now_s + 2 * WINDOW_S)
        span_s = (newest_us - since_us) / 1e6
        if since_us == 0 or not 0 < span_s < 5:
            return None
        return {sample.pid: sample.smUtil * 1e7 * span_s for sample in samples}, span_s

    def _open(self) -> Any:
        if self._nvml is None:
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
        return self._nvml


class Arbitration(threading.Thread):
    """A thread that leads whenever nobody else does."""

    def __init__(self, lock: Path, members: Callable[[], Iterable[Member]]) -> None:
        super().__init__(name="arbiter", daemon=True)
        self._lock = lock
        self._members = members
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Ends leading; grants lapse by themselves, or another leader renews them."""
        self._stopping.set()
        self.join()

    def run(self) -> None:
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not self._stopping.is_set():
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    self._stopping.wait(STAND_BY_S)
                    continue
                self._lead()
        finally:
            os.close(descriptor)

    def _lead(self) -> None:
        arbiter = Arbiter()
        utilization = Utilization()
        look_at = 0.0
        while not self._stopping.is_set():
            now = time.monotonic()
            if now >= look_at:
                _seat(arbiter, {member.name: member for member in self._members()})
                look_at = now + LOOK_S
            arbiter.tick(time.monotonic_ns())
            for gpu in arbiter.gpus:
                if (polled := utilization.poll(gpu)) is not None:
                    arbiter.measured(gpu, *polled)
            time.sleep(TICK_S)


def _seat(arbiter: Arbiter, members: Mapping[str, Member]) -> None:
    for name in arbiter.names - members.keys():
        arbiter.unseat(name)
    for name in members.keys() - arbiter.names:
        member = members[name]
        try:
            arbiter.seat(name, member.limits, member.usage, member.gpus)
        except (OSError, LimitsError) as error:
            # It is just being made or removed; the next look will tell.
            _log.debug("not seated yet: %s", error)
