"""The compute arbiter between the containers of this node, as the agent hosts it."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from aliquot.arbitration import Arbitration, Member
from deviceplugin.booking.allocator import ContainerAllocation
from deviceplugin.gpus.nvml import Nvml

__all__ = ["NodeArbiter"]

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
        when GPUs come or recover. While the agent `is_busy`, who came or went can wait."""
        samples = nvml.utilization if nvml is not None else None
        super().__init__(lock, lambda: None if is_busy() else members_of(allocations()), samples)

    @property
    def cpu_s(self) -> float:
        """CPU time that arbitration has taken so far."""
        try:
            stat = (_TASKS / str(self.native_id) / "stat").read_text()
            user, system = stat.rpartition(")")[2].split()[11:13]
        except (OSError, ValueError):
            return 0.0  # it has not started yet, or has ended
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def members_of(allocations: Iterable[ContainerAllocation]) -> list[Member]:
    """Who shares a GPU's time: not those who have theirs to themselves."""
    return [each.member for each in allocations if each.member is not None and not each.whole]
