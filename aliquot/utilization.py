"""GPU time per process as NVML samples it; silent where NVML has no such thing."""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from shim.usage import Identity, identity_of

__all__ = ["Samples", "Utilization"]

WINDOW_S = 1 / 6
"""NVML's sampling window."""

WINDOWS = 2
"""Windows per question: the answer is a mean over all that are new."""

RETRY_S = 30.0
"""How often NVML is looked for where there is none."""

_log = logging.getLogger(__name__)


Samples = Callable[[str, int], Sequence[Any]]
"""NVML's samples of a GPU since a time stamp; an exception or nothing where there are none."""


class Utilization:
    """Asks NVML about each GPU now and then, just after a window has ended."""

    def __init__(self, samples: Samples | None = None) -> None:
        """Without `samples` it opens NVML itself."""
        self._samples = samples or _OwnSession().samples
        self._seen_us: dict[str, int] = {}
        self._next_s = 0.0
        self._identities: dict[int, Identity | None] = {}

    def due_in_s(self) -> float:
        """When to ask for news again: charges are compared with what NVML saw of the same time."""
        return max(0.0, self._next_s - time.time())

    def news(self, gpus: Collection[str]) -> Iterator[tuple[str, dict[Identity, float], float]]:
        """What each process used of each GPU, in nanoseconds, over how many seconds.

        Next to free when it is too soon for anything new.
        """
        now_s = time.time()
        if now_s < self._next_s:
            return
        newest_s = now_s - WINDOW_S
        for gpu in gpus:
            if (polled := self._poll(gpu)) is not None:
                yield gpu, *polled
                newest_s = max(newest_s, self._seen_us[gpu] / 1e6)
        # Just after a window has ended. All GPUs at once, so that there are few interruptions.
        self._next_s = min(newest_s, now_s) + WINDOWS * WINDOW_S + 0.004

    def _poll(self, gpu: str) -> tuple[dict[Identity, float], float] | None:
        since_us = self._seen_us.get(gpu, 0)
        try:
            samples = self._samples(gpu, since_us)
        except Exception as error:  # NVML fails in many ways, and the shares hold without it
            _log.debug("no utilisation of %s: %s", gpu, error)
            return None
        if not samples:
            return None
        newest_us = max(sample.timeStamp for sample in samples)
        self._seen_us[gpu] = newest_us
        span_s = (newest_us - since_us) / 1e6
        if since_us == 0 or not 0 < span_s < 5:
            return None
        used_ns = {sample.pid: sample.smUtil * 1e7 * span_s for sample in samples}
        return self._identified(used_ns), span_s

    def _identified(self, used_ns: dict[int, float]) -> dict[Identity, float]:
        """NVML knows host pids, usage files the container's own."""
        found = {}
        for pid, used in used_ns.items():
            if used == 0.0:
                self._identities.pop(pid, None)  # idle or gone: the pid may become another's
                continue
            if pid not in self._identities:
                self._identities[pid] = identity_of(pid)
            if (identity := self._identities[pid]) is not None:
                found[identity] = used
        return found


class _OwnSession:
    """NVML for processes that need it for nothing else."""

    def __init__(self) -> None:
        self._nvml: Any = None
        self._open_at_s = 0.0
        self._handles: dict[str, Any] = {}

    def samples(self, gpu: str, since_us: int) -> Sequence[Any]:
        nvml = self._open(time.time())
        if nvml is None:
            return ()
        handle = self._handles.get(gpu) or nvml.nvmlDeviceGetHandleByUUID(gpu)
        self._handles[gpu] = handle
        found: Sequence[Any] = nvml.nvmlDeviceGetProcessUtilization(handle, since_us)
        return found

    def _open(self, now_s: float) -> Any:
        """NVML, or None where there is none; whether there is one by now is asked rarely."""
        if self._nvml is None and now_s >= self._open_at_s:
            self._open_at_s = now_s + RETRY_S
            try:
                import pynvml

                pynvml.nvmlInit()
                self._nvml = pynvml
            except Exception as error:
                _log.debug("no NVML: %s", error)
        return self._nvml
