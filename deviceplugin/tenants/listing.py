"""Who uses which GPU: each is asked by itself, so that one that hangs keeps only its own answer."""

import logging
import threading
import time
from collections.abc import Callable, Iterable

from deviceplugin.gpus.nvml import GpuProcess, NvmlError
from deviceplugin.tenants.judgement import Use

__all__ = ["Listings"]

PATIENCE_S = 0.5
"""How long a look waits for GPUs that it has just asked."""

_log = logging.getLogger(__name__)


class Listings:
    """Not thread-safe. A GPU that has not answered is not asked again before it has."""

    def __init__(self, ask: Callable[[str], list[GpuProcess]]) -> None:
        self._ask = ask
        self._open: dict[str, _Question] = {}

    def now(self, gpus: Iterable[str]) -> tuple[list[Use], frozenset[str]]:
        """Who uses these GPUs, and of which of them nothing is known now."""
        wanted = tuple(gpus)
        fresh = [gpu for gpu in wanted if gpu not in self._open]
        for gpu in fresh:
            self._open[gpu] = _Question(self._ask, gpu)
            self._open[gpu].start()
        until_s = time.monotonic() + PATIENCE_S
        for gpu in fresh:
            self._open[gpu].join(max(0.0, until_s - time.monotonic()))
        uses: list[Use] = []
        silent = set()
        for gpu in wanted:
            question = self._open[gpu]
            if question.is_alive():
                silent.add(gpu)
                continue
            del self._open[gpu]
            if question.answer is None:
                silent.add(gpu)
            else:
                uses += [Use(gpu, each.pid, each.used_bytes) for each in question.answer]
        return uses, frozenset(silent)


class _Question(threading.Thread):
    """One call into the driver, which may never return; it ends with the process then."""

    def __init__(self, ask: Callable[[str], list[GpuProcess]], gpu: str) -> None:
        super().__init__(name=f"tenants of {gpu}", daemon=True)
        self._ask = ask
        self._gpu = gpu
        self.answer: list[GpuProcess] | None = None

    def run(self) -> None:
        try:
            self.answer = self._ask(self._gpu)
        except NvmlError as error:
            _log.debug("no processes: %s", error)  # health tells of GPUs that do not answer
        except Exception:  # it would end on stderr, and nobody look there
            _log.exception("listing the processes of GPU %s failed", self._gpu)
