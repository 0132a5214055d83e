"""The compute arbiter between the containers of this node, as the agent hosts it."""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from aliquot.arbitration import Arbitration, Member
from deviceplugin.booking.allocator import ContainerAllocation
from deviceplugin.gpus.nvml import Nvml

__all__ = ["NodeArbiter"]

PUT_OFF_S = 1.0
"""How long who came or went can wait at the most: pods may start one after the other for hours."""
_TASKS = Path("/proc/self/task")


class NodeArbiter(Arbitration):
    """Takes part for as long as the agent lives; without it every container has just its share."""

    def __init__(
        self,
        lock: Path,
        allocations: Callable[[], Iterable[ContainerAllocation]],
        nvml: Nvml | None = None,
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        """`nvml` is the agent's session: a second one would keep the driver from being opened anew
        when GPUs come or recover. While the agent `is_busy`, who came or went can wait a little."""
        samples = nvml.utilization if nvml is not None else None
        super().__init__(lock, self._look, samples)
        self._allocations = allocations
        self._is_busy = is_busy
        self._looked_s = 0.0

    @property
    def cpu_s(self) -> float:
        """CPU time that arbitration has taken so far."""
        try:
            stat = (_TASKS / str(self.native_id) / "stat").read_text()
            user, system = stat.rpartition(")")[2].split()[11:13]
        except (OSError, ValueError):
            return 0.0  # it has not started yet, or has ended
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def _look(self) -> list[Member] | None:
        now_s = time.monotonic()
        if self._is_busy() and now_s - self._looked_s < PUT_OFF_S:
            return None
        self._looked_s = now_s
        return members_of(self._allocations())


def members_of(allocations: Iterable[ContainerAllocation]) -> list[Member]:
    """Who shares a GPU's time: not those who have theirs to themselves."""
    return [each.member for each in allocations if each.member is not None and not each.whole]
